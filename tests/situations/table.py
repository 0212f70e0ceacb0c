"""The situations, by area: the files and services before a command, and the command. `expected/` has the output, by title."""

from issuer.dev.sandbox import SAMPLE_RUN
from tests.situations.steps import (
    Situation,
    audit,
    chained_audit,
    claims_of,
    edit,
    identity,
    keys,
    mode,
    new_policies,
    open_key,
    policies,
    result,
    run_claims,
    spent_identity,
    taken_port,
    trust,
    variables,
    write,
)
from tests.support import make

_POLICY = "policies/inspect-ai.yaml"
_RESULT = ".eval_results/gsm8k.yaml"
_GOOD = make.file_for(make.submission())
_BARE = "\n".join(line for line in _GOOD.splitlines() if "verify_token" not in line) + "\n"
_VERIFY = f"verify {_RESULT} --repo acme/open-model --trust trust.yaml --at {make.NOW}"
_REQUEST = "token request --issuer {issuer} --claims run.json"
_EXPLAIN = "policy explain policies --identity-claims-file ci.json --development"
_CHECK = "policy check policies --development"
_PLAN = "policy plan policies new --audit audit.jsonl --development"
_SERVE = "serve --config s.yaml"
_HOSTILE = "\x1b[2J\x9bverified\u202e"
_MODEL = (
    "--model-repo acme/open-model --model-revision 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321 --command 'inspect eval x'"
)

_SETTINGS = write(
    "s.yaml",
    'version: 1\nurl: "http://127.0.0.1:8000"\ndevelopment: true\npolicies: policies\ndata: data\nkeys: {folder: keys}\n'
    'store: {url: "redis://127.0.0.1:1"}\nlisten:\n  port: 0\n',
)

S = Situation

OVERVIEW = [
    S("The overview", "-h"),
    S("The help of one command", "token request --help"),
    S("The help of a command in a group", "policy plan -h"),
    S("A command that is misspelled", "verfy x.yaml"),
    S("A command in a group that is misspelled", "policy chek"),
    S("An option that is misspelled", "token request --isuer https://issuer.example"),
    S("A value that is not one of the choices", "policy check --format jason"),
    S("An option without its value", "token request --issuer"),
    S("A required argument is missing", "results lint"),
    S("An argument too many", "pat list extra"),
    S("The page of exit codes", "help exit-codes"),
    S("The page of credentials", "help credentials"),
    S("The page of variables", "help environment"),
    S("Help for an unknown word", "help everything"),
    S("Help for a command, by its name", "help policy fmt"),
    S("Completion for an unsupported shell", "completion tcsh"),
    S("A port out of range", "dev --port 70000"),
]

