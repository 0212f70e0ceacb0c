"""The Hub as its user sees it: what is read, to whom the token goes, and what each refusal says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from issuer.client.hub import FileAt, Hub
from issuer.codes import Code
from issuer.errors import InputError, IssuerError, SetupError, Undecided
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.identity import pat
from tests.support.hub_server import HubServer

NAME = "acme/open-model"
PAT = pat.make(bytes(range(pat.RANDOM_BYTES)))
DATASET = "openai/gsm8k"
PATH = ".eval_results/gsm8k.yaml"
AT_ONCE = {"Retry-After": "0"}


def propose(hub: Hub, parent: str = "0" * 40) -> object:
    return hub.open_pull_request(NAME, {PATH: b"- new\n"}, "Add", "What it is.", parent, ["sha256:" + "a" * 64])


def refusal(server: HubServer, token: str, parent: str = "0" * 40) -> IssuerError:
    """Return what a proposal is refused with; it does not show the token, and nothing was made."""
    with pytest.raises(IssuerError) as refused:
        propose(Hub(server.url, token), parent)
    assert not token or token not in str(refused.value)
    assert not any(repo.talks for repo in server.repos.values())
    return refused.value


# -- reading -------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_with_the_commit_that_it_is_of(server: HubServer) -> None:
    repo = server.repo(NAME, {PATH: b"- one\r\n"})
    hub = Hub(server.url)
    found = hub.read(NAME, PATH)
    assert found == FileAt(NAME, PATH, repo.main, "- one\r\n")
    assert found.name == f"{NAME}/{PATH}@{repo.main[:7]}"
    assert hub.read(NAME, ".eval_results/hle.yaml") is None
    assert hub.main(NAME) == repo.main
    assert not {one.authorization for one in server.asked} - {""}


@pytest.mark.long
def test_a_file_is_read_as_it_was_and_as_it_is_proposed(server: HubServer) -> None:
    repo = server.repo(NAME, {PATH: b"- one\n"})
    before = repo.main
    talk = repo.propose("evals-bot", "Add", "", before, {PATH: b"- two\n"})
    repo.commit({PATH: b"- three\n"})
    texts = [
        found.text for at in (before, talk.ref, "main") if (found := Hub(server.url).read(NAME, PATH, revision=at))
    ]
    assert texts == ["- one\n", "- two\n", "- three\n"]


@pytest.mark.long
def test_a_benchmark_s_definition_is_read_at_its_commit(server: HubServer) -> None:
    repo = server.repo(DATASET, {"eval.yaml": b"name: old\n"}, "dataset")
    old = repo.main
    repo.commit({"eval.yaml": b"name: new\n"})
    hub = Hub(server.url)
    assert hub.read_dataset_file(DATASET, old, "eval.yaml") == FileAt(DATASET, "eval.yaml", old, "name: old\n")
    assert hub.read_dataset_file(DATASET, old, "else.yaml") is None
    for revision, name in (("f" * 40, DATASET), (old, "openai/nothing")):
        with pytest.raises(IssuerError) as refused:
            hub.read_dataset_file(name, revision, "eval.yaml")
        assert refused.value.code is Code.HUB_NOT_FOUND


@pytest.mark.long
@pytest.mark.parametrize(
    ("data", "code"), [(b"\xff\n", Code.FILE_ENCODING), (b"#" * (MAX_BYTES + 1), Code.FILE_TOO_LARGE)]
)
def test_a_file_that_is_no_text_or_too_large_is_said_with_its_place(server: HubServer, data: bytes, code: Code) -> None:
    server.repo(NAME, {PATH: data})
    with pytest.raises(InputError) as refused:
        Hub(server.url).read(NAME, PATH)
    assert (refused.value.code, refused.value.place.file) == (code, f"{NAME}/{PATH}")


# -- the token -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [PAT, PAT[:20], "hf_a b", "hf_\x00", "hf_ä"])
def test_what_is_no_token_of_the_hub_s_is_never_sent(server: HubServer, token: str) -> None:
    with pytest.raises(SetupError) as refused:
        Hub(server.url, token)
    assert refused.value.code is Code.HUB_TOKEN
    assert token not in str(refused.value)
    assert not server.asked


def test_a_proposal_without_a_token_is_refused_before_anything_is_asked(server: HubServer) -> None:
    assert refusal(server, "").code is Code.HUB_TOKEN
    assert not server.asked


def test_the_environment_says_where_the_hub_is_and_whose_token_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_TOKEN", f" {PAT}\n")
    with pytest.raises(SetupError, match="was not sent"):
        Hub.here()
    monkeypatch.delenv("HF_TOKEN")
    assert Hub.here().endpoint == "https://huggingface.co"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1/")
    assert Hub.here().endpoint == "http://127.0.0.1:1"
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    with pytest.raises(SetupError) as refused:  # the token would be sent in the clear
        Hub.here()
    assert refused.value.code is Code.URL_INVALID


@pytest.mark.long
@pytest.mark.parametrize("match", ["/api/models/", "/resolve/", "whoami", "/discussions?", "/preupload/", "/commit/"])
@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_to_another_host_does_not_carry_the_token(server: HubServer, match: str, status: int) -> None:
    repo = server.repo(NAME)
    with HubServer() as stranger:
        server.fail(match, status, headers={"Location": f"{stranger.url}/api/models/{NAME}"})
        token = server.token()
        hub = Hub(server.url, token, patience_s=1)
        with suppress(IssuerError):
            propose(hub, repo.main)
        assert stranger.asked
        assert {one.authorization for one in stranger.asked} == {""}
        assert not any(token.encode() in one.body for one in stranger.asked)
    assert any(one.authorization for one in server.asked)


@pytest.mark.long
def test_no_token_that_lies_about_on_the_machine_is_used(server: HubServer, tmp_path: Path) -> None:
    """The library would take the one that `hf auth login` has stored."""
    server.repo(NAME)
    program = f"from issuer.client.hub import Hub; Hub({server.url!r}).read({NAME!r}, 'README.md')"
    (tmp_path / "token").write_text("hf_stored")
    env = {**os.environ, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_ofthevariable"}
    subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)
    assert len(server.asked) == 2
    assert {one.authorization for one in server.asked} == {""}


# -- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_token_that_may_only_read_opens_no_pull_request(server: HubServer) -> None:
    repo = server.repo(NAME)
    assert refusal(server, server.token(role="read"), repo.main).code is Code.HUB_FORBIDDEN


@pytest.mark.long
def test_a_repository_that_takes_no_pull_requests_is_said(server: HubServer) -> None:
    repo = server.repo(NAME)
    repo.takes_pull_requests = False
    error = refusal(server, server.token(), repo.main)
    assert error.code is Code.HUB_FORBIDDEN
    assert "turned pull requests off" in error.code.meaning.remedy


@pytest.mark.long
def test_a_token_that_the_hub_does_not_know_is_said(server: HubServer) -> None:
    server.repo(NAME)
    assert refusal(server, "hf_" + "0" * 34).code is Code.HUB_TOKEN


@pytest.mark.long
@pytest.mark.parametrize("name", ["", "hf"])
def test_a_gated_repository_is_said_to_who_is_not_let_in(server: HubServer, name: str) -> None:
    server.repo(NAME, {PATH: b""}, gated=True)
    with pytest.raises(IssuerError) as refused:
        Hub(server.url, server.token() if name else "").read(NAME, PATH)
    assert refused.value.code is Code.HUB_GATED
    assert Hub(server.url, server.token("acme")).read(NAME, PATH)


@pytest.mark.long
@pytest.mark.parametrize("signed_in", [False, True])
def test_a_repository_that_is_not_there_or_not_shown_is_said(server: HubServer, signed_in: bool) -> None:
    server.repo("acme/secret", private=True)
    hub = Hub(server.url, server.token() if signed_in else "")
    for name in (NAME, "acme/secret", "no-name", "acme/../x"):
        with pytest.raises(IssuerError) as refused:
            hub.main(name)
        assert refused.value.code is Code.HUB_NOT_FOUND


@pytest.mark.long
def test_a_renamed_repository_is_not_followed(server: HubServer) -> None:
    """The token is bound to the name: under another it would not verify."""
    server.repo(NAME)
    server.rename(NAME, "acme/better-model")
    error = refusal(server, server.token())
    assert error.code is Code.HUB_RENAMED
    assert "acme/better-model" in error.detail


@pytest.mark.long
@pytest.mark.parametrize(("kind", "words"), [("dataset", "is a dataset"), ("space", "is a Space")])
def test_a_repository_of_another_kind_is_said(server: HubServer, kind: str, words: str) -> None:
    server.repo(NAME, kind=kind)  # type: ignore[arg-type]
    error = refusal(server, server.token())
    assert error.code is Code.HUB_NOT_MODEL
    assert words in error.detail


@pytest.mark.long
def test_another_refusal_is_told_by_its_status_alone(server: HubServer) -> None:
    repo = server.repo(NAME)
    server.fail("whoami", 418)
    error = refusal(server, server.token(), repo.main)
    assert error.code is Code.HUB_REFUSED
    assert "418" in error.detail
    assert "Something went wrong" not in str(error)


# -- not now -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "2"}, {"RateLimit": '"api";r=0;t=2', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}],
)
def test_a_rate_limit_is_waited_out_as_long_as_it_says(server: HubServer, headers: dict[str, str]) -> None:
    server.repo(NAME)
    server.fail("/revision/main", 429, headers=headers)
    began = time.monotonic()
    assert Hub(server.url).main(NAME)
    assert 2 <= time.monotonic() - began < 4
    assert server.count("/revision/main") == 2


@pytest.mark.long
def test_a_rate_limit_that_asks_for_too_long_ends_at_once_and_says_when(server: HubServer) -> None:
    server.repo(NAME)
    server.fail("/revision/main", 429, headers={"Retry-After": "3600"}, times=9)
    began = time.monotonic()
    with pytest.raises(Undecided) as undecided:
        Hub(server.url).main(NAME)
    assert (undecided.value.code, undecided.value.retry_after_s) == (Code.HUB_UNAVAILABLE, 3600)
    assert time.monotonic() - began < 1
    assert server.count("/revision/main") == 1


@pytest.mark.long
@pytest.mark.parametrize("status", [0, 408, 500, 502, 503, 504])
def test_what_nobody_decided_is_asked_again_four_times_at_most(server: HubServer, status: int) -> None:
    server.repo(NAME)
    server.fail("/revision/main", status, headers=AT_ONCE, times=3)
    assert Hub(server.url).main(NAME)
    server.fail("/revision/main", status, headers=AT_ONCE, times=9)
    with pytest.raises(Undecided):
        Hub(server.url).main(NAME)
    assert server.count("/revision/main") == 8


@pytest.mark.long
def test_a_hub_that_is_silent_is_not_waited_for(server: HubServer) -> None:
    server.repo(NAME)
    server.before("/revision/main", lambda: time.sleep(3))
    began = time.monotonic()
    with pytest.raises(Undecided) as undecided:
        Hub(server.url, patience_s=0.5).main(NAME)
    assert undecided.value.code is Code.HUB_UNAVAILABLE
    assert time.monotonic() - began < 2


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>",
        b"[]",
        b"{}",
        b'{"id": 7}',
        b'{"id": "acme/open-model"}',
        b'{"id": "\\u001b[2J", "sha": 1}',
    ],
)
def test_what_is_not_the_hub_is_not_believed(server: HubServer, body: bytes) -> None:
    """A proxy's page, with status 200."""
    server.repo(NAME)
    server.fail("/revision/main", 200, body=body, times=9)
    with pytest.raises(Undecided, match="is not the Hub, or answers with errors") as undecided:
        Hub(server.url, patience_s=1).main(NAME)
    assert undecided.value.code is Code.HUB_UNAVAILABLE


# -- the library ---------------------------------------------------------------------------------------------------------


def test_a_missing_library_is_said_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SetupError, match=r"pip install '\.\[hub\]'") as refused:
        Hub("http://127.0.0.1:1").main(NAME)
    assert refused.value.code is Code.PACKAGE_MISSING


@pytest.mark.long
def test_the_library_s_switch_for_machines_without_a_network_is_said() -> None:
    program = f"""
from issuer.client.hub import Hub
from issuer.errors import SetupError
try:
    Hub("http://127.0.0.1:1").main({NAME!r})
except SetupError as error:
    print(error)
"""
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, env=env, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "settings.invalid: $HF_HUB_OFFLINE is set: unset it to reach the Hub\n"
