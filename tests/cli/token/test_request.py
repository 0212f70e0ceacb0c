"""`issuer token request` with every kind of credential: its requests, its output, and that it never prints a secret."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

import issuer.client as issuer_client
from issuer.dev.provider import LocalProvider
from issuer.io.http_client import ATTEMPTS, PATIENCE_S
from issuer.token.wire import IssuedToken
from tests.support import make
from tests.support.hostile_issuer import HostileIssuer, Lie
from tests.support.in_process import Done, run
from tests.support.leaks import assert_nothing_secret
from tests.support.oauth_server import CLIENT_SECRET, PREFIX
from tests.support.reusable import Issuers, create_pat, issuers, new_nonce
from tests.support.running import BODY, Running, running
from tests.support.runs import DATA, MODEL_COMMIT, edited
from tests.support.scripted import Scripted, hang_up, reply, stall
from tests.support.waiting import eventually

HUSH = "hush0123456789abcdef"
NOWHERE = "http://127.0.0.1:1"
OAUTH = ("--oauth", NOWHERE, "--client-id", "ci")
AT_ONCE = reply(503, Retry_After="0")
ACCESS = {"ISSUER_ACCESS_TOKEN": HUSH}
ANSWER = {
    **{name: name for name in IssuedToken.__struct_fields__ if name != "log"}, "entry": make.file_for(make.submission()),
    "issued_at": 1, "expires_at": 2, "warnings": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Iterator[Issuers]:
    with LocalProvider() as local, issuers(local) as known:
        yield known


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, known: Issuers) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("issuer")
    known.write(folder)
    with running(folder, known.local) as live:
        yield live
        live.process.terminate()
        assert live.process.wait(60) == 0
        live.secrets += [CLIENT_SECRET, *known.jwts.secrets, *known.opaques.secrets]
        assert_nothing_secret(live)


@pytest.fixture
def pat(live: Running) -> str:
    live.secrets.append(made := create_pat(live.folder))
    return made


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    path = tmp_path / "claims.json"
    path.write_text(json.dumps(BODY))
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / ".eval_results" / "gsm8k.yaml"


def write_secret(folder: Path, text: str) -> Path:
    path = folder / "credential"
    path.write_text(text, "utf-8")
    return path


def write_tool(folder: Path, name: str, script: str = "") -> dict[str, str]:
    """Write a CI's program; return the environment in which it is found first."""
    (folder / name).write_text(f"#!/bin/sh\n{script}")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def forms(secret: str, client_id: str = "ci:nightly/1") -> set[str]:
    """Return how a secret looks, as it is and as it goes over the wire."""
    quoted = quote(secret, safe="")
    pair = base64.b64encode(f"{quote(client_id, safe='')}:{quoted}".encode()).decode()
    return {secret, quoted, pair, base64.b64encode(secret.encode()).decode().rstrip("=")}


def request(
    url: str, *arguments: object, hides: str = HUSH, env: dict[str, str] | None = None, stdin: str = ""
) -> Done:
    """Run the command, and search its output for the secret."""
    done = run(["token", "request", "--issuer", url, *map(str, arguments)], env=env, stdin=stdin)
    for form in (PREFIX, *forms(hides)):
        assert form not in done.out + done.err
    return done


def member(done: Done, name: str) -> str:
    assert done.code == 0, done.err
    return str(json.loads(done.out)[name])


# -- every kind of credential, against the real service -------------------------------------------------------------------