POLICY = [
    S("Good policies", _CHECK, (policies,)),
    S("Good policies, with their digests", "policy check policies --development --url https://issuer.example", (policies,)),
    S("A folder that is not there", "policy check nowhere"),
    S("A folder without providers", "policy check policies", (write("policies/a.yaml", "version: 1\n"),)),
    S("A mode that is not one of the choices", _CHECK, (policies, edit(_POLICY, "mode: active", "mode: activ"))),
    S("A member that is misspelled", _CHECK, (policies, edit(_POLICY, "mode: active", "mode: active\nmodel: x"))),
    S("A brace that is never closed", _CHECK, (policies, edit(_POLICY, '["github-hosted"]}', '["github-hosted"]'))),
    S("A bracket that is never closed", _CHECK, (policies, edit(_POLICY, '"TIGER-Lab/MMLU-Pro"]', '"TIGER-Lab/MMLU-Pro"'))),
    S("A definition of a benchmark that is not granted", _CHECK,
      (policies, edit(_POLICY, '"TIGER-Lab/MMLU-Pro"]', '"TIGER-Lab/MMLU-Pro"]\n  definitions: {"openai/gms8k": "any"}'))),
    S("A quote that is never closed", _CHECK, (policies, edit(_POLICY, '["evals@example.org"]', '["evals@example.org]'))),
    S("A quote that the file ends in", "policy check a", (write("a/providers.yaml", 'version: "1\nproviders: 2\n'),)),
    S("A comma is missing in braces", "policy check a", (write("a/providers.yaml", "version: 1\nproviders: {a: 1 b: 2}\n"),)),
    S("A bracket that closes nothing", "policy check a", (write("a/providers.yaml", "version: 1\nproviders: ]\n"),)),
    S("A colon in plain text", "policy check a", (write("a/providers.yaml", "version: 1\nnote: see: here\n"),)),
    S("A tab for indentation", "policy check a", (write("a/providers.yaml", "version: 1\nproviders:\n\ta: 1\n"),)),
    S("A line that is indented too little", "policy check a", (write("a/providers.yaml", "a:\n  b: 1\n c: 2\n"),)),
    S("A list item without its space", "policy check a", (write("a/providers.yaml", "a:\n- b\n-c\n- d: 1\n"),)),
    S("Text that begins with a sign of YAML's", "policy check a", (write("a/providers.yaml", "version: @one\n"),)),
    S("An invalid escape", "policy check a", (write("a/providers.yaml", 'version: "a\\qb"\n'),)),
    S("The same key twice", "policy check a", (write("a/providers.yaml", "version: 1\nversion: 1\n"),)),
    S("An anchor", "policy check a", (write("a/providers.yaml", "version: &v 1\n"),)),
    S("Two documents in one file", "policy check a", (write("a/providers.yaml", "version: 1\n---\nversion: 1\n"),)),
    S("A word that readers disagree about", "policy check a", (write("a/providers.yaml", "version: yes\n"),)),
    S("A number that is an id", _CHECK, (policies, edit(_POLICY, '"700000001"', "700000001"))),
    S("A byte order mark", "policy check a", (write("a/providers.yaml", "\ufeffversion: 1\n"),)),
    S("Bytes that are not UTF-8", "policy check a", (write("a/providers.yaml", b"version: 1\n\xff\xfe\x00\n"),)),
    S("A file that is empty", "policy check a", (write("a/providers.yaml", ""),)),
    S("A file that is too large", "policy check a", (write("a/providers.yaml", "#" * (1024 * 1024 + 1)),)),
    S("A file that is nested too deep", "policy check a", (write("a/providers.yaml", "[" * 40 + "]" * 40 + "\n"),)),
    S("A key that draws on the terminal", "policy check a",
      (write("a/providers.yaml", '"\\e[2J\\u009bgood\\u202e": 1\nversion: 1\nproviders: {}\n'),)),
    S("A test that fails, in check", _CHECK, (policies, edit(_POLICY, '"openai/gsm8k", ', ""))),
    S("A test that fails, with its checks", "policy test policies --development --integration inspect-ai",
      (policies, edit(_POLICY, '"openai/gsm8k", ', ""))),
    S("Tests of an unknown integration", "policy test policies --development --integration nobody", (policies,)),
    S("All tests pass", "policy test policies --development", (policies,)),
    S("A finding for GitHub", "policy check policies --development --format github",
      (policies, edit(_POLICY, "mode: active", "mode: activ"))),
    S("A schema of an unknown name", "policy schema policys"),
    S("A file in canonical layout, and another one", "policy fmt policies/inspect-ai.yaml a.yaml",
      (policies, write("a.yaml", "a:\n    b: 'c'\n"))),
    S("The changes of a new layout", "policy fmt --check a.yaml", (write("a.yaml", "a:\n    b: 'c'\n"),)),
    S("A file to lay out that is not YAML", "policy fmt a.yaml", (write("a.yaml", "a: {b: 1\n"),)),
]  # fmt: skip

