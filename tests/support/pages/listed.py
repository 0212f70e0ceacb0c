"""The blocks that no test runs, each by its page and first line, with the reason."""

from __future__ import annotations

LISTED = {
    "keys/README.md: $ pip install 'eval-token-issuer[server,pkcs11]'      # or [server,aws]": (
        "the package is not published; tests/test_locks.py holds the extras"
    ),
    "deploy/README.md: readiness": "tests/service/test_logged.py and its neighbours hold each member",
    "deploy/README.md: readiness, of revocations": "tests/service/revocation/test_live.py",
    'deploy/README.md: $ issuer stop integration:inspect-ai --reason "its key is in a log" --config settings.yaml --wait   # or everything': (
        "tests/service/test_emergency.py does each of these to a service"
    ),
    "deploy/README.md: # /etc/systemd/system/issuer-revocations.service": "systemd's own; the command is run in keys/README.md",
    "issuer/adapters/README.md: inspect eval gsm8k.py --model hf/acme/open-model -M revision=9f3c... --metadata benchmark_revision=5503...": (
        "it loads a model; tests/adapters/test_real_frameworks.py runs Inspect AI"
    ),
}
