"""A relying party's one command, `issuer verify --keep-receipts DIR`, when a file is merged and years later: with a real
issuer's keys, archive and list over HTTP, and a clock that passes a year in between."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from issuer.cli.verify.options import IGNORED, KEY, PUBLIC
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jose
from issuer.io import keyfile
from issuer.service.signing.bounds import LAST_TOKEN_S, PUBLISHED_S
from issuer.verify.receipts import RECEIPT_TYPE, file_name, read_receipt, token_digest
from issuer.verify.signed_statement import write_statement
from tests.support.asking import ask
from tests.support.make import PATH
from tests.support.years import Years, repo_of

DAY = 86_400
START = 1_795_000_000


@pytest.fixture
def site() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


class Loop:
    """A relying party that has one file and one command for it; `out` and `err` are the last output."""

    def __init__(self, folder: Path, site: LocalProvider, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.years = Years(folder / "issuer", site.issuer, site, START)
        self.years.custody.generate()
        self.kept = folder / "kept" / "receipts"

    def merge(self) -> None:
        self.file = self.folder / PATH
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(self.years.sign("merged"))

    def verify(self, *more: object, keep: bool = True) -> int:
        kept = ("--keep-receipts", self.kept) if keep else ()
        trusted = () if "--trust" in more else ("--issuer", self.years.url, "--audience", AUDIENCE)
        self._capsys.readouterr()  # the issuer's output
        code = ask(self.folder, self.years.now, self.file, "--repo", repo_of("merged"), *trusted, *kept, *more)
        self.out, self.err = self._capsys.readouterr()
        return code

    def rotate(self) -> None:
        for seconds in (PUBLISHED_S, LAST_TOKEN_S, DAY):
            assert self.years.custody.rotate().done
            self.years.publish()
            self.years.now += seconds


@pytest.fixture
def loop(tmp_path: Path, site: LocalProvider, capsys: pytest.CaptureFixture[str]) -> Loop:
    return Loop(tmp_path, site, capsys)


def test_one_command_keeps_a_receipt_and_verifies_a_year_later(loop: Loop) -> None:
    loop.merge()
    loop.years.now += 600
    assert loop.verify() == 0, loop.out + loop.err
    token = loop.file.read_text().rpartition('verify_token: "')[2].partition('"')[0]
    receipt = loop.kept / file_name(token_digest(token))
    assert f"the receipt of entry 0: {receipt}" in loop.err
    written = receipt.read_bytes()
    keys = jose.parse_key_set((loop.kept / PUBLIC).read_bytes())
    assert read_receipt(written.decode(), keys).at == loop.years.now
    assert {path.name: path.stat().st_mode & 0o777 for path in loop.kept.iterdir()} == {
        ".lock": 0o600, IGNORED: 0o644, KEY: 0o600, PUBLIC: 0o644, receipt.name: 0o600,
    }  # fmt: skip
    assert loop.kept.stat().st_mode & 0o777 == 0o700

    loop.years.now += 2 * DAY
    assert loop.verify() == 0
    loop.years.now += 180 * DAY
    loop.rotate()  # its key leaves the key set, and is in the archive
    loop.years.now = START + 366 * DAY
    assert loop.verify() == 0
    assert loop.out.startswith("verified: acme/merged@")
    assert "by the receipt:\n" in loop.out
    assert "by a receipt" in loop.out
    assert loop.verify("--received-now") == 0, "the receipt has the earlier time"
    assert receipt.read_bytes() == written, "no receipt is ever replaced"
    assert loop.verify(keep=False) == 4
    (loop.kept / KEY).unlink()
    assert loop.verify("--receipts", loop.kept, keep=False) == 0, "receipts are used without the key"


def test_a_trust_file_without_the_key_gets_the_missing_line(loop: Loop) -> None:
    loop.merge()
    trust, url = loop.folder / "trust.yaml", loop.years.url
    text = (
        f"version: 1\naudience: {AUDIENCE}\nissuers:\n- issuer: {url}\n"
        f"  keys: {{url: {url}/.well-known/jwks.json}}\n  archive: {{url: {url}/.well-known/jwks-archive.json}}\n"
    )
    trust.write_text(text)
    assert loop.verify("--trust", trust) == 6
    line = f'receipt_keys: {{file: "{os.path.relpath(loop.kept / PUBLIC, loop.folder)}"}}'
    assert f"Add this line to {trust}: {line}" in loop.err
    trust.write_text(f"{text}{line}\n")
    assert loop.verify("--trust", trust) == 0
    loop.years.now += 400 * DAY
    assert loop.verify("--trust", trust) == 0
    assert loop.verify("--trust", trust, keep=False) == 4


def test_a_lost_key_or_unusable_receipt_is_not_replaced_and_an_unsafe_folder_refused(loop: Loop) -> None:
    subprocess.run(["git", "init", "-q", loop.folder / "kept"], check=True)
    loop.merge()
    assert loop.verify() == 0
    subprocess.run(["git", "-C", loop.folder / "kept", "add", "-A"], check=True)
    listed = subprocess.run(["git", "-C", loop.folder / "kept", "ls-files"], check=True, capture_output=True, text=True)
    assert (KEY in listed.stdout, f"receipts/{PUBLIC}" in listed.stdout) == (False, True), "git does not add the key"
    (receipt,) = loop.kept.glob("*.jwt")
    good = receipt.read_bytes()
    key, keys = keyfile.read(loop.kept / KEY), jose.parse_key_set((loop.kept / PUBLIC).read_bytes())
    payload = {**msgspec.to_builtins(read_receipt(good.decode(), keys)), "repo": "acme/other"}
    for other in (b"garbage", good[:-20], write_statement(RECEIPT_TYPE, payload, key)):
        receipt.write_bytes(other)
        assert loop.verify() == 6
        assert f"{receipt} is not a receipt that this trust accepts for this entry" in loop.err
        assert receipt.read_bytes() == other
    receipt.unlink()
    receipt.mkdir()
    for form in ("junit", "sarif"):
        assert loop.verify("--format", form) == 6, "and the document is not closed as if it were complete"
        with pytest.raises((ElementTree.ParseError, json.JSONDecodeError)):
            (ElementTree.fromstring if form == "junit" else json.loads)(loop.out)
    receipt.rmdir()
    receipt.write_bytes(good)
    before = (loop.kept / KEY).read_bytes()
    (loop.kept / KEY).unlink()
    assert loop.verify() == 6
    assert f"{loop.kept / KEY}, which signs receipts, is missing" in loop.err
    (loop.kept / KEY).write_bytes(before)
    (loop.kept / KEY).chmod(0o600)
    assert loop.verify() == 0
    loop.kept.chmod(0o777)
    assert loop.verify() == 6
    assert "can be written by others" in loop.err
    assert loop.verify("--receipts", loop.kept, keep=False) == 6
    if not os.geteuid():  # only root gives a folder away
        loop.kept.chmod(0o700)
        os.chown(loop.kept, 65534, 65534)
        assert loop.verify() == 6
        assert "belongs to another user. Give another --keep-receipts" in loop.err