EXPLAIN = [
    S("A grant", f"{_EXPLAIN} --claims run.json", (policies, claims_of(), run_claims())),
    S("A grant, with every check", f"{_EXPLAIN} --claims run.json --verbose", (policies, claims_of(), run_claims())),
    S("Another branch", _EXPLAIN, (policies, claims_of(ref="refs/heads/dev"))),
    S("An event that strangers cause", _EXPLAIN, (policies, claims_of(event_name="pull_request_target"))),
    S("A claim that is not there", _EXPLAIN, (policies, claims_of(runner_environment=...))),
    S("Another repository", _EXPLAIN, (policies, claims_of(repository_id="1"))),
    S("A benchmark that is not granted", f"{_EXPLAIN} --claims run.json",
      (policies, claims_of(), run_claims(benchmark_repo="a/b"))),
    S("The same, as its caller sees it", f"{_EXPLAIN} --claims run.json --as-caller",
      (policies, claims_of(), run_claims(benchmark_repo="a/b"))),
    S("A definition that the policy does not list", f"{_EXPLAIN} --claims run.json",
      (policies, edit(_POLICY, '"TIGER-Lab/MMLU-Pro"]', f'"TIGER-Lab/MMLU-Pro"]\n  definitions: {{"openai/gsm8k": "{"0" * 40}"}}'),
       claims_of(), run_claims())),
    S("A framework that is too old, and another model", f"{_EXPLAIN} --claims run.json",
      (policies, claims_of(), run_claims(framework={"name": "inspect-ai", "version": "0.1.0"}, model_repo="else/where"))),
    S("A claim that draws on the terminal", _EXPLAIN, (policies, claims_of(ref=_HOSTILE))),
    S("Claims without an issuer", _EXPLAIN, (policies, write("ci.json", '{"repository_id": "1"}'))),
    S("An unknown provider", f"{_EXPLAIN} --provider nobody", (policies, claims_of())),
    S("Claims of a provider that is not registered", _EXPLAIN, (policies, claims_of(iss="https://evil.example"))),
    S("Neither a token nor claims", "policy explain policies", (policies,)),
    S("A token, and no URL", "policy explain policies --identity-token-file t", (policies, write("t", "x"))),
    S("A token of Hugging Face, which is opaque",
      "policy explain policies --development --identity-token-file t --url https://issuer.example", (policies, write("t", "hf_x"))),
    S("A token of a provider that is not registered",
      "policy explain policies --development --identity-token-file - --url https://issuer.example", (policies,),
      "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL2V2aWwuZXhhbXBsZSJ9.AAAA"),
    S("Claims that are cut off", _EXPLAIN, (policies, write("ci.json", '{"iss": "https://'))),
    S("Claims that are a list", _EXPLAIN, (policies, write("ci.json", "[]"))),
    S("A claim that is there twice", _EXPLAIN, (policies, write("ci.json", '{"iss": "a", "iss": "b"}'))),
    S("A run with a short revision", f"{_EXPLAIN} --claims run.json", (policies, claims_of(), run_claims(model_revision="9f3c2c9"))),
    S("An invalid time", f"{_EXPLAIN} --at yesterday", (policies, claims_of())),
    S("A URL with a slash at its end", f"{_EXPLAIN} --url https://issuer.example/", (policies, claims_of())),
]  # fmt: skip

PLAN = [
    S("Nothing changes", _PLAN, (policies, new_policies, audit)),
    S("A grant that would be taken away, and a test that says so", _PLAN,
      (policies, new_policies, audit, edit("new/inspect-ai.yaml", "refs/heads/main", "refs/heads/release"))),
    S("New policies that cannot be read", _PLAN,
      (policies, new_policies, audit, edit("new/inspect-ai.yaml", "mode: active", "mode: activ"))),
    S("No audit", _PLAN, (policies, new_policies)),
    S("A damaged audit", _PLAN, (policies, new_policies, write("audit.jsonl", b"\x00\xff\nnot json\n"))),
]  # fmt: skip

