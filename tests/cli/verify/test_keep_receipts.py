"""The relying party's loop is one command: `issuer verify --keep-receipts DIR`, when a file is merged and years later.

A real issuer's keys, archive and list over HTTP, and a clock that passes a year in between.
"""

from __future__ import annotations

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
from tests.support.tree import write_result
from tests.support.years import Years, repo_of

DAY = 86_400
START = 1_795_000_000


@pytest.fixture
def site() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


class Loop:
    """A relying party that has one file and one command for it; `said` is what it wrote last."""

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
        self._capsys.readouterr()  # what the issuer's side wrote
        code = ask(self.folder, self.years.now, self.file, "--repo", repo_of("merged"), *trusted, *kept, *more)
        self.said, self.complained = self._capsys.readouterr()
        return code

    def rotate(self) -> None:
        for seconds in (PUBLISHED_S, LAST_TOKEN_S, DAY):
            assert self.years.custody.rotate().done
            self.years.publish()
            self.years.now += seconds


@pytest.fixture
def loop(tmp_path: Path, site: LocalProvider, capsys: pytest.CaptureFixture[str]) -> Loop:
    return Loop(tmp_path, site, capsys)


def test_one_command_keeps_a_receipt_at_the_merge_and_verifies_a_year_later(loop: Loop) -> None:
    loop.merge()
    loop.years.now += 600
    assert loop.verify() == 0, loop.said + loop.complained
    token = loop.file.read_text().rpartition('verify_token: "')[2].partition('"')[0]
    receipt = loop.kept / file_name(token_digest(token))
    assert f"the receipt of entry 0: {receipt}" in loop.complained
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
    assert loop.said.startswith("verified: acme/merged@")
    assert "by the receipt:\n" in loop.said
    assert "by a receipt" in loop.said
    assert loop.verify("--received-now") == 0, "it was received long ago, and that is on record"
    assert receipt.read_bytes() == written, "no receipt is ever replaced"
    assert loop.verify(keep=False) == 4, "without it nobody can tell"
    assert loop.verify("--receipts", loop.kept, keep=False) == 0, "to use them needs no key"
    (loop.kept / KEY).unlink()
    assert loop.verify("--receipts", loop.kept, keep=False) == 0


def test_a_file_that_is_late_gets_no_receipt_and_a_revoked_one_no_yes(loop: Loop) -> None:
    loop.merge()
    loop.years.now += DAY
    assert loop.verify() == 4
    assert loop.verify("--received-now") == 1
    assert list(loop.kept.glob("*.jwt")) == []
    loop.merge()
    assert loop.verify() == 0
    loop.years.now += 30 * DAY
    loop.years.revoke_interval("inspect-ai", START, START + 2 * DAY)
    assert loop.verify() == 1
    assert "the issuer has revoked what inspect-ai had signed at that time" in loop.said


def test_a_trust_file_lists_the_key_or_is_told_the_line_that_does(loop: Loop) -> None:
    loop.merge()
    trust, url = loop.folder / "trust.yaml", loop.years.url
    text = (
        f"version: 1\naudience: {AUDIENCE}\nissuers:\n- issuer: {url}\n"
        f"  keys: {{url: {url}/.well-known/jwks.json}}\n  archive: {{url: {url}/.well-known/jwks-archive.json}}\n"
    )
    trust.write_text(text)
    assert loop.verify("--trust", trust) == 6
    line = f'receipt_keys: {{file: "{os.path.relpath(loop.kept / PUBLIC, loop.folder)}"}}'
    assert f"Add this line to {trust}: {line}" in loop.complained
    trust.write_text(f"{text}{line}\n")
    assert loop.verify("--trust", trust) == 0
    loop.years.now += 400 * DAY
    assert loop.verify("--trust", trust) == 0
    assert loop.verify("--trust", trust, keep=False) == 4