def test_a_credential_comes_from_a_file_a_variable_or_standard_input(
    tmp_path: Path, live: Running, known: Issuers, claims: Path, pat: str
) -> None:
    server, secret = known.opaques, known.opaques.client_secret
    jwt, opaque = known.credential(live, "jwt"), known.credential(live, "opaque")
    first, second = live.token(), live.token()
    client = ("--client-id", server.client_id, "--oauth", server.issuer)
    direct = ("--client-id", server.client_id, "--token-endpoint", server.token_endpoint)
    file, found = tmp_path / "credential", []
    for wanted, hidden, options, env, stdin in (
        ("pat", pat, ("--access-token-file", file), {}, ""),
        ("pat", pat, (), {"ISSUER_ACCESS_TOKEN": pat}, ""),
        ("pat", pat, ("--access-token-file", "-"), {}, f"{pat}\r\n"),
        ("pat", pat, (), {"ISSUER_ID_TOKEN": pat}, ""),
        ("opaque", secret, (*direct, "--client-secret-file", file), {}, ""),
        ("opaque", secret, client, {"ISSUER_CLIENT_SECRET": secret}, ""),
        ("opaque", secret, (*client, "--client-secret-file", "-"), {}, secret),
        ("jwt", jwt, (), {"ISSUER_ID_TOKEN": jwt}, ""),  # its header has the type at+jwt
        ("jwt", jwt, (), {"ISSUER_ACCESS_TOKEN": jwt}, ""),
        ("opaque", opaque, ("--access-token-file", "-"), {}, opaque),
        ("ci", first, ("--id-token-file", file), {}, ""),
        ("ci", second, ("--id-token-file", "-"), {}, second),
        ("ci", live.provider.request_token, (), live.provider.environment, ""),
    ):
        if not stdin:
            write_secret(tmp_path, f"{hidden}\n")
        done = request(live.url, "--claims", claims, "--json", *options, env=env, stdin=stdin, hides=hidden)
        found.append(member(done, "jti"))
        assert member(done, "identity") == wanted, (options, env)
    assert len(set(found)) == len(found), "each command had its own nonce"


def test_a_nonce_gets_the_same_token_again_and_serves_no_other_request(
    live: Running, known: Issuers, claims: Path, pat: str
) -> None:
    client = ("--oauth", known.opaques.issuer, "--client-id", known.opaques.client_id)  # each time another access token
    for options, variable, secret in (
        ((), "ISSUER_ACCESS_TOKEN", pat),
        (client, "ISSUER_CLIENT_SECRET", CLIENT_SECRET),
    ):

        def ask(*more: object, stdin: str = "") -> Done:
            return request(live.url, *options, *more, env={variable: secret}, hides=secret, stdin=stdin)  # noqa: B023

        nonce = new_nonce()
        first, second = (ask("--nonce", nonce, "--claims", claims, "--json") for _ in range(2))
        assert (first.code, first.out) == (0, second.out)
        in_body = ask("--claims", "-", "--json", stdin=json.dumps({**BODY, "nonce": nonce}))
        assert member(in_body, "jti") == member(first, "jti")
        reused = ask("--nonce", nonce, "--claims", "-", stdin=json.dumps({**BODY, "details": {"notes": "another run"}}))
        assert (reused.code, "nonce.reused" in reused.err) == (5, True)
    refused = request(live.url, "--claims", claims, "--nonce", new_nonce(), env={"ISSUER_ID_TOKEN": live.token()})
    assert (refused.code, "identifies its request itself" in refused.err) == (2, True)


METRICS = [{"metric_id": "accuracy", "value": 0.5}, {"metric_id": "f1", "value": 0.25}]


def test_an_entry_has_today_s_form_if_the_primary_metric_is_known_else_one_warning(
    tmp_path: Path, live: Running, claims: Path, out: Path, pat: str
) -> None:
    two, definition = tmp_path / "two.json", tmp_path / "eval.yaml"
    two.write_text(json.dumps({**BODY, "claims": {**BODY["claims"], "metrics": METRICS}}))
    definition.write_text(make.BENCHMARK_TEXT.replace('"pass_at_5"', '"f1"'))
    unknown, target = "the primary metric is unknown", ("--profile", "target")
    for given, more, value, why in (
        (claims, (), BODY["claims"]["metrics"][0]["value"], ""), (claims, target, None, ""), (claims, (), None, "it exists, and keeps its form"),
        (two, (), None, unknown), (two, target, None, ""), (two, ("--primary", "f1"), 0.25, ""),
        (two, ("--benchmark", definition), 0.5, ""), (two, (), 0.5, ""), (two, ("--append",), None, unknown),
    ):  # fmt: skip
        done = request(live.url, "--claims", given, "--out", out, *more, env={"ISSUER_ACCESS_TOKEN": pat}, hides=pat)
        assert (done.code, done.err.count("cannot read")) == (0, bool(why)), done.err
        assert f"without `value`: {why}. Give --primary ID" in " ".join(done.err.split()) or not why
        last = yaml.safe_load(out.read_text())[-1]
        assert (last.get("value"), last.get("verifyToken")) == (value, last["verify_token"] if value else None)
    with pytest.raises(KeyError, match="value"):
        parse_eval_result_entries(yaml.safe_load(out.read_text()))


