"""The blocks that no test runs, each by its page and first line, with the reason."""

LISTED = {
    "release/README.md: make check": "it runs this; tests/test_release.py releases a commit",
    "release/README.md: python3 -m venv /tmp/release": "tests/test_release.py does it in another folder",
    "release/README.md: ssh-keygen -Y sign -f ~/.ssh/id_ed25519 -n file dist/SHA256SUMS": "it takes the releaser's own key",
    "release/README.md: git archive v0.1.0 | docker build -f deploy/Dockerfile -t issuer:0.1.0 -": (
        "no container runtime is demanded; tests/deploy builds the image's steps where it can"
    ),
    "issuer/relying/TABLE.md: dask scheduler --host 127.0.0.1 --port 8786": (
        "tests/relying/test_table.py runs it, and kills one of the workers"
    ),
    "keys/README.md: $ pip install '.[server,pkcs11]'      # in the checkout; or [server,aws]": (
        "README.md installs from a checkout; tests/test_locks.py holds the extras"
    ),
    "policies/README.md: gh api repos/OWNER/NAME --jq '.id, .owner.id'": "it asks github.com and gitlab.com",
    "deploy/STATE.md: readiness, of revocations": "tests/service/revocation/test_active_list.py",
    "issuer/relying/README.md: issuer verify .eval_results/gsm8k.yaml --repo acme/open-model --issuer https://issuer.example \\": (
        "tests/cli/verify/test_keep_receipts.py runs it over a year"
    ),
    'issuer/page/verify/README.md: import { readFileSync } from "node:fs";': "tests/page/test_javascript_verifier.py runs it",
    "issuer/adapters/README.md: inspect eval gsm8k.py --model hf/acme/open-model -M revision=9f3c... --metadata benchmark_revision=5503...": (
        "it loads a model; tests/harness runs Inspect AI"
    ),
}
