"""The Hub's client: reading, the host that gets the token, and the text of each refusal."""

import os
import subprocess
import sys
import threading
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
    """Return the refusal of a proposal. It does not show the token, and no pull request was made."""
    with pytest.raises(IssuerError) as refused:
        propose(Hub(server.url, token), parent)
    assert not token or token not in str(refused.value)
    assert not any(repo.talks for repo in server.repos.values())
    return refused.value


# -- reading -------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_with_its_commit(server: HubServer) -> None:
    repo = server.repo(NAME, {PATH: b"- one\r\n"})
    hub = Hub(server.url)
    found = hub.read(NAME, PATH)
    assert found == FileAt(NAME, PATH, repo.main, "- one\r\n")
    assert found.name == f"{NAME}/{PATH}@{repo.main[:7]}"
    assert hub.read(NAME, ".eval_results/hle.yaml") is None
    assert hub.main(NAME) == repo.main
    assert not {one.authorization for one in server.asked} - {""}


@pytest.mark.long
def test_a_file_is_read_as_it_was_as_it_is_proposed_and_only_as_text(server: HubServer) -> None:
    repo, hub = server.repo(NAME, {PATH: b"- one\n"}), Hub(server.url)
    before = repo.main
    talk = repo.propose("evals-bot", "Add", "", before, {PATH: b"- two\n"})
    repo.commit({PATH: b"- three\n"})
    texts = [found.text for at in (before, talk.ref, "main") if (found := hub.read(NAME, PATH, revision=at))]
    assert texts == ["- one\n", "- two\n", "- three\n"]
    for data, code in ((b"\xff\n", Code.FILE_ENCODING), (b"#" * (MAX_BYTES + 1), Code.FILE_TOO_LARGE)):
        repo.commit({PATH: data})
        with pytest.raises(InputError) as refused:
            hub.read(NAME, PATH)
        assert (refused.value.code, refused.value.place.file) == (code, f"{NAME}/{PATH}")
    dataset = server.repo(DATASET, {"eval.yaml": b"name: old\n"}, "dataset")
    old = dataset.main
    dataset.commit({"eval.yaml": b"name: new\n"})
    assert hub.read_dataset_file(DATASET, old, "eval.yaml") == FileAt(DATASET, "eval.yaml", old, "name: old\n")
    assert hub.read_dataset_file(DATASET, old, "else.yaml") is None
    for revision, name in (("f" * 40, DATASET), (old, "openai/nothing")):
        with pytest.raises(IssuerError) as absent:
            hub.read_dataset_file(name, revision, "eval.yaml")
        assert absent.value.code is Code.HUB_NOT_FOUND


# -- the token -----------------------------------------------------------------------------------------------------------


def test_only_a_token_of_the_hub_is_sent_and_a_proposal_needs_one(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in (PAT, PAT[:20], "hf_a b", "hf_\x00", "hf_ä"):
        with pytest.raises(SetupError) as refused:
            Hub(server.url, token)
        assert refused.value.code is Code.HUB_TOKEN
        assert token not in str(refused.value)
    assert refusal(server, "").code is Code.HUB_TOKEN
    assert not server.asked
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
def test_a_token_that_the_library_has_stored_is_not_used(server: HubServer, tmp_path: Path) -> None:
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
def test_each_refusal_of_a_proposal_has_its_code(server: HubServer) -> None:
    repo = server.repo(NAME)
    assert refusal(server, server.token(role="read"), repo.main).code is Code.HUB_FORBIDDEN
    assert refusal(server, "hf_" + "0" * 34).code is Code.HUB_TOKEN
    server.fail("whoami", 418)
    error = refusal(server, server.token(), repo.main)
    assert error.code is Code.HUB_REFUSED
    assert "418" in error.detail
    assert "Something went wrong" not in str(error)
    repo.takes_pull_requests = False
    error = refusal(server, server.token(), repo.main)
    assert error.code is Code.HUB_FORBIDDEN
    assert "turned pull requests off" in error.code.meaning.remedy
    server.rename(NAME, "acme/better-model")  # it is not followed: the token is bound to the name
    error = refusal(server, server.token())
    assert (error.code, "acme/better-model" in error.detail) == (Code.HUB_RENAMED, True)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "words"), [("dataset", "is a dataset"), ("space", "is a Space")])