def test_a_dry_run_uses_up_no_nonce_and_the_written_entry_holds_no_secret(
    live: Running, claims: Path, out: Path, pat: str
) -> None:
    arguments, env = (live.url, "--claims", claims, "--nonce", new_nonce()), {"ISSUER_ACCESS_TOKEN": pat}
    dry = request(*arguments, "--dry-run", env=env, hides=pat)
    assert (dry.code, "unknown: whether the nonce is used up" in dry.out) == (0, True), dry.err
    assert request(*arguments, "--out", out, env=env, hides=pat).code == 0
    assert ("verify_token" in out.read_text(), pat in out.read_text()) == (True, False)


def test_a_refusal_of_a_real_server_shows_its_code_and_the_right_flag(
    live: Running, known: Issuers, claims: Path
) -> None:
    stranger, opaque, identity = create_pat(live.folder, "stranger"), known.credential(live, "opaque"), live.token()
    client = ("--oauth", known.opaques.issuer, "--client-id", known.opaques.client_id)
    for options, variable, secret, code, texts in (
        ((), "ISSUER_ID_TOKEN", opaque, 5, ("nonce.required", "--access-token-file")),
        ((), "ISSUER_ACCESS_TOKEN", identity, 5, ("nonce.invalid", "--id-token-file")),
        ((), "ISSUER_ACCESS_TOKEN", stranger, 5, ("integration.unknown",)),
        (client, "ISSUER_CLIENT_SECRET", HUSH, 6, ("invalid_client",)),
    ):
        done = request(live.url, "--claims", claims, *options, env={variable: secret}, hides=secret)
        assert (done.code, [text for text in texts if text not in done.err]) == (code, []), done.err


# -- the command line -----------------------------------------------------------------------------------------------------


def test_options_that_contradict_each_other_or_do_not_exist_are_usage_errors(claims: Path) -> None:
    page = (Path(issuer_client.__file__).parent / "README.md").read_text("utf-8")
    assert f"up to {ATTEMPTS} times within {PATIENCE_S / 60:g} minutes" in " ".join(page.split())
    for arguments in (
        ("--claims", "-", "--access-token-file", "-"), ("--claims", "-", "--id-token-file", "-"),
        ("--claims", "-", *OAUTH, "--client-secret-file", "-"), ("--access-token-file", "-", "--id-token-file", "-"),
        ("--access-token-file", "x", *OAUTH), (*OAUTH, "--token-endpoint", NOWHERE), ("--oauth", NOWHERE),
        ("--client-id", "ci"), ("--client-secret-file", "-"), ("--access-token-file", "-", "--client-secret-file", "-"),
        ("--nonce", "short"), ("--nonce", "a" * 21 + "="), ("--client-secret", HUSH), (f"--access-token={HUSH}",),
        ("--model-repo", "a/b"), ("--allow-mock", "x"), ("--scale", "100"), ("--profile", "hub"),
    ):  # fmt: skip
        given = arguments if "--claims" in arguments else ("--claims", claims, *arguments)
        done = request(NOWHERE, *given, stdin=HUSH)
        assert (done.code, "Usage: " in done.err) == (2, True), arguments