REQUEST = [
    S("No claims", "token request --issuer {issuer}"),
    S("Claims and a log", f"{_REQUEST} --inspect-log x.json"),
    S("No identity here", _REQUEST, (run_claims(),)),
    S("GitHub Actions without the permission", "token request --issuer https://issuer.example --claims run.json",
      (run_claims(), variables(GITHUB_ACTIONS="true"))),
    S("GitLab without id_tokens", "token request --issuer https://issuer.example --claims run.json",
      (run_claims(), variables(GITLAB_CI="true"))),
    S("Two credentials", _REQUEST, (run_claims(), variables(ISSUER_ID_TOKEN="a.b.c", ISSUER_ACCESS_TOKEN="x"))),
    S("Two ways to give one", f"{_REQUEST} --id-token-file a --access-token-file b", (run_claims(),)),
    S("A token file that is not there", f"{_REQUEST} --id-token-file nowhere", (run_claims(),)),
    S("A token with a space in it", f"{_REQUEST} --id-token-file t", (run_claims(), write("t", "two words"))),
    S("A personal access token with a typing error", f"{_REQUEST} --access-token-file t",
      (run_claims(), write("t", "evi_pat_" + "a" * 12 + "_" + "b" * 49))),
    S("An OAuth client without its secret", f"{_REQUEST} --oauth https://login.example --client-id ci", (run_claims(),)),
    S("Plain http", "token request --issuer http://issuer.example --claims run.json", (run_claims(),)),
    S("A password in the URL", "token request --issuer https://me:secret@issuer.example --claims run.json", (run_claims(),)),
    S("An invalid URL", "token request --issuer issuer.example --claims run.json", (run_claims(),)),
    S("The claims are not there", _REQUEST, (identity(),)),
    S("The claims are cut off", _REQUEST, (identity(), write("run.json", '{"claims": {'))),
    S("The claims are bytes", _REQUEST, (identity(), write("run.json", b"\xff\x00"))),
    S("A member of the claims that is misspelled", _REQUEST, (identity(), run_claims(modell_repo="x"))),
    S("A number that cannot be carried", _REQUEST,
      (identity(), write("run.json", '{"claims": {"metrics": [{"metric_id": "a", "value": 1e999}]}}'))),
    S("A secret in the command", _REQUEST, (identity(), run_claims(framework={
        "name": "inspect-ai", "version": "0.3.285", "command": "HF_TOKEN=hf_" + "aB3" * 12 + " inspect eval"}))),
    S("A nonce with an identity token", f"{_REQUEST} --nonce {'n' * 22}", (run_claims(), identity())),
    S("A nonce that is too short", f"{_REQUEST} --nonce short", (run_claims(), identity())),
    S("A file that no reader would look at", f"{_REQUEST} --out result.yaml", (run_claims(), identity())),
    S("A file of another benchmark", f"{_REQUEST} --out .eval_results/mmlu.yaml", (run_claims(), identity())),
    S("A rehearsal with an output file", f"{_REQUEST} --dry-run --out {_RESULT}", (run_claims(), identity())),
    S("Append to nothing", f"{_REQUEST} --append", (run_claims(), identity())),
    S("It would be granted", f"{_REQUEST} --dry-run", (run_claims(), identity())),
    S("It would be refused", f"{_REQUEST} --dry-run", (run_claims(), identity(ref="refs/heads/dev"))),
    S("It is refused: the branch", _REQUEST, (run_claims(), identity(ref="refs/heads/dev"))),
    S("It is refused: the benchmark", _REQUEST, (run_claims(benchmark_repo="a/b"), identity())),
    S("It is refused: the caller is not registered", _REQUEST, (run_claims(), identity(repository_id="99"))),
    S("A token for another audience", _REQUEST, (run_claims(), identity("https://other.example"))),
    S("A token that has expired", _REQUEST, (run_claims(), identity(iat=-700, nbf=-1300, exp=-400))),
    S("A token of tomorrow", _REQUEST, (run_claims(), identity(iat=86_400, nbf=86_400, exp=86_700))),
    S("A token that lives too long", _REQUEST, (run_claims(), identity(exp=864_000))),
    S("A token of a provider that is not known", _REQUEST, (run_claims(), identity(iss="https://evil.example"))),
    S("A token of Hugging Face where none is taken", f"{_REQUEST} --access-token-file t",
      (run_claims(), write("t", "hf_" + "aB3" * 12))),
    S("A token that is used up", _REQUEST, (run_claims(), spent_identity)),
    S("An unreachable issuer", "token request --issuer http://127.0.0.1:1 --claims run.json --dry-run --nonce " + "n" * 22,
      (run_claims(), variables(ISSUER_ACCESS_TOKEN="x"))),
    S("The server is not an issuer", "token request --issuer {other} --claims run.json", (run_claims(), identity())),
    S("A file of the run that is not there", "token request --issuer {issuer} --inspect-log run.json"),
    S("A log of a mock model", f"token request --issuer {{issuer}} --inspect-log {SAMPLE_RUN.name} {_MODEL}",
      (write(SAMPLE_RUN.name, SAMPLE_RUN.read_bytes()), identity())),
]  # fmt: skip

