"""The `issuer` command as people and machines call it: output, files, exit codes."""

from __future__ import annotations

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
from issuer.dev.sandbox import AUDIENCE, SAMPLE_RUN
from issuer.formats.jose import base64url_encode
from issuer.identity import pat
from tests.support.command import issuer
from tests.support.running import BODY, Running, running

REPO = "acme/open-model"
PATH = ".eval_results/gsm8k.yaml"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def write_entry(folder: Path, service: Running, text: str | None = None) -> Path:
    """Have an entry issued and write it where it belongs."""
    entry = text if text is not None else service.post(service.token()).json()["entry"]
    path = folder / ".eval_results" / "gsm8k.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(entry, "utf-8")
    return path


def verify(path: Path, service: Running, *more: object) -> subprocess.CompletedProcess[str]:
    by = ("--path", PATH, "--issuer", service.url, "--audience", AUDIENCE)
    return issuer("verify", path, "--repo", REPO, *by, *more)


# -- verify -------------------------------------------------------------------------------------------------------------


def test_verify_shows_every_check_and_exits_0(tmp_path: Path, service: Running) -> None:
    done = verify(write_entry(tmp_path, service), service)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  pass    ") == 9
    assert "verified" in done.stdout
    assert "\x1b" not in done.stdout, "nothing coloured where it is piped"


def test_verify_of_a_changed_digit_names_the_check_and_both_values_and_exits_1(
    tmp_path: Path, service: Running
) -> None:
    path = write_entry(tmp_path, service)
    path.write_text(path.read_text().replace("0.62437518", "0.92437518"))
    done = verify(path, service)
    assert done.returncode == 1
    assert "8  FAIL    metrics" in done.stdout
    assert "0.62437518" in done.stdout
    assert "0.92437518" in done.stdout


def test_verify_as_json_is_one_document_with_a_version(tmp_path: Path, service: Running) -> None:
    done = verify(write_entry(tmp_path, service), service, "--json")
    document = json.loads(done.stdout)
    assert (document["version"], document["reports"][0]["verdict"]) == (1, "verified")
    assert [check["number"] for check in document["reports"][0]["checks"]] == list(range(1, 12))


def test_a_file_without_a_token_is_no_answer_to_build_on(tmp_path: Path, service: Running) -> None:
    entry = service.post(service.token()).json()["entry"]
    bare = "\n".join(line for line in entry.splitlines() if "verify_token" not in line) + "\n"
    done = verify(write_entry(tmp_path, service, bare), service)
    assert (done.returncode, "unverified: no token" in done.stdout) == (1, True)
    both = write_entry(tmp_path, service, entry + bare)
    assert verify(both, service).returncode == 1
    assert verify(both, service, "--allow-unsigned").returncode == 0


@pytest.mark.parametrize(
    "text", ["- [", "dataset: {}\n", "- dataset: {id: 1}\n", "- {a: 1, a: 2}\n", "\ufeff- {}\n", ""]
)
def test_a_malformed_file_exits_3_with_its_place(tmp_path: Path, service: Running, text: str) -> None:
    path = write_entry(tmp_path, service, text)
    done = verify(path, service)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.match(rf"issuer: {re.escape(str(path))}:[12]:\d+: file\.", done.stderr)


def test_a_missing_file_exits_3(tmp_path: Path, service: Running) -> None:
    assert verify(tmp_path / "none.yaml", service).returncode == 3


def test_a_key_set_that_cannot_be_had_exits_4(tmp_path: Path, service: Running) -> None:
    path = write_entry(tmp_path, service)
    trust = tmp_path / "trust.yaml"
    trust.write_text(
        f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n  - issuer: "{service.url}"\n    keys: {{url: "http://127.0.0.1:1/jwks"}}\n'
    )
    done = issuer("verify", path, "--repo", REPO, "--trust", trust)
    assert done.returncode == 4
    assert "unknown" in done.stdout