def test_a_place_without_a_usable_secret_is_refused_by_its_name(tmp_path: Path, claims: Path) -> None:
    hush = HUSH.encode()
    for number, (flag, content) in enumerate((
        ("--id-token-file", hush + b"\n" + hush),
        ("--id-token-file", None),
        ("--access-token-file", b"\n"),
        ("--access-token-file", hush + b"\x00"),
        ("--access-token-file", b"\xff" + hush),
        ("--access-token-file", hush * 1000),  # larger than any token
        ("--access-token-file", hush * 5000),  # larger than is read
        ("--client-secret-file", b" \n"),
        ("--client-secret-file", hush + b"\n" + hush),
        ("--client-secret-file", None),
        ("--client-secret-file", hush * 5000),
        ("--client-secret-file", "a folder"),
    )):  # fmt: skip
        (tmp_path / str(number)).mkdir()
        file = tmp_path / str(number) / HUSH  # as if the user gave the secret itself in place of its file
        if isinstance(content, bytes):
            file.write_bytes(content)
        elif content:
            file.mkdir()
        done = request(NOWHERE, "--claims", claims, flag, file, *OAUTH * (flag == "--client-secret-file"))
        assert (done.code, done.out) == (6, ""), (flag, content)
        assert flag in done.err or "the client secret is empty, too long, or not one line" in done.err
    done = request(NOWHERE, "--claims", claims, env={"ISSUER_ID_TOKEN": f"{HUSH}\n{HUSH}"})
    assert (done.code, "$ISSUER_ID_TOKEN" in done.err) == (6, True)


