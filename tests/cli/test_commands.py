"""The `issuer` command as people and machines call it: output, files, exit codes."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.formats.jose import base64url_encode
from issuer.identity import pat
from tests.support.in_process import Done, run
from tests.support.running import BODY, Running, running
from tests.support.waiting import ask_until

REPO = "acme/open-model"
PATH = ".eval_results/gsm8k.yaml"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def issuer(*arguments: object, env: dict[str, str] | None = None, stdin: str = "") -> Done:
    return run(list(map(str, arguments)), env=env, stdin=stdin)


def write_entry(folder: Path, service: Running) -> Path:
    """Have an entry issued and write it to its place."""
    path = folder / PATH
    path.parent.mkdir(exist_ok=True)
    path.write_text(service.post(service.token()).json()["entry"], "utf-8")
    return path


def verify(path: Path, service: Running, *more: object, audience: str = AUDIENCE, repo: str = REPO) -> Done:
    return issuer("verify", path, "--repo", repo, "--issuer", service.url, "--audience", audience, *more)


def request(service: Running, sent: Any, *more: object, env: dict[str, str] | None = None, **claims: Any) -> Done:
    """Request a token for this body; the identity is in a variable, unless `env` has another."""
    identity = {"ISSUER_ID_TOKEN": service.token(**claims)} if env is None else env
    arguments = ("token", "request", "--issuer", service.url, "--claims", "-", *more)
    return issuer(*arguments, env=identity, stdin=json.dumps(sent))


def failures(done: Done) -> list[str]:
    return [line for line in (done.out + done.err).splitlines() if line.startswith("FAIL")]


# -- verify -------------------------------------------------------------------------------------------------------------


def test_verify_judges_an_entry_that_a_real_service_issued(tmp_path: Path, service: Running) -> None:
    path = write_entry(tmp_path, service)
    done = verify(path, service)
    assert (done.code, done.out.count("  pass    "), "verified" in done.out) == (0, 9, True), done
    assert "\x1b" not in done.out, "no colours in a pipe"
    document = json.loads(verify(path, service, "--json").out)
    assert (document["version"], document["reports"][0]["verdict"]) == (1, "verified")
    assert [check["number"] for check in document["reports"][0]["checks"]] == list(range(1, 12))
    assert issuer("verify", path, "--repo", REPO, "--issuer", service.url).code == 2, (
        "no audience is taken from the token"
    )
    other = verify(path, service, audience="https://other.example")
    assert (other.code, "4  FAIL" in other.out) == (1, True)
    assert verify(path, service, repo="acme/other").code == 1
    late = verify(path, service, "--at", "2036-01-01T00:00:00Z")
    assert (late.code, "expired" in late.out) == (1, True)
    assert verify(path, service, "--at", "2036-01-01").code == 2
    path.write_text(path.read_text().replace("0.62437518", "0.92437518"))
    done = verify(path, service)
    assert (done.code, "8  FAIL    metrics" in done.out) == (1, True)
    assert ("0.62437518" in done.out, "0.92437518" in done.out) == (True, True)


# -- token request ------------------------------------------------------------------------------------------------------


def test_token_request_puts_the_token_into_an_entry_built_without_one(tmp_path: Path, service: Running) -> None:
    out = write_entry(tmp_path, service)
    built = [line for line in out.read_text().splitlines() if "verify_token" not in line]
    other = "- dataset: {id: openai/gsm8k, task_id: other}   # kept\n  metrics: [{metric_id: a, value: 1.50}]"
    before = "\n".join(["# built", *built, other, "# end", ""])
    out.write_text(before)
    for _ in range(2):  # the second token replaces the first
        done = request(service, BODY, "--out", out, env=service.provider.environment)
        assert (done.code, "entry written" in done.out) == (0, True), done
        assert re.search(r"until 20[0-9T:-]+Z \(in (1 h|5\d min)", done.out)
        lines = out.read_text().splitlines()
        (added,) = (line for line in lines if "verify_token" in line)
        assert [line for line in lines if line != added] == before.splitlines()
    assert verify(out, service, "--allow-unsigned").code == 0


def test_a_refusal_shows_each_failed_check_with_the_wanted_value(service: Running) -> None:
    wrong = {"claims": {**BODY["claims"], "framework": {"name": "helm", "version": "1"}, "benchmark_repo": "x/y"}}
    done = request(service, wrong)
    assert (done.code, done.out) == (5, "")
    assert [line.partition("  ")[2] for line in failures(done)] == [
        "policy.framework /claims/framework/name", "policy.benchmark /claims/benchmark_repo",
    ]  # fmt: skip
    assert "      wanted: one of inspect-ai\n" in done.err
    assert ("issuer: policy.framework" in done.err, "  ok  " in done.err) == (True, False)
    # A workflow's reference is nearly as wide as a terminal, and its branch is at the end: it is shown whole.
    sent = "example-org/inspect-evals/.github/workflows/evaluate.yml@refs/heads/other"
    lines = request(service, BODY, workflow_ref=sent).err.splitlines()
    at = lines.index("FAIL  identity.claim_mismatch identities.evaluate-main.require.workflow_ref")
    wanted = "example-org/inspect-evals/.github/workflows/*.yml@refs/heads/main"
    assert [line.strip() for line in lines[at + 1 : at + 3]] == [
        f"yours:  the identity token's workflow_ref is {sent}", f"wanted: text of the form {wanted}",
    ]  # fmt: skip


def test_a_request_prefers_the_file_of_an_identity_then_the_variable(tmp_path: Path, service: Running) -> None:
    file = tmp_path / "identity"
    file.write_text(service.token() + "\n")
    variable = {"ISSUER_ID_TOKEN": service.token(), **service.provider.environment}
    first = request(service, BODY, "--json", "--id-token-file", file, env={"ISSUER_ID_TOKEN": "not.a.token"})
    second, again = (request(service, BODY, "--json", env=variable) for _ in range(2))
    jtis = [json.loads(done.out)["jti"] for done in (first, second, again)]
    assert jtis[0] != jtis[1] == jtis[2], "the variable's identity was used, and its repeat gave its token"


def test_a_granted_dry_run_names_the_passed_checks(service: Running) -> None:
    done = request(service, BODY, "--dry-run", repository_owner="renamed")
    lines = done.out.splitlines()
    assert (done.code, failures(done), "eyJ" in done.out) == (0, [], False), done
    assert lines[0].startswith("ok    14 checks: mode, integration, event, ref, ")
    assert "warning: the identity token's repository_owner" in done.out
    assert lines[-2] == f"inspect-ai/evaluate-main: a token for {AUDIENCE}, good for 1 h"
    assert lines[-1].startswith("policy sha256:")
    assert "unknown: whether the identity token is used up" in done.out
    assert not [line for line in lines if line != line.rstrip()]
    verbose = request(service, BODY, "--dry-run", "--verbose").out.splitlines()
    assert sum(line.startswith("ok ") for line in verbose) == 14
    assert json.loads(request(service, BODY, "--dry-run", "--json").out)["verdict"] == "granted"
    assert request(service, BODY, "--dry-run", "--out", "x.yaml").code == 2


def test_a_refused_dry_run_exits_5_and_like_one_that_cannot_be_sent_uses_nothing(service: Running) -> None:
    def wrong(benchmark: str) -> dict[str, Any]:
        return {**BODY, "claims": {**BODY["claims"], "benchmark_repo": benchmark}}

    malformed = request(service, wrong("x/\u202e"), "--dry-run")
    assert (malformed.code, "claims.invalid" in malformed.err) == (5, True)
    done = request(service, wrong("x/y"), "--dry-run", ref="refs/heads/\u202eevil")
    assert (done.code, len(failures(done)), "      wanted: refs/heads/main\n" in done.out) == (5, 1, True)
    assert ("benchmark" in done.out, "\u202e" in done.out) == (False, False), "the service does not read its body"
    assert "inspect-ai/evaluate-main: refused, identity.claim_mismatch" in done.out
    (failed,) = failures(request(service, wrong("x/y"), "--dry-run"))
    assert "policy.benchmark /claims/benchmark_repo" in failed
    as_json = request(service, BODY, "--dry-run", "--json", ref="refs/heads/x")
    assert (as_json.code, json.loads(as_json.out)["code"]) == (5, "identity.claim_mismatch")
    stranger = request(service, BODY, "--dry-run", repository_id="99")
    assert (stranger.code, stranger.out, stranger.err.count("repository_id=99")) == (5, "", 1)
    identity = {"ISSUER_ID_TOKEN": service.token()}
    assert request(service, BODY, "--dry-run", env=identity).code == 0
    assert request(service, {**BODY, "details": {}}, env=identity).code == 0
    # A request that cannot be sent is refused with the next step.
    large = {"claims": {**BODY["claims"], "metrics": [{"metric_id": "accuracy", "value": 1e300}]}}
    done = request(service, large, "--dry-run")
    assert (done.code, "  at /claims/metrics/0/value\n" in done.err) == (3, True)
    done = request(service, {}, env={})
    assert (done.code, "--id-token-file" in done.err) == (6, True)
    plain = ("--issuer", "http://issuer.example", "--claims", "-")
    done = issuer("token", "request", *plain, env={"ISSUER_ID_TOKEN": "x"}, stdin="{}")
    assert (done.code, "must be https" in done.err) == (6, True)


# -- groups of commands -------------------------------------------------------------------------------------------------


def test_each_group_of_commands_starts_by_itself() -> None:
    """In a process that has loaded no other group."""
    groups = ["keys", "log", "pat", "policy", "results", "token", "witness"]
    each_by_itself = """