RESULTS = [
    S("A run to build from is missing", "results build nowhere -o out.yaml"),
    S("A run that is not JSON", "results build run.json -o out.yaml", (write("run.json", "{"),)),
    S("JSON that is not a run", "results build run.json -o out.yaml", (write("run.json", '{"a": 1}'),)),
    S("Lint of a missing file", "results lint nowhere"),
    S("Lint of invalid YAML", f"results lint {_RESULT}", (result("- dataset: {id: a\n"),)),
    S("Lint of bytes", f"results lint {_RESULT}", (result("\x00\x1b[2J"),)),
    S("Lint of a good file", f"results lint {_RESULT}", (result(),)),
    S("Lint of a file without a token", f"results lint {_RESULT}", (result(_BARE),)),
    S("Layout of a map", f"results fmt {_RESULT}", (result("a: 1\n"),)),
    S("The difference of two files", f"results diff {_RESULT} other.yaml", (result(), write("other.yaml", _GOOD.replace("20.9", "21.9")))),
    S("A missing definition", "benchmark lint eval.yaml"),
    S("A definition that is a list", "benchmark lint eval.yaml", (write("eval.yaml", "- a\n"),)),
    S("A job without a sandbox", "dev token --port 9"),
    S("A policy from an invalid token", "policy new a --from-token t", (write("t", "x"),)),
    S("A digest of a missing file", "results digest nowhere.yaml --repo acme/open-model"),
]  # fmt: skip

_FALSE = _GOOD.replace("20.9", "21.9")
_KEYS_ELSEWHERE = f"""version: 1
audience: "{make.AUDIENCE}"
issuers:
  - issuer: "{make.ISSUER}"
    keys: {{url: "http://127.0.0.1:1/jwks"}}
"""
_PINNED = f'version: 1\ndefinitions: {{"{make.BENCHMARK}": "{"0" * 40}"}}\n'
_LATE = f"verify {_RESULT} --repo acme/open-model --trust trust.yaml --at {make.NOW + 7200}"

VERIFY = [
    S("Nothing to verify", "verify"),
    S("No repository", f"verify {_RESULT} --trust trust.yaml", (result(), trust)),
    S("No trust", f"verify {_RESULT} --repo acme/open-model", (result(),)),
    S("An issuer, and no audience", f"verify {_RESULT} --repo acme/open-model --issuer https://issuer.example", (result(),)),
    S("A file to verify that is not there", "verify nowhere.yaml --repo acme/open-model --trust trust.yaml", (trust,)),
    S("A trust file that is not there", _VERIFY, (result(),)),
    S("A trust file with an open brace", _VERIFY,
      (result(), write("trust.yaml", "version: 1\naudience: x\nissuers: [{issuer: y\nrequire: []\n"))),
    S("A trust file without issuers", _VERIFY, (result(), write("trust.yaml", "version: 1\naudience: x\nissuers: []\n"))),
    S("An invalid time of receipt", f"{_VERIFY} --at 2026-11-21", (result(), trust)),
    S("A result file that is empty", _VERIFY, (result("\n"), trust)),
    S("A result file with an open bracket", _VERIFY, (result("- dataset: {id: a}\n  metrics: [{\n"), trust)),
    S("A result file that is a map", _VERIFY, (result("dataset: {}\n"), trust)),
    S("Files of one flag for a folder", "verify . --repo acme/open-model --trust trust.yaml", (result(), trust)),
    S("A good file", _VERIFY, (result(), trust)),
    S("A digit was changed", _VERIFY, (result(_FALSE), trust)),
    S("No token", _VERIFY, (result(_BARE), trust)),
    S("A token that is cut off", _VERIFY, (result(_GOOD[: _GOOD.rindex(".")] + '"\n'), trust)),
    S("Received after the token has ended", _LATE, (result(), trust)),
    S("Of another repository", _VERIFY.replace("acme/open-model", "acme/other"), (result(), trust)),
    S("An issuer that is not trusted", _VERIFY,
      (result(), trust, edit("trust.yaml", f'issuer: "{make.ISSUER}"', 'issuer: "https://other.example"'))),
    S("A definition that the trust file does not accept", _VERIFY, (result(), trust, edit("trust.yaml", "version: 1\n", _PINNED))),
    S("A branch in place of a definition's commit", _VERIFY,
      (result(), trust, edit("trust.yaml", "version: 1\n", _PINNED.replace("0" * 40, "main")))),
    S("Keys that cannot be fetched", f"{_VERIFY} --cache cache", (result(), write("trust.yaml", _KEYS_ELSEWHERE))),
    S("A repository in place of its owners' folder", "verify . --trust trust.yaml", (result(), trust)),
    S("Receipts without a place", f"{_VERIFY} --receipt-key k.pem", (result(), trust)),
]  # fmt: skip

