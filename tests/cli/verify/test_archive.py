"""`issuer verify` where the archive of an issuer's keys is not to be had: what has rotated away is no accusation."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.relying.folders import ReceiptFolder
from issuer.results.entry import read_entries
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import write_receipt
from tests.support import make
from tests.support.command import issuer
from tests.support.tree import write_result

# When the file came: more than a year ago, in time.
ISSUED = int(time.time()) - make.YEAR
WINDOW = {"active_from": ISSUED - 86_400, "last_token_exp": ISSUED + 86_400}
GOOD = make.jwks(make.KEY, **WINDOW)
# Of an archive: as published, none, down, a captive portal, and one that is no archive.
ANSWERS = pytest.mark.parametrize(
    ("status", "archive"),
    [
        (200, GOOD),
        (404, b""),
        *(pytest.param(*answer, marks=pytest.mark.long) for answer in ((500, b""), (200, b"<"), (200, make.jwks()))),
    ],
)


@pytest.fixture(scope="module")
def site() -> Iterator[LocalProvider]:
    """An issuer whose only key is another one by now."""
    with LocalProvider() as provider:
        provider.answers[JWKS_PATH] = lambda exchange: exchange.reply(200, make.jwks(make.STRANGER))
        yield provider


@pytest.fixture
def hub(tmp_path: Path, site: LocalProvider) -> Path:
    """A repository with the file, and beside it receipts that its relying party wrote when it came."""
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
    """Return the exit code, the verdict, and of check 2 status and evidence: of a file, or the folder that it is in."""
    repo = [] if path.is_dir() else ["--repo", make.REPO]
    done = issuer("verify", path, *repo, *options, "--cache", path.parent / "cache", "--json")
    assert done.stdout, done.stderr
    first: dict[str, Any] = json.loads(done.stdout.splitlines()[0] if path.is_dir() else done.stdout)
    report = first if path.is_dir() else first["reports"][0]
    return done.returncode, report["verdict"], report["checks"][1]["status"], report["checks"][1]["evidence"]


@pytest.mark.parametrize("whole", [False, True], ids=["FILE", "DIR"])
@ANSWERS
def test_a_receipt_outlives_its_key_and_waits_for_the_archive(
    hub: Path, site: LocalProvider, status: int, archive: bytes, whole: bool
) -> None:
    site.answers[ARCHIVE_PATH] = lambda exchange: exchange.reply(status, archive)
    by = by_file(hub.parent, site.issuer, f"  archive: {{url: {site.issuer}{ARCHIVE_PATH}}}\n")
    path = hub if whole else hub / make.REPO / make.PATH
    for when in ((), ("--received-now",)):
        *answer, evidence = judged(path, *by, *when)
        if archive == GOOD:
            assert (answer, "from the archive" in evidence) == ([0, "verified", "pass"], True)
        else:
            assert (answer, "is unavailable" in evidence) == ([4, "undecided", "unknown"], True)


@pytest.mark.parametrize("whole", [False, True], ids=["FILE", "DIR"])
def test_a_trust_file_that_names_no_archive_says_so_and_accuses_nobody(
    hub: Path, site: LocalProvider, whole: bool
) -> None:
    path = hub if whole else hub / make.REPO / make.PATH
    *answer, evidence = judged(path, *by_file(hub.parent, site.issuer, ""))
    assert (answer, "names no archive" in evidence) == ([4, "undecided", "unknown"], True)


@ANSWERS
def test_who_trusts_an_issuer_by_its_url_and_says_when_it_came_has_no_false_no(
    hub: Path, site: LocalProvider, status: int, archive: bytes
) -> None:
    site.answers[ARCHIVE_PATH] = lambda exchange: exchange.reply(status, archive)
    by = ("--issuer", site.issuer, "--audience", make.AUDIENCE)
    good = archive == GOOD
    path = hub / make.REPO / make.PATH
    assert judged(path, *by)[:3] == (4, "undecided", "unknown"), "a reader, who has no receipt"
    for more in ((), ("--offline",)):
        answer = judged(path, *by, "--at", ISSUED + 5, *more)[:3]
        assert answer == ((0, "verified", "pass") if good else (4, "undecided", "unknown"))
