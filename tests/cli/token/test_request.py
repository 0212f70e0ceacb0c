"""`issuer token request` with every kind of credential: what it sends, what it says, and that it never says a secret."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from click.testing import CliRunner
from huggingface_hub import parse_eval_result_entries

import issuer.client as issuer_client
from issuer.cli import cli
from issuer.dev.provider import LocalProvider
from issuer.io.http_client import ATTEMPTS, PATIENCE_S
from issuer.results.entry import read_entries
from issuer.token.wire import IssuedToken
from tests.support import make
from tests.support.command import issuer
from tests.support.hostile_issuer import HostileIssuer, Lie
from tests.support.leaks import assert_nothing_secret
from tests.support.oauth_server import CLIENT_SECRET, PREFIX
from tests.support.reusable import Issuers, create_pat, issuers, new_nonce
from tests.support.running import BODY, Running, running
from tests.support.runs import DATA, MODEL_COMMIT, edited
from tests.support.scripted import Action, Scripted, hang_up, reply, stall

HUSH = "hush0123456789abcdef"
NOWHERE = "http://127.0.0.1:1"
ANSWER = {
    **{name: name for name in IssuedToken.__struct_fields__ if name != "log"}, "entry": make.file_for(make.submission()),
    "issued_at": 1, "expires_at": 2, "warnings": [],
}  # fmt: skip
Done = subprocess.CompletedProcess[str]


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


def put(folder: Path, text: str) -> Path:
    path = folder / "credential"
    path.write_text(text, "utf-8")
    return path


def forms(secret: str, client_id: str = "ci:nightly/1") -> set[str]:
    """Return how a secret looks, as it is and as it goes over the wire."""
    quoted = quote(secret, safe="")
    pair = base64.b64encode(f"{quote(client_id, safe='')}:{quoted}".encode()).decode()
    return {secret, quoted, pair, base64.b64encode(secret.encode()).decode().rstrip("=")}


def request(
    url: str, *arguments: object, hides: str = HUSH, env: dict[str, str] | None = None, stdin: str = ""
) -> Done:
    """Run the command, and search all that it wrote for the secret; it must not fail in an unforeseen way."""
    done = issuer("token", "request", "--issuer", url, *arguments, env=env, stdin=stdin)
    written = done.stdout + done.stderr
    assert "Traceback" not in written, written
    assert PREFIX not in written, "an access token was written"
    for form in forms(hides):
        assert form not in written
    return done


def jti(done: Done) -> str:
    assert done.returncode == 0, done.stderr
    found: str = json.loads(done.stdout)["jti"]
    return found


def caller(done: Done) -> str:
    assert done.returncode == 0, done.stderr
    found: str = json.loads(done.stdout)["identity"]
    return found


# -- every kind of credential, against the real service -------------------------------------------------------------------


def test_a_personal_access_token_comes_from_a_file_the_environment_or_standard_input(
    tmp_path: Path, live: Running, claims: Path, pat: str
) -> None:
    arguments = (live.url, "--claims", claims, "--json")
    done = [
        request(*arguments, "--access-token-file", put(tmp_path, f"{pat}\n"), hides=pat),
        request(*arguments, env={"ISSUER_ACCESS_TOKEN": pat}, hides=pat),
        request(*arguments, "--access-token-file", "-", stdin=f"{pat}\r\n", hides=pat),
        request(*arguments, env={"ISSUER_ID_TOKEN": pat}, hides=pat),
    ]
    assert [caller(one) for one in done] == ["pat"] * 4
    assert len({jti(one) for one in done}) == 4, "each command had a nonce of its own"


def test_pat_create_can_be_piped_into_a_request(live: Running, claims: Path) -> None:
    command = f"""{sys.executable} -m issuer pat create --dir {live.folder}/data/pats --account nightly |
        {sys.executable} -m issuer token request --issuer {live.url} --claims {claims} --access-token-file - --json"""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert caller(done) == "pat", done.stderr
    assert "evi_pat_" not in done.stdout + done.stderr


def test_an_oauth_client_s_secret_comes_from_a_file_the_environment_or_standard_input(
    tmp_path: Path, live: Running, known: Issuers, claims: Path
) -> None:
    server = known.opaques
    secret, client = server.client_secret, ("--client-id", server.client_id)
    arguments = (live.url, "--claims", claims, "--json", *client)
    file = put(tmp_path, secret + "\n")
    done = [
        request(*arguments, "--oauth", server.issuer, "--client-secret-file", file, hides=secret),
        request(*arguments, "--oauth", server.issuer, env={"ISSUER_CLIENT_SECRET": secret}, hides=secret),
        request(*arguments, "--oauth", server.issuer, "--client-secret-file", "-", stdin=secret, hides=secret),
        request(*arguments, "--token-endpoint", server.token_endpoint, "--client-secret-file", file, hides=secret),
    ]
    assert [caller(one) for one in done] == ["opaque"] * 4


def test_an_access_token_that_is_at_hand_is_sent_as_it_is(
    tmp_path: Path, live: Running, known: Issuers, claims: Path
) -> None:
    jwt, opaque = known.credential(live, "jwt"), known.credential(live, "opaque")
    arguments = (live.url, "--claims", claims, "--json")
    assert caller(request(*arguments, env={"ISSUER_ID_TOKEN": jwt}, hides=jwt)) == "jwt", "its header says at+jwt"
    assert caller(request(*arguments, env={"ISSUER_ACCESS_TOKEN": jwt}, hides=jwt)) == "jwt"
    assert caller(request(*arguments, "--access-token-file", put(tmp_path, opaque), hides=opaque)) == "opaque"


def test_an_identity_token_comes_from_a_file_standard_input_or_the_ci_and_has_no_nonce(
    tmp_path: Path, live: Running, claims: Path
) -> None:
    first, second = live.token(), live.token()
    arguments = (live.url, "--claims", claims, "--json")
    done = [
        request(*arguments, "--id-token-file", put(tmp_path, first), hides=first),
        request(*arguments, "--id-token-file", "-", stdin=second, hides=second),
        request(*arguments, env=live.provider.environment, hides=live.provider.request_token),
    ]
    assert [caller(one) for one in done] == ["ci"] * 3
    refused = request(*arguments, "--nonce", new_nonce(), env={"ISSUER_ID_TOKEN": live.token()})
    assert (refused.returncode, "identifies its request itself" in refused.stderr) == (2, True)


def test_a_job_that_gives_its_nonce_gets_the_same_token_again(
    tmp_path: Path, live: Running, known: Issuers, claims: Path, pat: str
) -> None:
    nonce, client = new_nonce(), ("--oauth", known.opaques.issuer, "--client-id", known.opaques.client_id)
    for credential in (
        {"env": {"ISSUER_ACCESS_TOKEN": pat}, "hides": pat},
        {"env": {"ISSUER_CLIENT_SECRET": CLIENT_SECRET}, "hides": CLIENT_SECRET},  # each time another access token
    ):
        arguments: tuple[object, ...] = (live.url, "--nonce", nonce, *client * (credential["hides"] == CLIENT_SECRET))
        first, second = (request(*arguments, "--claims", claims, "--json", **credential) for _ in range(2))  # type: ignore[arg-type]
        assert first.stdout == second.stdout
        assert jti(first) == jti(second)
        other = json.dumps({**BODY, "details": {"notes": "another run"}})
        reused = request(*arguments, "--claims", "-", stdin=other, **credential)  # type: ignore[arg-type]
        assert (reused.returncode, "nonce.reused" in reused.stderr) == (5, True)


def test_a_nonce_in_the_body_is_the_nonce(tmp_path: Path, live: Running, pat: str) -> None:
    body = json.dumps({**BODY, "nonce": new_nonce()})
    first, second = (
        request(live.url, "--claims", "-", "--json", env={"ISSUER_ACCESS_TOKEN": pat}, stdin=body, hides=pat)
        for _ in range(2)
    )
    assert jti(first) == jti(second)


def test_a_dry_run_with_an_access_token_uses_nothing_up(live: Running, claims: Path, pat: str) -> None:
    arguments = (live.url, "--claims", claims, "--nonce", new_nonce())
    env = {"ISSUER_ACCESS_TOKEN": pat}
    dry = request(*arguments, "--dry-run", env=env, hides=pat)
    assert dry.returncode == 0, dry.stderr
    assert "unknown: whether the nonce is used up" in dry.stdout
    assert request(*arguments, env=env, hides=pat).returncode == 0


def test_the_entry_that_is_written_holds_no_secret(tmp_path: Path, live: Running, claims: Path, pat: str) -> None:
    out = tmp_path / ".eval_results" / "gsm8k.yaml"
    done = request(live.url, "--claims", claims, "--out", out, env={"ISSUER_ACCESS_TOKEN": pat}, hides=pat)
    assert done.returncode == 0, done.stderr
    assert "verify_token" in out.read_text()
    assert pat not in out.read_text()


def test_a_credential_of_the_other_kind_is_told_which_flag_it_belongs_to(
    live: Running, known: Issuers, claims: Path
) -> None:
    opaque, identity = known.credential(live, "opaque"), live.token()
    for variable, secret, code, flag in (
        ("ISSUER_ID_TOKEN", opaque, "nonce.required", "--access-token-file"),
        ("ISSUER_ACCESS_TOKEN", identity, "nonce.invalid", "--id-token-file"),
    ):
        done = request(live.url, "--claims", claims, env={variable: secret}, hides=secret)
        assert (done.returncode, code in done.stderr, flag in done.stderr) == (5, True, True), done.stderr


def test_the_page_says_how_often_and_for_how_long_it_is_asked() -> None:
    page = (Path(issuer_client.__file__).parent / "README.md").read_text("utf-8")
    assert f"up to {ATTEMPTS} times within {PATIENCE_S / 60:g} minutes" in " ".join(page.split())


def test_refusals_of_the_real_servers_say_their_code(live: Running, known: Issuers, claims: Path, pat: str) -> None:
    arguments = (live.url, "--claims", claims)
    stranger = create_pat(live.folder, "stranger")
    unknown = request(*arguments, env={"ISSUER_ACCESS_TOKEN": stranger}, hides=stranger)
    assert (unknown.returncode, "integration.unknown" in unknown.stderr) == (5, True)
    client = ("--oauth", known.opaques.issuer, "--client-id", known.opaques.client_id)
    wrong = request(*arguments, *client, env={"ISSUER_CLIENT_SECRET": HUSH})
    assert (wrong.returncode, "invalid_client" in wrong.stderr) == (6, True)


# -- the command line -----------------------------------------------------------------------------------------------------

OAUTH = ("--oauth", NOWHERE, "--client-id", "ci")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--claims", "-", "--access-token-file", "-"),
        ("--claims", "-", "--id-token-file", "-"),
        ("--claims", "-", *OAUTH, "--client-secret-file", "-"),
        ("--access-token-file", "-", "--id-token-file", "-"),
        ("--access-token-file", "x", *OAUTH),
        (*OAUTH, "--token-endpoint", NOWHERE),
        ("--oauth", NOWHERE),
        ("--client-id", "ci"),
        ("--client-secret-file", "-"),
        ("--access-token-file", "-", "--client-secret-file", "-"),
        ("--nonce", "short"),
        ("--nonce", "a" * 21 + "="),
        ("--client-secret", HUSH),
        (f"--client-secret={HUSH}",),
        (f"--access-token={HUSH}",),
        ("--pat", HUSH),
    ],
)
def test_options_that_contradict_each_other_or_are_none_are_a_usage_error(
    claims: Path, arguments: tuple[str, ...]
) -> None:
    given = arguments if "--claims" in arguments else ("--claims", str(claims), *arguments)
    done = CliRunner().invoke(cli, ["token", "request", "--issuer", NOWHERE, *given], input=HUSH)
    assert (done.exit_code, "Usage: " in done.stderr) == (2, True)
    assert HUSH not in done.output


@pytest.mark.parametrize(
    ("flag", "content"),
    [
        ("--id-token-file", f"{HUSH}\n{HUSH}".encode()),
        ("--id-token-file", None),
        ("--access-token-file", b""),
        ("--access-token-file", b"\n"),
        ("--access-token-file", HUSH.encode() + b"\x00"),
        ("--access-token-file", b"\xff" + HUSH.encode()),
        ("--access-token-file", HUSH.encode() * 1000),  # larger than any token
        ("--access-token-file", HUSH.encode() * 5000),  # larger than is read
        ("--client-secret-file", b" \n"),
        ("--client-secret-file", f"{HUSH}\n{HUSH}".encode()),
        ("--client-secret-file", None),
        ("--client-secret-file", HUSH.encode() * 5000),
        ("--client-secret-file", "a folder"),
    ],
)
def test_a_file_that_holds_no_secret_is_told_by_its_flag(
    tmp_path: Path, claims: Path, flag: str, content: bytes | str | None
) -> None:
    file = tmp_path / HUSH  # as where the secret itself was given in the place of its file
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content:
        file.mkdir()
    done = request(NOWHERE, "--claims", claims, flag, file, *OAUTH * (flag == "--client-secret-file"))
    assert (done.returncode, done.stdout) == (6, "")
    assert flag in done.stderr or "the client secret is empty, too long, or not one line" in done.stderr


def test_standard_input_that_is_closed_is_no_traceback(claims: Path) -> None:
    for more in (("--access-token-file", "-"), (*OAUTH, "--client-secret-file", "-")):
        command = [sys.executable, "-m", "issuer", "token", "request", "--issuer", NOWHERE, "--claims", str(claims)]
        done = subprocess.run(
            ["bash", "-c", '"$@" <&-', "bash", *command, *more], capture_output=True, text=True, check=False
        )
        assert (done.returncode, "Traceback" in done.stderr) == (6, False)


def test_two_variables_at_once_are_refused_and_a_flag_wins_over_both(
    tmp_path: Path, live: Running, claims: Path, pat: str
) -> None:
    both = {"ISSUER_ID_TOKEN": HUSH, "ISSUER_ACCESS_TOKEN": HUSH}
    done = request(live.url, "--claims", claims, env=both)
    assert (done.returncode, "are both set" in done.stderr) == (6, True)
    file = put(tmp_path, pat)
    assert request(live.url, "--claims", claims, "--access-token-file", file, env=both, hides=pat).returncode == 0


def test_a_personal_access_token_with_a_typing_error_is_not_sent(claims: Path, pat: str) -> None:
    with Scripted([reply(201, ANSWER)]) as server:
        done = request(server.url, "--claims", claims, env={"ISSUER_ACCESS_TOKEN": pat[:-1]}, hides=pat[:-1])
    assert (done.returncode, "wrong checksum" in done.stderr) == (6, True)
    assert server.seen == []


def test_no_process_has_a_secret_in_its_arguments(claims: Path) -> None:
    """While a request is under way, the machine's list of processes does not show it."""
    command = [sys.executable, "-m", "issuer", "token", "request", "--issuer", NOWHERE, "--claims", str(claims)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Scripted([stall]) as server:
        more = ("--token-endpoint", server.url, "--client-id", "ci", "--client-secret-file", "-")
        with subprocess.Popen([*command, *more], **pipes) as child:  # type: ignore[call-overload]
            child.stdin.write(HUSH.encode())
            child.stdin.close()
            deadline = time.monotonic() + 60
            while not server.seen and time.monotonic() < deadline:
                time.sleep(0.02)
            found = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
            child.kill()
    assert server.seen, "the request was under way"
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


@pytest.mark.parametrize(
    ("body", "status", "exits"),
    [*((body, 200, 4) for body in ECHOES), *((body, 401, 6) for body in ECHOES), (ECHOES[0], 302, 4)],
)
def test_an_oauth_server_that_repeats_the_secret_has_it_shown_by_nobody(
    claims: Path, body: Any, status: int, exits: int
) -> None:
    with Scripted([reply(status, body, Location=f"/{HUSH}", WWW_Authenticate=f"Basic realm={HUSH}")]) as server:
        done = request(
            NOWHERE, "--claims", claims, "--token-endpoint", server.url, "--client-id", "ci",
            env={"ISSUER_CLIENT_SECRET": HUSH},
        )  # fmt: skip
    assert (done.returncode, len(server.seen), done.stdout) == (exits, 1, "")


OURS = [*ECHOES, {**ANSWER, "entry": HUSH}, {**ANSWER, "warnings": [HUSH]}]


@pytest.mark.parametrize(
    ("body", "status", "flags"),
    [
        *((body, 201, ("--json",)) for body in OURS),
        *((body, 401, ()) for body in OURS),
        (ECHOES[0], 200, ("--dry-run",)),
        (OURS[-2], 201, ("--out", ".eval_results/gsm8k.yaml")),
        (OURS[-2], 201, ()),
    ],
)
def test_an_issuer_that_repeats_the_credential_has_it_shown_by_nobody(
    tmp_path: Path, claims: Path, body: Any, status: int, flags: tuple[str, ...]
) -> None:
    flags = tuple(str(tmp_path / flag) if flag.endswith("yaml") else flag for flag in flags)
    with HostileIssuer(answers=[reply(status, body, Location=f"/{HUSH}")]) as server:
        done = request(server.url, "--claims", claims, *flags, env={"ISSUER_ACCESS_TOKEN": HUSH})
    assert (done.returncode in {4, 5}, done.stdout) == (True, "")
    assert not (tmp_path / ".eval_results").exists()


def test_an_issuer_s_answer_cannot_write_on_the_terminal(out: Path, claims: Path) -> None:
    drawn = "\x1b[2K\rverified"
    with HostileIssuer(lambda good: {**good.answer(), "identity": drawn, "warnings": [drawn]}) as server:
        arguments = ("--claims", claims, "--out", out)
        done = request(server.url, *arguments, env={"ISSUER_ACCESS_TOKEN": HUSH})
        shown = request(server.url, "--claims", claims, "--json", env={"ISSUER_ACCESS_TOKEN": HUSH})
    assert (done.returncode, out.exists()) == (0, True), done.stderr
    assert json.loads(shown.stdout)["identity"] == drawn
    for written in (done.stdout, done.stderr, shown.stdout, shown.stderr):
        assert all(sign.isprintable() for sign in written.replace("\n", ""))
    assert "warning: " in done.stderr


LIES: list[Lie] = [
    lambda good: good.answer(make.submission(task_id="other")),
    lambda good: {**good.answer(), "entry": good.sent.entry("x.y.z"), "verify_token": "x.y.z"},
    lambda good: {**good.answer(), "jti": "\x1b[2K\x9b2Jverified"},
    lambda good: {**good.answer(), "entry": "- \u202e\x9b2J"},
]


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_does_not_verify_is_a_no_and_nothing_is_written(out: Path, claims: Path, lie: Lie) -> None:
    with HostileIssuer(lie) as server:
        for more in (("--out", out), ("--json",), ()):
            done = request(server.url, "--claims", claims, *more, env={"ISSUER_ACCESS_TOKEN": HUSH})
            assert (done.returncode, done.stdout, out.parent.exists()) == (1, "", False)
            assert "answer.unverified" in done.stderr
            assert all(sign.isprintable() for sign in done.stderr.replace("\n", ""))


def test_without_the_issuer_s_keys_nothing_is_asked_for(out: Path, claims: Path) -> None:
    with HostileIssuer(keys=[reply(404)]) as server:
        done = request(server.url, "--claims", claims, "--out", out, env={"ISSUER_ACCESS_TOKEN": HUSH})
        assert server.posted == []
    assert (done.returncode, "dependency.key_set" in done.stderr) == (4, True)


def test_the_same_token_changes_a_file_once_unless_it_is_to_be_appended(out: Path, claims: Path) -> None:
    now = int(time.time())
    with HostileIssuer(lambda good: good.answer(iat=now, nbf=now, exp=now + 60)) as server:
        arguments = (server.url, "--claims", claims, "--out", out)
        first = request(*arguments, env={"ISSUER_ACCESS_TOKEN": HUSH})
        written = out.read_bytes(), out.stat().st_ino
        second = request(*arguments, env={"ISSUER_ACCESS_TOKEN": HUSH})
        assert (out.read_bytes(), out.stat().st_ino) == written
        third = request(*arguments, "--append", env={"ISSUER_ACCESS_TOKEN": HUSH})
    assert [done.returncode for done in (first, second, third)] == [0, 0, 0]
    assert ("entry written" in first.stdout, "unchanged" in second.stdout) == (True, True)
    assert out.read_bytes() == written[0] * 2


def test_a_file_for_both_is_read_by_today_s_huggingface_hub_and_a_retry_is_safe_for_it(
    tmp_path: Path, out: Path, claims: Path
) -> None:
    """A file in the target form gets what it lacks; without the flag the file keeps its form."""
    benchmark = tmp_path / "eval.yaml"
    benchmark.write_text(make.BENCHMARK_TEXT)
    both = ("--profile", "both", "--benchmark", benchmark)
    written = []
    with HostileIssuer() as server:
        for more in ((), both, ()):
            done = request(server.url, "--claims", claims, "--out", out, *more, env={"ISSUER_ACCESS_TOKEN": HUSH})
            assert done.returncode == 0, done.stderr
            written.append(out.read_text())
    (target,), (first,), (second,) = (read_entries(text.encode(), "f") for text in written)
    assert (target.token_members, bool(target.value)) == (("verify_token",), False)
    assert first.token_members == second.token_members == ("verify_token", "verifyToken")
    (seen,) = parse_eval_result_entries(yaml.safe_load(written[-1]))
    assert (seen.value, seen.verify_token) == (BODY["claims"]["metrics"][0]["value"], second.token)
    assert (seen.dataset_id, seen.task_id) == (second.dataset.id, second.dataset.task_id)


def test_what_is_printed_has_the_profile_that_was_asked_for(tmp_path: Path, claims: Path) -> None:
    benchmark = tmp_path / "eval.yaml"
    benchmark.write_text(make.BENCHMARK_TEXT)
    arguments = ("--claims", claims, "--profile", "both", "--benchmark", benchmark)
    with HostileIssuer() as server:
        printed = request(server.url, *arguments, env={"ISSUER_ACCESS_TOKEN": HUSH}).stdout
        told = request(server.url, *arguments, "--json", env={"ISSUER_ACCESS_TOKEN": HUSH}).stdout
    for text in (printed, json.loads(told)["entry"]):
        (entry,) = read_entries(text.encode(), "printed")
        assert (len(entry.token_members), entry.value) == (2, BODY["claims"]["metrics"][0]["value"])


@pytest.mark.parametrize(
    "why",
    ["no score of the primary metric", "no such task", "no such metric", "a list in one line", "a thousand entries"],
)
def test_an_entry_that_the_file_cannot_take_is_refused_before_anybody_is_asked(
    tmp_path: Path, out: Path, claims: Path, why: str
) -> None:
    benchmark = tmp_path / "eval.yaml"
    more: tuple[str, ...] = ()
    out.parent.mkdir()
    if why == "no score of the primary metric":
        benchmark.write_text("name: x\nmetrics: [{id: other}]\ntasks: [{id: t}]\n")
        more = ("--profile", "both", "--benchmark", str(benchmark))
    elif why.startswith("no such"):
        task, metric = ("other", "accuracy") if why == "no such task" else (BODY["claims"]["task_id"], "other")
        benchmark.write_text(f"name: x\nmetrics: [{{id: {metric}}}]\ntasks: [{{id: {task}}}]\n")
        more = ("--benchmark", str(benchmark))
    elif why == "a list in one line":
        out.write_text("[{dataset: {id: a/b}}]\n")
    else:
        out.write_text("- dataset: {id: a/b}\n" * 1000)
    before = out.read_bytes() if out.exists() else None
    with HostileIssuer() as server:
        done = request(server.url, "--claims", claims, "--out", out, *more, env=github(server.url))
        assert server.seen == [], "no identity was fetched either"
    assert (done.returncode, out.read_bytes() if out.exists() else None) == (3, before)


def test_a_run_is_refused_and_taken_by_the_same_flags_as_by_build(tmp_path: Path) -> None:
    """A mock, and one of a part: both are told at once, with the flags, before anybody is asked."""
    log = tmp_path / "log.json"
    log.write_bytes(edited((DATA / "inspect_two_scorers.json").read_bytes(), "/eval/config/limit", 4))
    run = (
        "--inspect-log",
        log,
        "--model-repo",
        "acme/open-model",
        "--model-revision",
        MODEL_COMMIT,
        "--command",
        "x",
        "--metric",
        "accuracy=match/accuracy",
    )
    with HostileIssuer() as server:
        refused = request(server.url, *run, env=github(server.url))
        assert (refused.returncode, server.seen) == (3, [])
        assert ("--allow-mock" in refused.stderr, "--allow-partial" in refused.stderr) == (True, True)
        named = ("--allow-mock", "mockllm/model", "--allow-partial")
        taken = request(server.url, *run, *named, env={"ISSUER_ACCESS_TOKEN": HUSH})
    assert (taken.returncode, "Partial run: " in taken.stdout) == (0, True), taken.stderr


def test_flags_that_are_for_something_else_are_usage(tmp_path: Path, claims: Path) -> None:
    for more in (
        ("--model-repo", "a/b"),
        ("--allow-mock", "x"),
        ("--scale", "100"),
        ("--profile", "both"),
        ("--profile", "hub"),
    ):
        assert request(NOWHERE, "--claims", claims, *more, env={"ISSUER_ACCESS_TOKEN": HUSH}).returncode == 2
    run = {"ISSUER_RUN_MODEL_REPO": "a/b", "ISSUER_ACCESS_TOKEN": HUSH}
    with HostileIssuer() as server:
        assert request(server.url, "--claims", claims, env=run).returncode == 0, "it may be of another run"


@pytest.mark.parametrize("name", ["out.yaml", "gsm8k.yaml", ".eval_results/mmlu.yaml", ".eval_results/gsm8k.yml"])
def test_a_place_in_which_nothing_verifies_is_refused_before_anybody_is_asked(
    tmp_path: Path, claims: Path, name: str
) -> None:
    with HostileIssuer() as server:
        done = request(server.url, "--claims", claims, "--out", tmp_path / name, env={"ISSUER_ACCESS_TOKEN": HUSH})
        assert server.seen == []
    assert (done.returncode, "result.file_name" in done.stderr) == (3, True)
    assert ".eval_results/gsm8k.yaml" in done.stderr


def test_a_file_that_is_no_result_file_is_refused_before_anybody_is_asked(out: Path, claims: Path) -> None:
    out.parent.mkdir()
    out.write_text("- [")
    with HostileIssuer() as server:
        done = request(server.url, "--claims", claims, "--out", out, env={"ISSUER_ACCESS_TOKEN": HUSH})
        assert server.seen == []
    assert (done.returncode, out.read_text()) == (3, "- [")


@pytest.mark.parametrize("kind", ["link", "pipe", "linked folder"])
def test_an_out_that_cannot_be_replaced_is_refused_before_anybody_is_asked(
    tmp_path: Path, out: Path, claims: Path, kind: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    out.parent.symlink_to("elsewhere") if kind == "linked folder" else out.parent.mkdir()
    if kind != "linked folder":
        out.symlink_to("other.yaml") if kind == "link" else os.mkfifo(out)
    with HostileIssuer(answers=[reply(201, ANSWER)]) as server:
        done = request(server.url, "--claims", claims, "--out", out, env={"ISSUER_ACCESS_TOKEN": HUSH})
        assert server.seen == []
    assert (done.returncode, done.stdout) == (6, "")
    assert "not followed" in done.stderr or "not a plain file" in done.stderr


AT_ONCE = reply(503, Retry_After="0")


@pytest.mark.parametrize("fault", [hang_up, b"HTTP/1.1 " + HUSH.encode() + b"\r\n\r\n"], ids=["lost", "garbage"])
def test_a_connection_that_breaks_is_undecided_and_told_without_the_secret(claims: Path, fault: Action) -> None:
    with HostileIssuer(answers=[AT_ONCE, AT_ONCE, AT_ONCE, fault]) as server:
        done = request(server.url, "--claims", claims, env={"ISSUER_ACCESS_TOKEN": HUSH})
    assert (done.returncode, done.stdout) == (4, "")
    assert len({json.loads(seen.body)["nonce"] for seen in server.posted}) == 1
    assert len(server.posted) == 4
    assert f"--nonce {json.loads(server.posted[0].body)['nonce']}" in done.stderr, "so asks whoever asks the same again"


@pytest.mark.parametrize("by_client", [False, True])
def test_a_server_that_does_not_answer_is_undecided(claims: Path, by_client: bool) -> None:
    with HostileIssuer(answers=[AT_ONCE, AT_ONCE, AT_ONCE, hang_up]) as server:
        arguments = ("--token-endpoint", server.url, "--client-id", "ci") * by_client
        env = {"ISSUER_CLIENT_SECRET" if by_client else "ISSUER_ID_TOKEN": HUSH}
        done = request(server.url, "--claims", claims, *arguments, env=env)
    assert (done.returncode, len(server.posted)) == (4, 4)
    assert "--nonce" not in done.stderr


# -- the CI's own identity ------------------------------------------------------------------------------------------------


def github(url: str, request_token: str = HUSH) -> dict[str, str]:
    return {
        "GITHUB_ACTIONS": "true",
        "ACTIONS_ID_TOKEN_REQUEST_URL": f"{url}/token",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN": request_token,
    }


@pytest.mark.parametrize(
    ("status", "body"), [(200, {"value": HUSH}), (200, [HUSH]), (401, HUSH.encode()), (500, b"\xff" + HUSH.encode())]
)
def test_a_ci_that_repeats_its_request_token_has_it_shown_by_nobody(claims: Path, status: int, body: Any) -> None:
    with Scripted([reply(status, body)]) as server:
        done = request(NOWHERE, "--claims", claims, env=github(server.url))
    assert (done.returncode, "the CI's identity is unavailable" in done.stderr) == (6, True)


def test_a_request_token_that_is_no_header_is_shown_by_nobody(claims: Path) -> None:
    done = request(NOWHERE, "--claims", claims, env=github(NOWHERE, f"{HUSH}\n{HUSH}"))
    assert done.returncode == 6


def test_a_ci_s_tool_that_prints_a_secret_has_it_shown_by_nobody(tmp_path: Path, claims: Path) -> None:
    tool = tmp_path / "buildkite-agent"
    tool.write_text(f"#!/bin/sh\necho {HUSH}\nexit 1\n")
    tool.chmod(0o755)
    env = {"BUILDKITE": "true", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = request(NOWHERE, "--claims", claims, env=env)
    assert done.returncode == 6
    assert "is unavailable: Buildkite: `buildkite-agent` ends with 1" in done.stderr


@pytest.mark.parametrize(
    ("ci", "tool", "wanted"),
    [
        ("BUILDKITE", "buildkite-agent", "oidc request-token --audience {}"),
        ("CIRCLECI", "circleci", 'run oidc get --claims {{"aud": "{}"}} --root-issuer'),
    ],
)
def test_a_ci_s_tool_is_given_none_of_our_secrets(
    tmp_path: Path, live: Running, claims: Path, ci: str, tool: str, wanted: str
) -> None:
    program = tmp_path / tool
    program.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/asked\nenv > {tmp_path}/env\necho aaaa.bbbb.cccc\n')
    program.chmod(0o755)
    own = dict.fromkeys(("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ISSUER_CLIENT_SECRET"), HUSH)
    env = {ci: "true", "AGENT_TOKEN": "its own", **own, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = request(live.url, "--claims", claims, env=env)
    assert done.returncode == 5, "it has an identity, which is none"
    assert (tmp_path / "asked").read_text() == f"{wanted.format(live.url)}\n"
    given = (tmp_path / "env").read_text()
    assert HUSH not in given
    assert f"{ci}=true\n" in given
    assert "AGENT_TOKEN=its own\n" in given


def test_a_ci_s_tool_that_is_not_there_or_says_nothing_is_told(tmp_path: Path, claims: Path) -> None:
    done = request(NOWHERE, "--claims", claims, env={"CIRCLECI": "true", "PATH": str(tmp_path)})
    assert (done.returncode, "CircleCI: `circleci` cannot be started" in done.stderr) == (6, True)
    (tmp_path / "circleci").write_text("#!/bin/sh\n")
    (tmp_path / "circleci").chmod(0o755)
    done = request(NOWHERE, "--claims", claims, env={"CIRCLECI": "true", "PATH": str(tmp_path)})
    assert (done.returncode, "CircleCI: `circleci` prints no token" in done.stderr) == (6, True)


def test_a_gitlab_job_is_told_which_variable_it_lacks(claims: Path) -> None:
    done = request("https://issuer.example", "--claims", claims, env={"GITLAB_CI": "true"})
    assert done.returncode == 6
    assert "$HTTPS___ISSUER_EXAMPLE_ID_TOKEN is not set. Add to the job:\n    id_tokens:\n" in done.stderr