OPERATE = [
    S("Keys of a folder that is not there", "keys list --dir keys --data data"),
    S("A key whose id is not one", "keys revoke abc --from 0 --reason x --dir keys --data data", (keys,)),
    S("An unknown key", f"keys revoke key-{'A' * 43} --from 0 --reason x --dir keys --data data", (keys,)),
    S("Revoked from a time to come", f"keys revoke key-{'A' * 43} --from 2099-01-01T00:00:00Z --reason x --dir keys --data data", (keys,)),
    S("A personal access token for too long", "pat create --account a --expires 91 --dir pats"),
    S("A personal access token of an invalid name", "pat create --account 'two words' --dir pats"),
    S("An unknown personal access token", "pat revoke aaaaaaaaaaaa --dir pats", (write("pats/.keep", ""), mode("pats", 0o700))),
    S("A personal access token where its id belongs", "pat revoke evi_pat_" + "a" * 12 + "_" + "b" * 49 + " --dir pats"),
    S("Personal access tokens in an open folder", "pat list --dir pats", (write("pats/.keep", ""), mode("pats", 0o755))),
    S("A stop without a reason", "stop everything --dir policies", (policies,)),
    S("A stop of an invalid name", "stop inspect-ai --reason x --dir policies", (policies,)),
    S("A stop that has ended already", "stop everything --reason x --until 2020-01-01T00:00:00Z --dir policies", (policies,)),
    S("A stop with its reason", "stop integration:inspect-ai --reason 'it leaks' --dir policies", (policies,)),
    S("Stops that are damaged", "stops --dir policies", (policies, write("policies/stops.yaml", "stops: [\n"))),
    S("A resume without a stop", "resume everything --dir policies", (policies,)),
    S("A revocation of an invalid jti", "revoke --jti abc --reason x --dir keys --data data", (keys,)),
    S("A revocation without a time", "revoke --sub inspect-ai --reason x --dir keys --data data", (keys,)),
    S("Revocations of a folder that is not there", "revocations show --dir keys --data data", (keys,)),
    S("An audit that is not there", "audit verify audit.jsonl"),
    S("An audit that somebody changed", "audit verify audit.jsonl", (chained_audit, edit("audit.jsonl", "first", "worst"))),
    S("An audit of no chain", "audit verify audit.jsonl", (policies, audit)),
    S("A search of an audit without a result", "audit find audit.jsonl --integration nobody", (policies, audit)),
    S("A log without a policy", "log verify log --policy policy.txt"),
    S("A log that is no folder", "log verify log --policy policy.txt", (write("policy.txt", "quorum none\n"),)),
    S("A proof for no entry", "log proof log --policy policy.txt --for a.yaml", (write("policy.txt", "quorum none\n"),)),
    S("A witness of an invalid name", "witness init --dir w --name 'two words'"),
    S("Settings that are not there", "keys list --config settings.yaml"),
    S("Settings with a member that is misspelled", "keys list --config settings.yaml", (write("settings.yaml", "prot: 80\n"),)),
    S("Settings that hold a password, and are not YAML", "keys list --config settings.yaml",
      (write("settings.yaml", "store: {url: {rediss://:hush0123456789abc@store.example\nport: 1\n"),)),
]  # fmt: skip