def test_a_repository_of_another_kind_is_an_error(server: HubServer, kind: str, words: str) -> None:
    server.repo(NAME, kind=kind)  # type: ignore[arg-type]
    error = refusal(server, server.token())
    assert (error.code, words in error.detail) == (Code.HUB_NOT_MODEL, True)


@pytest.mark.long
@pytest.mark.parametrize("signed_in", [False, True])
def test_a_repository_that_is_gated_absent_or_private_is_an_error(server: HubServer, signed_in: bool) -> None:
    server.repo("acme/gated", {PATH: b""}, gated=True)
    server.repo("acme/secret", private=True)
    hub = Hub(server.url, server.token() if signed_in else "")
    with pytest.raises(IssuerError) as refused:
        hub.read("acme/gated", PATH)
    assert refused.value.code is Code.HUB_GATED
    assert Hub(server.url, server.token("acme")).read("acme/gated", PATH)
    for name in (NAME, "acme/secret", "no-name", "acme/../x"):
        with pytest.raises(IssuerError) as refused:
            hub.main(name)
        assert refused.value.code is Code.HUB_NOT_FOUND


# -- not now -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "2"}, {"RateLimit": '"api";r=0;t=2', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}],
)
def test_a_rate_limit_is_waited_for_within_the_patience(server: HubServer, headers: dict[str, str]) -> None:
    server.repo(NAME)
    server.fail("/revision/main", 429, headers=headers)
    began = time.monotonic()
    assert Hub(server.url).main(NAME)
    assert time.monotonic() - began >= 2
    assert server.count("/revision/main") == 2
    server.fail("/revision/main", 429, headers={"Retry-After": "3600"}, times=9)
    with pytest.raises(Undecided) as undecided:
        Hub(server.url).main(NAME)
    assert (undecided.value.code, undecided.value.retry_after_s) == (Code.HUB_UNAVAILABLE, 3600)
    assert server.count("/revision/main") == 3


@pytest.mark.long
@pytest.mark.parametrize("status", [0, 408, 500, 502, 503, 504])
def test_an_undecided_answer_is_requested_four_times_at_most(server: HubServer, status: int) -> None:
    server.repo(NAME)
    server.fail("/revision/main", status, headers=AT_ONCE, times=3)
    assert Hub(server.url).main(NAME)
    server.fail("/revision/main", status, headers=AT_ONCE, times=9)
    with pytest.raises(Undecided):
        Hub(server.url).main(NAME)
    assert server.count("/revision/main") == 8


@pytest.mark.long
def test_a_silent_hub_is_not_waited_for_beyond_the_patience(server: HubServer) -> None:
    server.repo(NAME)
    ended = threading.Event()
    server.before("/revision/main", lambda: ended.wait(60))  # a slow peer
    with pytest.raises(Undecided) as undecided:
        Hub(server.url, patience_s=0.5).main(NAME)
    ended.set()
    assert undecided.value.code is Code.HUB_UNAVAILABLE


@pytest.mark.long
def test_the_page_of_a_proxy_is_not_an_answer_of_the_hub(server: HubServer) -> None:
    server.repo(NAME)
    for body in (b"<html>Sign in</html>", b"[]", b"{}", b'{"id": 7}', b'{"id": "acme/open-model"}',
                 b'{"id": "\\u001b[2J", "sha": 1}'):  # fmt: skip
        server.fail("/revision/main", 200, body=body, times=9)
        with pytest.raises(Undecided, match="is not the Hub, or answers with errors") as undecided:
            Hub(server.url, patience_s=1).main(NAME)
        assert undecided.value.code is Code.HUB_UNAVAILABLE


# -- the library ---------------------------------------------------------------------------------------------------------


def test_a_missing_library_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SetupError, match=r"pip install '\.\[hub\]'") as refused:
        Hub("http://127.0.0.1:1").main(NAME)
    assert refused.value.code is Code.PACKAGE_MISSING


@pytest.mark.long
def test_the_library_s_offline_switch_is_an_error() -> None:
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