def test_a_closed_standard_input_causes_no_traceback(claims: Path) -> None:
    command = [sys.executable, "-m", "issuer", "token", "request", "--issuer", NOWHERE, "--claims", str(claims)]
    closed = ["bash", "-c", '"$@" <&-', "bash", *command, "--access-token-file", "-"]
    done = subprocess.run(closed, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (6, False)


def test_two_variables_at_once_are_refused_and_a_flag_overrides_both(
    tmp_path: Path, live: Running, claims: Path, pat: str
) -> None:
    both = {"ISSUER_ID_TOKEN": HUSH, **ACCESS}
    done = request(live.url, "--claims", claims, env=both)
    assert (done.code, "are both set" in done.err) == (6, True)
    file = write_secret(tmp_path, pat)
    assert request(live.url, "--claims", claims, "--access-token-file", file, env=both, hides=pat).code == 0


def test_no_process_has_a_secret_in_its_arguments(claims: Path) -> None:
    """While a request is under way, the machine's list of processes does not show it."""
    command = [sys.executable, "-m", "issuer", "token", "request", "--issuer", NOWHERE, "--claims", str(claims)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Scripted([stall]) as server:
        more = ("--token-endpoint", server.url, "--client-id", "ci", "--client-secret-file", "-")
        with subprocess.Popen([*command, *more], **pipes) as child:  # type: ignore[call-overload]
            child.stdin.write(HUSH.encode())
            child.stdin.close()
            try:
                eventually(lambda: server.seen)
                found = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
            finally:
                child.kill()
    assert [line for line in found if b"--client-secret-file" in line]
    assert not [line for line in found if any(form.encode() in line for form in forms(HUSH, "ci"))]


# -- servers that misbehave -----------------------------------------------------------------------------------------------

ECHOES: list[Any] = [
    {"error": HUSH, "error_description": HUSH, "code": HUSH, "detail": HUSH},
    {"error": "invalid_client", "error_description": f"wrong: {sorted(forms(HUSH, 'ci'))}"},
    {"code": "identity.credential_unknown", "errors": [{"pointer": HUSH, "detail": HUSH}]},
    {"access_token": f"{HUSH} {HUSH}", "token_type": "Bearer"},
    {"access_token": HUSH, "token_type": HUSH},
    b"{" + HUSH.encode(),
]


def test_a_credential_that_an_issuer_repeats_is_not_printed(claims: Path, out: Path) -> None:
    answers = [*ECHOES, {**ANSWER, "entry": HUSH}, {**ANSWER, "warnings": [HUSH]}]
    for body, status, options in (
        *((body, 201, ("--json",)) for body in answers), *((body, 401, ()) for body in ECHOES[:3]),
        (ECHOES[0], 200, ("--dry-run",)), (answers[-2], 201, ("--out", out)), (answers[-2], 201, ()),
    ):  # fmt: skip
        with HostileIssuer(answers=[reply(status, body, Location=f"/{HUSH}")]) as server:
            done = request(server.url, "--claims", claims, *options, env=ACCESS)
        assert (done.code in {4, 5}, done.out, out.parent.exists()) == (True, "", False), (body, status)


def test_an_issuer_s_answer_cannot_write_on_the_terminal(out: Path, claims: Path) -> None:
    drawn = "\x1b[2K\rverified"
    of_another_run = {"ISSUER_RUN_MODEL_REPO": "a/b"}  # it is ignored beside finished claims
    with HostileIssuer(lambda good: {**good.answer(), "identity": drawn, "warnings": [drawn]}) as server:
        done = request(server.url, "--claims", claims, "--out", out, env={**of_another_run, **ACCESS})
        shown = request(server.url, "--claims", claims, "--json", env=ACCESS)
    assert (done.code, out.exists(), "warning: " in done.err) == (0, True, True), done.err
    assert json.loads(shown.out)["identity"] == drawn
    assert "".join((done.out, done.err, shown.out, shown.err)).replace("\n", "").isprintable()


def test_an_answer_that_does_not_verify_ends_with_1_and_writes_no_file(out: Path, claims: Path) -> None:
    lies: list[Lie] = [
        lambda good: good.answer(make.submission(task_id="other")),
        lambda good: {**good.answer(), "jti": "\x1b[2K\x9b2Jverified"},
        lambda good: {**good.answer(), "entry": "- \u202e\x9b2J"},
    ]
    for lie in lies:
        with HostileIssuer(lie) as server:
            for more in (("--out", out), ("--json",), ()):
                done = request(server.url, "--claims", claims, *more, env=ACCESS)
                assert (done.code, done.out, out.parent.exists()) == (1, "", False)
                assert "answer.unverified" in done.err
                assert done.err.replace("\n", "").isprintable()


def test_a_place_that_cannot_take_the_entry_is_refused_before_any_request(tmp_path: Path, claims: Path) -> None:
    """No identity is fetched either."""
    path, link, definition = (
        ".eval_results/gsm8k.yaml",
        "a link",
        "name: x\nmetrics: [{{id: {}}}]\ntasks: [{{id: {}}}]\n",
    )
    cases = [
        (path, "", definition.format("other", "gsm8k"), "both", 3, "result.undefined"),
        (path, "", definition.format("accuracy", "other"), "target", 3, "result.undefined"),
        (path, "- dataset: {id: a/b}\n" * 1000, "", "", 3, "file."),
        (path, "- [", "", "", 3, "file.syntax"),
        (path, link, "", "", 6, "not followed"),
        ("gsm8k.yaml", "", "", "", 3, path),
        (".eval_results/gsm8k.yml", "", "", "", 3, "result.file_name"),
    ]
    with HostileIssuer() as server:
        for number, (name, existing, benchmark, profile, code, text) in enumerate(cases):
            out, eval_yaml = tmp_path / str(number) / name, tmp_path / f"{number}.yaml"
            if existing:
                out.parent.mkdir(parents=True)
                out.symlink_to("other.yaml") if existing == link else out.write_text(existing)
            eval_yaml.write_text(benchmark)
            given = ("--benchmark", eval_yaml, "--profile", profile) if benchmark else ()
            done = request(server.url, "--claims", claims, "--out", out, *given, env=github(server.url))
            assert (done.code, done.out, text in done.err) == (code, "", True), (number, done.err)
            assert (out.read_text() if out.is_file() else "") == (existing if existing != link else "")
        assert server.seen == []


def test_a_run_is_refused_and_accepted_by_the_same_flags_as_by_build(tmp_path: Path) -> None:
    """The refusal of a partial run of a mock model names both flags at once, before any request."""
    log = tmp_path / "log.json"
    log.write_bytes(edited((DATA / "inspect_two_scorers.json").read_bytes(), "/eval/config/limit", 4))
    model = ("--model-repo", "acme/open-model", "--model-revision", MODEL_COMMIT, "--command", "x")
    options = ("--inspect-log", log, *model, "--metric", "accuracy=match/accuracy")
    with HostileIssuer() as server:
        refused = request(server.url, *options, env=github(server.url))
        assert (refused.code, server.seen) == (3, [])
        assert ("--allow-mock" in refused.err, "--allow-partial" in refused.err) == (True, True)
        done = request(server.url, *options, "--allow-mock", "mockllm/model", "--allow-partial", env=ACCESS)
    assert (done.code, "Partial run: " in done.out) == (0, True), done.err


def test_a_broken_connection_leaves_the_request_undecided(claims: Path) -> None:
    for fault in (hang_up, b"HTTP/1.1 " + HUSH.encode() + b"\r\n\r\n"):
        with HostileIssuer(answers=[AT_ONCE, AT_ONCE, AT_ONCE, fault]) as server:
            done = request(server.url, "--claims", claims, env=ACCESS)
        assert (done.code, done.out, len(server.posted)) == (4, "", 4)
        (nonce,) = {json.loads(seen.body)["nonce"] for seen in server.posted}
        assert f"--nonce {nonce}" in done.err, "with it the user repeats the same request"
    for by_client in (False, True):
        with HostileIssuer(answers=[AT_ONCE, AT_ONCE, AT_ONCE, hang_up]) as server:
            options = ("--token-endpoint", server.url, "--client-id", "ci") * by_client
            env = {"ISSUER_CLIENT_SECRET" if by_client else "ISSUER_ID_TOKEN": HUSH}
            done = request(server.url, "--claims", claims, *options, env=env)
        assert (done.code, len(server.posted), "--nonce" in done.err) == (4, 4, False)


# -- the CI's own identity ------------------------------------------------------------------------------------------------


def github(url: str, request_token: str = HUSH) -> dict[str, str]:
    own = {"URL": f"{url}/token", "TOKEN": request_token}
    return {"GITHUB_ACTIONS": "true", **{f"ACTIONS_ID_TOKEN_REQUEST_{name}": value for name, value in own.items()}}


def test_a_ci_without_a_usable_identity_is_named_with_the_reason_and_no_secret(tmp_path: Path, claims: Path) -> None:
    for status, body in ((200, {"value": HUSH}), (200, [HUSH]), (401, HUSH.encode()), (500, b"\xff" + HUSH.encode())):
        with Scripted([reply(status, body)]) as server:
            done = request(NOWHERE, "--claims", claims, env=github(server.url))
        assert (done.code, "the CI's identity is unavailable" in done.err) == (6, True)
    assert request(NOWHERE, "--claims", claims, env=github(NOWHERE, f"{HUSH}\n{HUSH}")).code == 6
    env = {"BUILDKITE": "true", **write_tool(tmp_path, "buildkite-agent", f"echo {HUSH}\nexit 1\n")}
    done = request(NOWHERE, "--claims", claims, env=env)
    assert (done.code, "is unavailable: Buildkite: `buildkite-agent` ends with 1" in done.err) == (6, True)
    (tmp_path / "empty").mkdir()
    write_tool(tmp_path, "circleci")
    for env, text in (
        ({"CIRCLECI": "true", "PATH": str(tmp_path / "empty")}, "CircleCI: `circleci` cannot be started"),
        ({"CIRCLECI": "true", "PATH": str(tmp_path)}, "CircleCI: `circleci` prints no token"),
        ({"GITLAB_CI": "true"}, "$HTTPS___ISSUER_EXAMPLE_ID_TOKEN is not set. Add to the job:\n    id_tokens:\n"),
    ):
        done = request("https://issuer.example", "--claims", claims, env=env)
        assert (done.code, text in done.err) == (6, True), done.err


def test_a_ci_s_tool_gets_none_of_our_secrets(tmp_path: Path, live: Running, claims: Path) -> None:
    for ci, tool, wanted in (
        ("BUILDKITE", "buildkite-agent", "oidc request-token --audience {}"),
        ("CIRCLECI", "circleci", 'run oidc get --claims {{"aud": "{}"}} --root-issuer'),
    ):
        script = f'echo "$*" > {tmp_path}/arguments\nenv > {tmp_path}/env\necho aaaa.bbbb.cccc\n'
        own = dict.fromkeys(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ISSUER_CLIENT_SECRET"), HUSH)
        env = {ci: "true", "AGENT_TOKEN": "its own", **own, **write_tool(tmp_path, tool, script)}
        assert request(live.url, "--claims", claims, env=env).code == 5, "the printed identity is malformed"
        assert (tmp_path / "arguments").read_text() == f"{wanted.format(live.url)}\n"
        given = (tmp_path / "env").read_text()
        assert (HUSH in given, f"{ci}=true\n" in given, "AGENT_TOKEN=its own\n" in given) == (False, True, True)