import os, sys
from issuer.cli import cli
for group in sys.argv[1:]:
    if os.fork() == 0:
        cli([group, "--help"], prog_name="issuer")
    assert os.wait()[1] == 0, group
"""
    command = [sys.executable, "-c", each_by_itself, *groups]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [group for group in groups if f"issuer {group}" not in done.stdout] == []


# -- dev and demo -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_curl_that_dev_prints_works(tmp_path: Path) -> None:
    def answer() -> str:
        _, marker, script = (tmp_path / "out").read_text().partition("TOKEN=$(")
        command = ["bash", "-c", marker + script.partition("\n\n")[0]]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout

    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with (tmp_path / "out").open("w+") as out:
        command = [sys.executable, "-m", "issuer", "dev"]
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env)
    try:
        ask_until(answer, lambda text: "verify_token" in text)
        folder = Path((tmp_path / "out").read_text().partition("folder   ")[2].split()[0])
        assert folder.is_dir()
    finally:
        child.terminate()
        assert child.wait(60) == 0
    assert not folder.exists()


def test_the_demo_replaces_no_results(tmp_path: Path) -> None:
    (tmp_path / ".eval_results").mkdir()
    done = issuer("demo", "--keep", tmp_path)
    assert (done.code, done.out, "exists already: remove it" in done.err) == (2, "", True)


@pytest.mark.long
def test_the_command_that_the_demo_prints_verifies_its_results(tmp_path: Path) -> None:
    done = issuer("demo", "--keep", tmp_path / "kept")
    assert done.code == 0, done.err
    words = shlex.split(done.out.splitlines()[-1])
    assert words[:2] == ["issuer", "verify"]
    verified = issuer(*words[1:])
    assert verified.code == 0, verified


# -- secrets in the wrong place -------------------------------------------------------------------------------------------

PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))
JWT = ".".join(
    base64url_encode(part) for part in (b'{"alg":"EdDSA","typ":"JWT"}', b'{"sub":"x","aud":"y"}', bytes(range(64)))
)
TYPED = [JWT, "hf_" + "aB3" * 12, "0123456789abcdef" * 2, f"xx{PAT}", base64url_encode(bytes(range(200, 248)))]
PLACES: list[tuple[str, ...]] = [
    ("token", "request", "--issuer", "https://issuer.example", "--claims", "c.json", "{}"),
    ("token", "request", "--access-token", "{}"),
    ("token", "{}"),
    ("{}",),
    ("--{}",),
    ("pat", "list", "{}"),
    ("pat", "create", "--account", "a", "--expires", "{}"),
    ("verify", "a.yaml", "{}"),
    ("policy", "explain", "policies", "--identity-token-file=x", "--at=1", "--", "{}"),
]


def test_a_secret_typed_in_the_wrong_place_is_not_repeated_and_a_typing_error_is(tmp_path: Path) -> None:
    for command, secret in [*((place, PAT) for place in PLACES), *((PLACES[0], secret) for secret in TYPED)]:
        done = issuer(*(word.replace("{}", secret) for word in command))
        shown = re.sub(r"[\s│╭╮╰╯─]", "", done.err)
        assert (done.code, done.out, "Error" in shown) == (2, "", True), command
        parts = {secret[at : at + 12] for at in range(len(secret) - 11)}
        assert not [part for part in parts if part in shown], done.err
    for arguments in (("verify", PAT, "--repo", REPO, "--trust", tmp_path / "t"), ("results", "lint", PAT)):
        done = issuer(*arguments)
        assert (done.code, PAT[20:] in done.out + done.err) == (3, False), "it was given in place of a file"
    for command, text in (
        (("verfy",), "No such command 'verfy'"),
        (("verify", "a.yaml", "--requires-token-of-everybody-everywhere"), "--requires-token-of-everybody-everywhere"),
        (("pat", "list", "benchmarks/gsm8k/eval.yaml"), "unexpected extra argument (benchmarks/gsm8k/eval.yaml)"),
        (("pat", "create", "--account", "a", "--expires", "91"), "91 is not in the range 1<=x<=90"),
    ):
        done = issuer(*command)
        assert (done.code, text in " ".join(done.err.replace("│", " ").split())) == (2, True), done.err


def test_policy_plan_reads_the_audit_of_a_service_that_ran(service: Running) -> None:
    for token in (service.token(), service.token(ref="refs/heads/dev"), service.token(repository_id="1")):
        service.post(token)
    policies, audit = service.folder / "policies", service.settings.audit_file
    done = issuer("policy", "plan", policies, policies, "--audit", audit, "--url", service.url, "--development")
    assert (done.code, done.err) == (0, "")
    same = r"\d+ decisions: (\d+) unchanged, 0 would be refused, 0 would be granted, 0 cannot tell\n"
    found = re.match(same, done.out)
    assert found, done.out
    assert int(found[1]) >= 3