def test_trust_files_hold_keys_inline_or_beside_them(tmp_path: Path, service: Running) -> None:
    path = write_entry(tmp_path, service)
    keys = service.http.get("/.well-known/jwks.json").text
    (tmp_path / "keys.json").write_text(keys)
    for source in ("{file: keys.json}", f"{{inline: {keys}}}"):
        trust = tmp_path / "trust.yaml"
        trust.write_text(
            f'version: 1\naudience: "{AUDIENCE}"\nissuers:\n  - issuer: "{service.url}"\n    frameworks: ["inspect-ai"]\n    keys: {source}\n'
        )
        done = issuer("verify", path, "--repo", REPO, "--trust", trust)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_audience_is_never_taken_from_the_token(tmp_path: Path, service: Running) -> None:
    path = write_entry(tmp_path, service)
    assert issuer("verify", path, "--repo", REPO, "--issuer", service.url).returncode == 2
    other = issuer("verify", path, "--repo", REPO, "--issuer", service.url, "--audience", "https://other.example")
    assert (other.returncode, "4  FAIL" in other.stdout) == (1, True)
    assert (
        issuer("verify", path, "--repo", "acme/other", "--issuer", service.url, "--audience", AUDIENCE).returncode == 1
    )


def test_a_file_is_judged_at_the_time_it_was_received(tmp_path: Path, service: Running) -> None:
    path = write_entry(tmp_path, service)
    late = verify(path, service, "--at", "2036-01-01T00:00:00Z")
    assert (late.returncode, "expired" in late.stdout) == (1, True)
    assert verify(path, service, "--at", "2036-01-01").returncode == 2


# -- token request ------------------------------------------------------------------------------------------------------


def test_token_request_takes_the_ambient_identity_of_the_ci(tmp_path: Path, service: Running) -> None:
    claims = tmp_path / "claims.json"
    claims.write_text(json.dumps(BODY))
    out = tmp_path / ".eval_results" / "gsm8k.yaml"
    for count in (1, 2):
        done = issuer(
            "token",
            "request",
            "--issuer",
            service.url,
            "--claims",
            claims,
            "--out",
            out,
            env=service.provider.environment,
        )
        assert done.returncode == 0, done.stderr
        assert "entry written" in done.stdout, count
        assert re.search(r"until 20[0-9T:-]+Z \(in (1 h|5\d min)", done.stdout), "a time as people read it"
    assert out.read_text().count("verify_token") == 1, "another token of the same entry"
    assert verify(out, service).returncode == 0


def test_token_request_puts_the_token_into_the_entry_that_was_built_without_one(
    tmp_path: Path, service: Running
) -> None:
    out, claims = write_entry(tmp_path, service), tmp_path / "claims.json"
    claims.write_text(json.dumps(BODY))
    built = [line for line in out.read_text().splitlines() if "verify_token" not in line]
    before = "\n".join(["# built", *built, "# end", ""])
    out.write_text(before)
    done = issuer(
        "token", "request", "--issuer", service.url, "--claims", claims, "--out", out, env=service.provider.environment
    )
    assert done.returncode == 0, done.stderr
    lines = out.read_text().splitlines()
    (added,) = (line for line in lines if "verify_token" in line)
    assert [line for line in lines if line != added] == before.splitlines()
    assert verify(out, service).returncode == 0


