"""`issuer verify` without the archive of an issuer's keys: a key that has rotated away fails no file."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import Exchange, LocalProvider
from issuer.relying.folders import ReceiptFolder
from issuer.results.entry import read_entries
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import write_receipt
from tests.support import make
from tests.support.in_process import run
from tests.support.tree import write_result

# When the file came: more than a year ago, in time.
ISSUED = int(time.time()) - make.YEAR
WINDOW = {"active_from": ISSUED - 86_400, "last_token_exp": ISSUED + 86_400}
GOOD = make.jwks(make.KEY, **WINDOW)
# An archive as published; then an absent one, a server that fails, a captive portal, and a key set without the key.
UNDECIDED = [4, "undecided", "unknown"]
ANSWERS = ((200, GOOD), (404, b""), (500, b""), (200, b"<"), (200, make.jwks()))


@pytest.fixture(scope="module")
def site() -> Iterator[LocalProvider]:
    """An issuer that has replaced its only key."""
    with LocalProvider() as provider:
        provider.answers[JWKS_PATH] = lambda exchange: exchange.reply(200, make.jwks(make.STRANGER))
        yield provider


@pytest.fixture
def hub(tmp_path: Path, site: LocalProvider) -> Path:
    """A repository with the file, and beside it the receipt of its relying party."""
    text = make.file_for(make.submission(), iss=site.issuer, iat=ISSUED, nbf=ISSUED, exp=ISSUED + 3600)
    write_result(tmp_path / "hub", make.REPO, Path(make.PATH).name, text)
    trust = make.trust(issuer=site.issuer, receipt_keys=make.key_set(make.RECEIPT_KEY), keys_fetched_at=ISSUED + 5)
    context = Context(ISSUED + 5, witnessed=True)
    (report,) = verify_entries(read_entries(text.encode(), ""), make.REPO, make.PATH, trust, ISSUED + 5, context)
    receipt = write_receipt(report, trust, make.RECEIPT_KEY, ISSUED + 5)
    assert receipt is not None
    (tmp_path / "receipts").mkdir()
    ReceiptFolder(tmp_path / "receipts").keep(report.token_digest, receipt)
    return tmp_path / "hub"


def answer_with(status: int, body: bytes, exchange: Exchange) -> None:
    exchange.reply(status, body)


def by_file(folder: Path, url: str, more: str) -> list[object]:
    """Judge by a trust file, with receipts."""
    (folder / "receipt-keys.json").write_bytes(make.jwks(make.RECEIPT_KEY))
    trust = folder / "trust.yaml"
    trust.write_text(
        f"version: 1\naudience: {make.AUDIENCE}\nreceipt_keys: {{file: receipt-keys.json}}\n"
        f"issuers:\n- issuer: {url}\n  keys: {{url: {url}{JWKS_PATH}}}\n{more}"
    )
    return ["--trust", trust, "--receipts", folder / "receipts"]


def judged(path: Path, *options: object) -> tuple[int, str, str, str]:
    """Return the exit code, the verdict, and status and evidence of check 2, for a file or its folder."""
    target = ["--jobs", "1"] if path.is_dir() else ["--repo", make.REPO]
    done = run(["verify", str(path), *target, *map(str, options), "--json"], path.parent)
    assert done.out, done.err
    first: dict[str, Any] = json.loads(done.out.splitlines()[0] if path.is_dir() else done.out)
    report = first if path.is_dir() else first["reports"][0]
    return done.code, report["verdict"], report["checks"][1]["status"], report["checks"][1]["evidence"]


def test_a_receipt_or_stated_time_outlives_its_key_if_the_archive_is_available(hub: Path, site: LocalProvider) -> None:
    file = hub / make.REPO / make.PATH
    trust = by_file(hub.parent, site.issuer, f"  archive: {{url: {site.issuer}{ARCHIVE_PATH}}}\n")
    for number, (status, archive) in enumerate(ANSWERS):
        site.answers[ARCHIVE_PATH] = partial(answer_with, status, archive)
        good, cache = [0, "verified", "pass"], ("--cache", hub.parent / str(number))
        wanted, text = (good, "from the archive") if archive == GOOD else (UNDECIDED, "is unavailable")
        for path in (file, hub):
            for when in ((), ("--received-now",)):
                *found, evidence = judged(path, *trust, *when, *cache)
                assert (found, text in evidence) == (wanted, True), status
        by = ("--issuer", site.issuer, "--audience", make.AUDIENCE, "--cache", hub.parent / f"reader {number}")
        assert [*judged(file, *by)[:3]] == UNDECIDED, "a reader without a receipt"
        for more in ((), ("--offline",)):
            assert [*judged(file, *by, "--at", ISSUED + 5, *more)[:3]] == wanted, status
    for path in (file, hub):
        *found, evidence = judged(path, *by_file(hub.parent, site.issuer, ""), "--cache", hub.parent / "none")
        assert (found, "names no archive" in evidence) == (UNDECIDED, True)