SERVE = [
    S("Nothing is set", "serve"),
    S("A setting that is misspelled", _SERVE, (_SETTINGS, edit("s.yaml", "port", "prot"))),
    S("Plain http in public", _SERVE, (_SETTINGS, edit("s.yaml", "http://127.0.0.1", "http://issuer.example"))),
    S("A signing key is missing", _SERVE, (_SETTINGS, policies)),
    S("A key that others may read", _SERVE, (_SETTINGS, policies, keys, open_key)),
    S("A policy that is wrong", _SERVE, (_SETTINGS, policies, keys, edit(_POLICY, "mode: active", "mode: activ"))),
    S("The folder of policies is not there", _SERVE, (_SETTINGS, keys)),
    S("The port is taken", _SERVE, (_SETTINGS, policies, keys, taken_port)),
    S("The store is not there", _SERVE, (_SETTINGS, policies, keys)),
    S("The store is not there, for several workers", "serve --config s.yaml --workers 2", (_SETTINGS, policies, keys)),
    S("A witness whose folder is not there", "witness serve --dir w --logs logs.txt", (write("logs.txt", "quorum none\n"),)),
]  # fmt: skip

_SUBMIT = "submit run.json --issuer {issuer} --model-repo acme/open-model --metric accuracy=match/accuracy"
_MINI = write("run.json", SAMPLE_RUN.read_bytes())
_MOCK = (
    "--model-revision 9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321 --command 'inspect eval x' --allow-mock mockllm/model"
)

SUBMIT = [
    S("No issuer", "submit run.json"),
    S("A run that is missing", f"{_SUBMIT} --out out"),
    S("A run with missing members", f"{_SUBMIT} --out out", (_MINI,)),
    S("No identity, for files", f"{_SUBMIT} {_MOCK} --out out", (_MINI,)),
    S("A personal access token of an issuer in the place of the Hub's", f"{_SUBMIT} {_MOCK}",
      (_MINI, variables(HF_TOKEN="evi_pat_GPqJMpcleNAL_er0uFAbBgCkTSCkNc6MKS0kAJCqlIrOWJp19FkX32Zx1CPeep"))),
    S("A run whose framework is not granted", f"{_SUBMIT} {_MOCK} --out out",
      (_MINI, edit("run.json", '"inspect_ai": "0.3.285"', '"inspect_ai": "0.2.1"'), identity())),
    S("The same, in a rehearsal", f"{_SUBMIT} {_MOCK} --out out --dry-run",
      (_MINI, edit("run.json", '"inspect_ai": "0.3.285"', '"inspect_ai": "0.2.1"'), identity())),
    S("A rehearsal of what would be signed", f"{_SUBMIT} {_MOCK} --out out --dry-run", (_MINI, identity())),
    S("A run that is signed, into a folder", f"{_SUBMIT} {_MOCK} --out out", (_MINI, identity())),
    S("A server that is not an issuer", "submit run.json --issuer {other} --model-repo acme/open-model --out out "
      f"--metric accuracy=match/accuracy {_MOCK}", (_MINI, identity())),
    S("Before an evaluation, without options", "check --issuer {issuer}", (identity(),)),
    S("Before an evaluation, with a framework that is not granted",
      "check --issuer {issuer} --framework-name lm-eval --framework-version 0.4.9", (identity(),)),
    S("Before an evaluation, without an identity", "check --issuer {issuer}"),
    S("Before an evaluation, with a server that is not an issuer", "check --issuer {other}", (identity(),)),
    S("Before an evaluation, with a commit that is cut short", "check --issuer {issuer} --model-revision 9f3c2c9", (identity(),)),
]  # fmt: skip

AREAS = {
    "overview": OVERVIEW, "policy": POLICY, "explain": EXPLAIN, "plan": PLAN, "token-request": REQUEST,
    "submit": SUBMIT, "results": RESULTS, "verify": VERIFY, "operate": OPERATE, "serve": SERVE,
}  # fmt: skip