def test_a_key_that_is_gone_gets_no_successor_and_an_open_folder_is_refused(loop: Loop) -> None:
    loop.merge()
    assert loop.verify() == 0
    before = (loop.kept / KEY).read_bytes()
    (loop.kept / KEY).unlink()
    assert loop.verify() == 6
    assert f"{loop.kept / KEY}, which signs receipts, is missing" in loop.complained
    (loop.kept / KEY).write_bytes(before)
    (loop.kept / KEY).chmod(0o600)
    assert loop.verify() == 0
    loop.kept.chmod(0o777)
    assert loop.verify() == 6
    assert "can be written by others" in loop.complained
    assert loop.verify("--receipts", loop.kept, keep=False) == 6


def test_a_folder_of_repositories_keeps_a_receipt_of_each_that_verifies(loop: Loop) -> None:
    for name in ("one", "two", "three"):
        write_result(loop.folder / "hub", repo_of(name), Path(PATH).name, loop.years.sign(name))
    spoilt = loop.folder / "hub" / repo_of("three") / PATH
    spoilt.write_text(spoilt.read_text().replace("20.9", "21.9"))
    by = ("--issuer", loop.years.url, "--audience", AUDIENCE, "--keep-receipts", loop.kept, "--jobs", 2, "--quiet")
    assert ask(loop.folder, loop.years.now, loop.folder / "hub", *by) == 1
    assert len(list(loop.kept.glob("*.jwt"))) == 2
    spoilt.unlink()
    loop.years.now += 400 * DAY
    assert ask(loop.folder, loop.years.now, loop.folder / "hub", *by) == 0


def test_a_receipt_that_does_not_serve_is_told_and_left_as_it_is(loop: Loop) -> None:
    loop.merge()
    assert loop.verify() == 0
    (receipt,) = loop.kept.glob("*.jwt")
    good = receipt.read_bytes()
    key, keys = keyfile.read(loop.kept / KEY), jose.parse_key_set((loop.kept / PUBLIC).read_bytes())
    payload = {**msgspec.to_builtins(read_receipt(good.decode(), keys)), "repo": "acme/other"}
    for other in (b"garbage", good[:-20], write_statement(RECEIPT_TYPE, payload, key)):
        receipt.write_bytes(other)
        assert loop.verify() == 6, "a year later it would be no answer"
        assert f"{receipt} is not a receipt that this trust accepts for this entry" in loop.complained
        assert receipt.read_bytes() == other
    receipt.write_bytes(good)
    assert loop.verify() == 0


def test_a_document_is_not_closed_as_if_nothing_was_found_where_a_receipt_cannot_be_kept(loop: Loop) -> None:
    loop.merge()
    assert loop.verify() == 0
    (receipt,) = loop.kept.glob("*.jwt")
    receipt.unlink()
    receipt.mkdir()
    for form in ("junit", "sarif"):
        assert loop.verify("--format", form) == 6
        with pytest.raises((ElementTree.ParseError, json.JSONDecodeError)):
            (ElementTree.fromstring if form == "junit" else json.loads)(loop.said)


def test_the_key_stays_out_of_a_repository_that_its_folder_lies_in(loop: Loop) -> None:
    subprocess.run(["git", "init", "-q", loop.folder / "kept"], check=True)
    loop.merge()
    assert loop.verify() == 0
    subprocess.run(["git", "-C", loop.folder / "kept", "add", "-A"], check=True)
    listed = subprocess.run(["git", "-C", loop.folder / "kept", "ls-files"], check=True, capture_output=True, text=True)
    assert KEY not in listed.stdout
    assert f"receipts/{PUBLIC}" in listed.stdout


def test_a_folder_of_another_user_is_refused(loop: Loop) -> None:
    if os.geteuid():
        pytest.skip("only root gives a folder away")
    loop.kept.mkdir(parents=True, mode=0o700)
    os.chown(loop.kept, 65534, 65534)
    loop.merge()
    assert loop.verify() == 6
    assert "belongs to another user. Give another --keep-receipts" in loop.complained
    assert list(loop.kept.iterdir()) == []