def test_token_request_reads_a_real_inspect_log_and_says_what_was_supplied(tmp_path: Path, service: Running) -> None:
    out = tmp_path / ".eval_results" / "gsm8k.yaml"
    done = issuer(
        "token", "request", "--issuer", service.url, "--inspect-log", SAMPLE_RUN, "--allow-mock", "mockllm/model", "--model-repo", REPO,
        "--model-revision", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321", "--command", "inspect eval gsm8k_mini.py",
        "--metric", "accuracy=match/accuracy", "--out", out, env=service.provider.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "model_repo: supplied" in done.stderr
    assert "benchmark_revision: run" in done.stderr
    assert verify(out, service).returncode == 0


def test_token_request_prefers_file_then_variable(tmp_path: Path, service: Running) -> None:
    file = tmp_path / "identity"
    file.write_text(service.token() + "\n")
    variable = {"ISSUER_ID_TOKEN": service.token(), **service.provider.environment}
    arguments = ("token", "request", "--issuer", service.url, "--claims", "-", "--json")
    stdin = json.dumps(BODY["claims"])
    first = issuer(*arguments, "--id-token-file", file, env={"ISSUER_ID_TOKEN": "not.a.token"}, stdin=stdin)
    second = issuer(*arguments, env=variable, stdin=stdin)
    again = issuer(*arguments, env=variable, stdin=stdin)
    jtis = [json.loads(done.stdout)["jti"] for done in (first, second, again)]
    assert jtis[0] != jtis[1] == jtis[2], "the variable's identity was used, and its repeat gave its token"


def test_a_refusal_exits_5_with_code_place_and_next_step(service: Running) -> None:
    wrong: dict[str, Any] = {"claims": {**BODY["claims"], "benchmark_repo": "not/granted"}}
    done = issuer(
        "token", "request", "--issuer", service.url, "--claims", "-", env={"ISSUER_ID_TOKEN": service.token()}, stdin=json.dumps(wrong)
    )  # fmt: skip
    assert done.returncode == 5
    assert "policy.benchmark" in done.stderr
    assert "/claims/benchmark_repo" in done.stderr


def test_a_refusal_shows_each_failed_check_with_what_is_expected(service: Running) -> None:
    wrong = {"claims": {**BODY["claims"], "framework": {"name": "helm", "version": "1"}, "benchmark_repo": "x/y"}}
    done = issuer(
        "token", "request", "--issuer", service.url, "--claims", "-", env={"ISSUER_ID_TOKEN": service.token()}, stdin=json.dumps(wrong)
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "")
    failed = [line for line in done.stderr.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 2
    assert "policy.framework /claims/framework/name" in failed[0]
    assert "policy.benchmark /claims/benchmark_repo" in failed[1]
    assert "      wanted: one of inspect-ai\n" in done.stderr
    assert "issuer: policy.framework" in done.stderr
    assert "  ok  " not in done.stderr


def dry_run(service: Running, sent: dict[str, Any], *more: object, **claims: Any) -> subprocess.CompletedProcess[str]:
    return issuer(
        "token", "request", "--issuer", service.url, "--claims", "-", "--dry-run", *more,
        env={"ISSUER_ID_TOKEN": service.token(**claims)}, stdin=json.dumps(sent),
    )  # fmt: skip


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("FAIL")]


def test_a_dry_run_names_what_passed_and_exits_0_where_the_answer_is_yes(service: Running) -> None:
    done = dry_run(service, BODY, repository_owner="renamed")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok    14 checks: mode, integration, event, ref, ")
    assert "FAIL" not in done.stdout
    assert "warning: the identity token's repository_owner" in done.stdout
    assert lines[-2] == f"inspect-ai/evaluate-main: a token for {AUDIENCE}, good for 1 h"
    assert lines[-1].startswith("policy sha256:")
    assert "unknown: whether the identity token is used up" in done.stdout
    assert "eyJ" not in done.stdout
    assert not [line for line in lines if line != line.rstrip()]
    assert sum(line.startswith("ok ") for line in dry_run(service, BODY, "--verbose").stdout.splitlines()) == 14


def test_a_dry_run_exits_5_where_the_answer_is_no_and_uses_nothing_up(service: Running) -> None:
    wrong = {**BODY, "claims": {**BODY["claims"], "benchmark_repo": "x/\u202e"}}
    malformed = dry_run(service, wrong)
    assert (malformed.returncode, "claims.invalid" in malformed.stderr) == (5, True)
    wrong["claims"]["benchmark_repo"] = "x/y"
    done = dry_run(service, wrong, ref="refs/heads/\u202eevil")
    assert done.returncode == 5
    (failed,) = failures(done)
    assert "      wanted: refs/heads/main\n" in done.stdout
    assert "benchmark" not in done.stdout, "its body is not read"
    assert "\u202e" not in done.stdout, "nothing that a terminal obeys"
    assert "inspect-ai/evaluate-main: refused, identity.claim_mismatch" in done.stdout
    (failed,) = failures(dry_run(service, wrong))
    assert "policy.benchmark /claims/benchmark_repo" in failed
    identity = service.token()
    environment = {"ISSUER_ID_TOKEN": identity}
    arguments = ("token", "request", "--issuer", service.url, "--claims", "-")
    assert issuer(*arguments, "--dry-run", env=environment, stdin=json.dumps(BODY)).returncode == 0
    assert issuer(*arguments, env=environment, stdin=json.dumps({**BODY, "details": {}})).returncode == 0


def test_a_long_value_is_told_whole_and_unbroken(service: Running) -> None:
    """A workflow's reference is nearly as wide as a terminal, and its branch is at the end."""
    sent, wrong = "example-org/inspect-evals/.github/workflows/evaluate.yml@refs/heads/other", BODY
    for done in (
        dry_run(service, wrong, workflow_ref=sent),
        issuer("token", "request", "--issuer", service.url, "--claims", "-", stdin=json.dumps(wrong),
               env={"ISSUER_ID_TOKEN": service.token(workflow_ref=sent)}),
    ):  # fmt: skip
        told = (done.stdout + done.stderr).splitlines()
        assert done.returncode == 5
        at = told.index("FAIL  identity.claim_mismatch identities.evaluate-main.require.workflow_ref")
        assert told[at + 1] == "      yours:  the identity token's workflow_ref is"
        assert told[at + 2].strip() == sent
        assert told[at + 3] == "      wanted: text of the form"
        assert told[at + 4].strip() == "example-org/inspect-evals/.github/workflows/*.yml@refs/heads/main"


def test_a_refusal_is_told_once(service: Running) -> None:
    done = dry_run(service, BODY, repository_id="99")
    assert done.stderr.count("repository_id=99") == 1


def test_a_number_that_cannot_be_sent_is_named_with_its_place(service: Running) -> None:
    wrong = {"claims": {**BODY["claims"], "metrics": [{"metric_id": "accuracy", "value": 1e300}]}}
    done = dry_run(service, wrong)
    assert done.returncode == 3
    assert "  at /claims/metrics/0/value\n" in done.stderr


def test_a_dry_run_as_json_is_the_issuer_s_answer_with_the_same_exit_code(service: Running) -> None:
    done = dry_run(service, BODY, "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "granted")
    done = dry_run(service, BODY, "--json", ref="refs/heads/x")
    assert (done.returncode, json.loads(done.stdout)["code"]) == (5, "identity.claim_mismatch")


def test_a_dry_run_of_a_stranger_exits_5_with_its_own_claims(service: Running) -> None:
    done = dry_run(service, BODY, repository_id="99")
    assert (done.returncode, done.stdout) == (5, "")
    assert "repository_id=99" in done.stderr
    assert dry_run(service, BODY, "--out", "x.yaml").returncode == 2


def test_without_an_identity_it_says_how_to_give_one(service: Running) -> None:
    done = issuer("token", "request", "--issuer", service.url, "--claims", "-", stdin="{}")
    assert (done.returncode, "--id-token-file" in done.stderr) == (6, True)


def test_an_issuer_on_plain_http_elsewhere_is_refused() -> None:
    done = issuer(
        "token",
        "request",
        "--issuer",
        "http://issuer.example",
        "--claims",
        "-",
        env={"ISSUER_ID_TOKEN": "x"},
        stdin="{}",
    )
    assert (done.returncode, "must be https" in done.stderr) == (6, True)


def test_an_existing_file_keeps_every_byte(tmp_path: Path, service: Running) -> None:
    out = tmp_path / ".eval_results" / "gsm8k.yaml"
    out.parent.mkdir()
    before = "# a comment\n- dataset: {id: openai/gsm8k, task_id: other}   # kept\n  metrics: [{metric_id: a, value: 1.50}]\n"
    out.write_text(before)
    arguments = ("token", "request", "--issuer", service.url, "--claims", "-", "--out", out)
    assert issuer(*arguments, env=service.provider.environment, stdin=json.dumps(BODY)).returncode == 0
    assert out.read_text().startswith(before)
    out.write_text("not: a list\n")
    assert issuer(*arguments, env=service.provider.environment, stdin=json.dumps(BODY)).returncode == 3
    assert out.read_text() == "not: a list\n"


# -- keys, and the overview ---------------------------------------------------------------------------------------------


GROUPS = ["keys", "log", "pat", "policy", "results", "token", "witness"]
EACH_BY_ITSELF = """
import os, sys
from issuer.cli import cli
for group in sys.argv[1:]:
    if os.fork() == 0:
        cli([group, "--help"], prog_name="issuer")
    assert os.wait()[1] == 0, group
"""


def test_each_group_of_commands_starts_by_itself() -> None:
    """In a process that has loaded nothing of another one."""
    done = subprocess.run(
        [sys.executable, "-c", EACH_BY_ITSELF, *GROUPS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for group in GROUPS:
        assert f"issuer {group}" in done.stdout, group


def test_the_overview_names_every_command() -> None:
    done = issuer("--help")
    for name in ("demo", "dev", "keys", "serve", "token", "verify", "witness"):
        assert f" {name} " in done.stdout
    assert issuer("nonsense").returncode == 2


# -- dev and demo -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_curl_that_dev_prints_works(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as out:
        env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
        child = subprocess.Popen(
            [sys.executable, "-m", "issuer", "dev"], stdout=out, stderr=subprocess.DEVNULL, env=env
        )
        try:
            printed, script, answer = "", "", ""
            for _ in range(600):
                printed = (tmp_path / "out").read_text()
                _, marker, script = printed.partition("TOKEN=$(")
                script = script.partition("\n\n")[0]
                if marker:
                    answer = subprocess.run(
                        ["bash", "-c", marker + script], capture_output=True, text=True, timeout=60, check=False
                    ).stdout
                if "verify_token" in answer:
                    break
                subprocess.run(["sleep", "0.1"], check=True)
            assert "verify_token" in answer, script
            folder = Path(printed.partition("folder   ")[2].split()[0])
            assert folder.is_dir()
        finally:
            child.terminate()
            assert child.wait(60) == 0
        assert not folder.exists(), "it leaves nothing behind"


def test_the_demo_keeps_nothing_beside_results_that_are_there(tmp_path: Path) -> None:
    (tmp_path / ".eval_results").mkdir()
    done = issuer("demo", "--keep", tmp_path)
    assert (done.returncode, done.stdout, "exists already: remove it" in done.stderr) == (2, "", True)


@pytest.mark.long
def test_what_the_demo_keeps_is_verified_by_the_command_that_it_prints(tmp_path: Path) -> None:
    done = issuer("demo", "--keep", tmp_path / "kept")
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words[:2] == ["issuer", "verify"]
    verified = issuer(*words[1:])
    assert verified.returncode == 0, verified.stdout + verified.stderr


# -- secrets that were put where they do not belong ----------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("command", "secret"), [*((place, PAT) for place in PLACES), *((PLACES[0], secret) for secret in TYPED)]
)
def test_what_was_typed_in_the_wrong_place_is_not_said_again(command: tuple[str, ...], secret: str) -> None:
    done = issuer(*(word.replace("{}", secret) for word in command))
    assert (done.returncode, done.stdout) == (2, "")
    shown = re.sub(r"[\s│╭╮╰╯─]", "", done.stderr)
    assert "Error" in shown
    runs = {secret[at : at + 12] for at in range(len(secret) - 11)}
    assert not [run for run in runs if run in shown], done.stderr


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("verfy",), "No such command 'verfy'"),
        (("verify", "a.yaml", "--requires-token-of-everybody-everywhere"), "--requires-token-of-everybody-everywhere"),
        (("pat", "list", "benchmarks/gsm8k/eval.yaml"), "unexpected extra argument (benchmarks/gsm8k/eval.yaml)"),
        (("pat", "create", "--account", "a", "--expires", "91"), "91 is not in the range 1<=x<=90"),
    ],
)
def test_an_honest_slip_is_said_again(command: tuple[str, ...], told: str) -> None:
    done = issuer(*command)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_a_credential_that_was_taken_for_a_file_is_not_said_again(tmp_path: Path) -> None:
    for arguments in (("verify", PAT, "--repo", REPO, "--trust", tmp_path / "t"), ("results", "lint", PAT)):
        done = issuer(*arguments)
        assert done.returncode == 3, done.stderr
        assert PAT[20:] not in done.stdout + done.stderr
