"""The cache of key sets against a real HTTP server, on a clock that the test sets: every bound, and a broken disk."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.codes import Code
from issuer.dev.provider import Exchange, LocalProvider, Responder
from issuer.errors import FormatError, SetupError, Undecided
from issuer.formats import jcs, jose
from issuer.io.http_client import HttpRequest, send
from issuer.relying.documents import (
    DEFAULT_AGE_S,
    LONGEST_AGE_S,
    MAX_CACHE_BYTES,
    MAX_DOCUMENT_BYTES,
    Copy,
    Documents,
    default_folder,
)
from tests.support.make import KEY, NOW, STRANGER
from tests.support.responders import dripping, silent
from tests.support.waiting import eventually

PATH = "/.well-known/jwks.json"
ONE = jcs.canonical({"keys": [jose.public_jwk(KEY.public_key())]})
TWO = jcs.canonical({"keys": [jose.public_jwk(key.public_key()) for key in (KEY, STRANGER)]})
EMPTY = b'{"keys":[]}'


def is_key_set(raw: bytes) -> None:
    if not jose.parse_key_set(raw).keys:
        raise FormatError(Code.FILE_RULE, "no usable key")


@pytest.fixture(scope="module")
def running() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


class Site:
    """A URL that answers as the test says, and the requests that it got."""

    def __init__(self, provider: LocalProvider) -> None:
        self.url = provider.issuer + PATH
        self.asked: list[dict[str, str]] = []
        self._answers = provider.answers

    def says(self, status: int, body: bytes = b"", **headers: str) -> None:
        def answer(exchange: Exchange) -> None:
            self.asked.append({name.lower(): value for name, value in exchange.headers.items()})
            exchange.reply(status, body, **headers)

        self._answers[PATH] = answer

    def does(self, answer: Responder) -> None:
        self._answers[PATH] = answer


@pytest.fixture
def site(running: LocalProvider) -> Site:
    running.answers.clear()
    return Site(running)


def body(folder: Path, site: Site, at: int = NOW, **options: Any) -> bytes | None:
    """Ask as a new process would, and return what it gets."""
    copy = Documents(folder, at, **options).get(site.url, is_key_set)
    return None if copy is None else copy.body


# -- ages -------------------------------------------------------------------------------------------------------------


def test_a_copy_serves_as_long_as_its_max_age(tmp_path: Path, site: Site) -> None:
    site.says(200, ONE, Cache_Control="public, max-age=300")
    for at in (NOW, NOW + 100, NOW + 299):
        copy = Documents(tmp_path, at).get(site.url, is_key_set)
        assert copy is not None
        assert (copy.body, copy.fetched_at) == (ONE, NOW)
    site.says(200, TWO)
    assert body(tmp_path, site, NOW + 299) == ONE
    assert len(site.asked) == 1
    assert body(tmp_path, site, NOW + 300) == TWO
    site.says(200, ONE, Cache_Control="max-age=300, stale-if-error=300")
    assert body(tmp_path, site, NOW + 299) == ONE, "a copy from the future does not serve"
    site.says(500)
    assert body(tmp_path, site, NOW + 298) is None


AGES = [
    ("", "", DEFAULT_AGE_S), ("max-age=10", "", 10), ('MAX-AGE = "10"', "", 10), ("max-age=10, max-age=900", "", 10),
    ("max-age=99999999999999", "", 0), ("max-age=-1", "", 0), ("max-age=\u0661", "", 0),
    ("max-age=999999999", "", LONGEST_AGE_S), ("no-cache, max-age=10", "", 0), ("max-age=100", "30", 70),
    ("max-age=100", "300", 0),
]  # fmt: skip


def test_max_age_and_no_store_are_read_strictly_and_ages_bounded(tmp_path: Path, site: Site) -> None:
    for number, (control, age, fresh_s) in enumerate(AGES):
        headers = {"Cache_Control": control.encode().decode("latin-1"), "Age": age}
        site.says(200, ONE, **{name: value for name, value in headers.items() if value})
        copy = Documents(tmp_path / str(number), NOW).get(site.url, is_key_set)
        assert copy is not None
        assert copy.max_age_s == fresh_s, control
        assert copy.is_fresh(NOW + fresh_s) is False
        assert copy.is_fresh(NOW + fresh_s - 1) is (fresh_s > 0)
    site.says(200, ONE, Cache_Control="no-store")
    assert body(tmp_path / "none", site) == ONE
    assert not list((tmp_path / "none").iterdir())


# -- conditional requests ---------------------------------------------------------------------------------------------


def test_an_unchanged_document_is_confirmed_and_not_sent_again(tmp_path: Path, site: Site) -> None:
    site.says(304)
    assert body(tmp_path, site) is None
    assert "if-none-match" not in site.asked[0]
    site.says(200, ONE, ETag='"a"', Cache_Control="max-age=60")
    body(tmp_path, site)
    site.says(304, ETag='"a"', Cache_Control="max-age=60")
    copy = Documents(tmp_path, NOW + 60).get(site.url, is_key_set)
    assert copy is not None
    assert (copy.body, copy.fetched_at) == (ONE, NOW + 60)
    assert site.asked[-1]["if-none-match"] == '"a"'
    site.says(500)
    assert body(tmp_path, site, NOW + 119) == ONE, "fresh once more"


# -- errors -----------------------------------------------------------------------------------------------------------


def test_stale_if_error_bridges_a_server_s_error_but_not_its_refusal(tmp_path: Path, site: Site) -> None:
    for status in (500, 503, 429, 408, 302, 204, 401, 403, 404, 410):
        folder = tmp_path / str(status)
        site.says(200, ONE, Cache_Control="max-age=60, stale-if-error=100")
        body(folder, site)
        site.says(status, Location=site.url + "/elsewhere")
        assert body(folder, site, NOW + 159) == (None if status in {401, 403, 404, 410} else ONE), status
        assert body(folder, site, NOW + 160) is None
    site.says(200, ONE, Cache_Control="max-age=60")
    body(tmp_path, site)
    site.says(500)
    assert body(tmp_path, site, NOW + 60) is None


def test_a_bad_or_empty_set_never_replaces_a_good_one(tmp_path: Path, site: Site) -> None:
    for number, bad in enumerate((EMPTY, b"", b"<html>", b"{}", ONE[:-1], b"\xff", ONE.replace(b"Ed25519", b"Ed448"))):
        folder = tmp_path / str(number)
        site.says(200, ONE, ETag='"a"', Cache_Control="max-age=60, stale-if-error=100")
        body(folder, site)
        site.says(200, bad, ETag='"b"', Cache_Control="max-age=600")
        assert body(folder, site, NOW + 60) == ONE, bad
        assert body(folder, site, NOW + 200) is None
        assert body(folder, site, NOW + 9999, offline=True) == ONE
        site.says(304)
        assert body(folder, site, NOW + 201) == ONE
        assert site.asked[-1]["if-none-match"] == '"a"'


def test_a_redirect_is_not_followed_and_a_large_answer_is_not_read(
    tmp_path: Path, site: Site, running: LocalProvider
) -> None:
    running.answers["/elsewhere"] = lambda exchange: exchange.reply(200, ONE)
    site.says(302, Location=running.issuer + "/elsewhere")
    before = running.requests["/elsewhere"]
    assert body(tmp_path, site) is None
    assert running.requests["/elsewhere"] == before
    site.says(200, ONE.ljust(MAX_DOCUMENT_BYTES + 1))
    assert body(tmp_path, site) is None


def test_a_whole_answer_has_a_deadline(tmp_path: Path, site: Site) -> None:
    def dripping_chunks(exchange: Exchange) -> None:
        exchange.send_response(200)
        exchange.send_header("Transfer-Encoding", "chunked")
        exchange.end_headers()
        while not exchange.server.provider.closing.wait(0.02):
            exchange.wfile.write(b"1\r\n \r\n")

    def dripping_headers(exchange: Exchange) -> None:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for _ in range(100):  # more would be refused
            exchange.server.provider.closing.wait(0.02)
            exchange.wfile.write(b"X-More: 1\r\n")
        silent(exchange)

    before = threading.active_count()  # before the answers below, whose threads take a moment to end
    site.does(dripping)
    with pytest.raises(Undecided):
        send(HttpRequest("GET", site.url), deadline_s=0.2)
    eventually(lambda: threading.active_count() <= before)  # the server's own thread ends when it finds no reader
    for answer in (silent, dripping, dripping_chunks, dripping_headers):
        site.does(answer)
        assert body(tmp_path, site, deadline_s=0.2) is None


def test_only_https_is_fetched(tmp_path: Path) -> None:
    for url in ("http://issuer.example/jwks", "file:///etc/passwd", "ftp://127.0.0.1/x", "jwks.json"):
        with pytest.raises(SetupError):
            Documents(tmp_path, NOW).get(url, is_key_set)


# -- offline ----------------------------------------------------------------------------------------------------------


def test_offline_a_copy_of_any_age_serves_and_nothing_is_requested(tmp_path: Path, site: Site) -> None:
    site.says(200, ONE, Cache_Control="max-age=1")
    assert body(tmp_path, site, offline=True) is None
    assert body(tmp_path, site) == ONE
    assert body(tmp_path, site, NOW + 10**8, offline=True) == ONE
    assert len(site.asked) == 1


# -- the disk ---------------------------------------------------------------------------------------------------------


def kept(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_the_cache_is_its_owner_s_alone_or_is_not_used(tmp_path: Path, site: Site) -> None:
    """Others who may write to it would choose the keys that are trusted."""
    site.says(200, ONE, Cache_Control="max-age=300")
    folder = tmp_path / "a" / "cache"
    body(folder, site)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(kept(folder).stat().st_mode) == 0o600
    for mode in (0o666, 0o620, 0o602):
        kept(folder).chmod(mode)
        site.says(200, TWO)
        assert body(folder, site) == TWO
        assert stat.S_IMODE(kept(folder).stat().st_mode) == 0o600
    for mode in (0o770, 0o707, 0o777):
        folder.chmod(mode)
        with pytest.raises(SetupError) as raised:
            body(folder, site)
        assert raised.value.code is Code.CACHE_UNSAFE
        assert f"chmod 700 {folder}" in raised.value.detail


def spoil(how: str, file: Path) -> None:
    raw = file.read_bytes()
    spoilt = {
        "empty": b"", "cut": raw[:-7], "longer": raw + b"x", "one bit": raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:],
        "text": b"hello\nworld", "no digest": raw.partition(b"\n")[2], "random": os.urandom(500),
    }  # fmt: skip
    if how in spoilt:
        file.write_bytes(spoilt[how])
        return
    file.unlink()
    if how == "folder":
        file.mkdir()
    elif how == "pipe":
        os.mkfifo(file)
    else:
        target = file.with_name("target")
        target.write_bytes(raw)
        file.symlink_to(target)


def test_a_spoilt_cache_file_is_fetched_again(tmp_path: Path, site: Site) -> None:
    for how in ("empty", "cut", "longer", "one bit", "text", "no digest", "random", "folder", "pipe", "link"):
        folder = tmp_path / how
        site.says(200, ONE, Cache_Control="max-age=300, stale-if-error=300")
        body(folder, site)
        spoil(how, kept(folder))
        site.says(200, TWO)
        assert body(folder, site) == TWO, how


def test_another_url_s_copy_does_not_serve(tmp_path: Path, site: Site, running: LocalProvider) -> None:
    site.says(200, ONE)
    body(tmp_path, site)
    Documents(tmp_path, NOW).get(f"{running.issuer}/none", is_key_set)
    theirs = Documents(tmp_path, NOW)._folder
    assert theirs is not None
    theirs.write(Copy(f"{running.issuer}/other", TWO, "", NOW, 300, 0))
    other = next(file for file in tmp_path.iterdir() if file != theirs._file(site.url))
    other.replace(theirs._file(site.url))
    assert body(tmp_path, site) == ONE


def test_a_folder_that_cannot_be_written_costs_the_cache_and_nothing_else(tmp_path: Path, site: Site) -> None:
    site.says(200, ONE)
    (tmp_path / "file").touch()
    assert body(tmp_path / "file", site) == body(tmp_path / "file" / "below", site) == ONE


def test_the_cache_is_bounded_and_removes_no_file_of_others(tmp_path: Path) -> None:
    folder = Documents(tmp_path, NOW)._folder
    assert folder is not None
    (tmp_path / "thesis.tex").write_bytes(b"x")
    os.utime(tmp_path / "thesis.tex", (0, 0))  # the oldest of all
    draft = tmp_path / ".0123456789abcdef.draft"  # of a writer that was killed
    draft.write_bytes(b"x")
    os.utime(draft, (0, 0))
    large = b"x" * MAX_DOCUMENT_BYTES
    for number in range(MAX_CACHE_BYTES // MAX_DOCUMENT_BYTES + 3):
        folder.write(Copy(f"https://a.example/{number}", large, "", NOW, 1, 1))
        os.utime(folder._file(f"https://a.example/{number}"), (number, number))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= MAX_CACHE_BYTES + 1
    assert folder.read("https://a.example/0") is None
    assert folder.read(f"https://a.example/{number}") is not None
    assert (tmp_path / "thesis.tex").exists()
    assert not draft.exists()


def test_readers_never_see_half_a_file(tmp_path: Path, site: Site) -> None:
    """Two writers replace the copy while it is read: each reading is one of the two sets."""
    folder = Documents(tmp_path, NOW)._folder
    assert folder is not None
    folder.write(Copy(site.url, ONE, "", NOW, 300, 0))
    done = threading.Event()

    def write(own: bytes) -> None:
        while not done.is_set():
            folder.write(Copy(site.url, own, "", NOW, 300, 0))

    writers = [threading.Thread(target=write, args=(own,)) for own in (ONE, TWO)]
    for writer in writers:
        writer.start()
    seen = [folder.read(site.url) for _ in range(300)]
    done.set()
    for writer in writers:
        writer.join()
    assert all(copy is not None and copy.body in {ONE, TWO} for copy in seen)


def test_the_folder_is_where_the_user_s_caches_are() -> None:
    folder = default_folder()
    assert folder is not None
    assert (folder.name, folder.is_absolute()) == ("eval-token-issuer", True)
