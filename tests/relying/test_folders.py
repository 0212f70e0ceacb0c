"""The receipts of a relying party: on the disk before they count, and never replaced."""

import hashlib
import stat
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.relying.folders import ReceiptFolder
from issuer.verify.receipts import MAX_BYTES, file_name
from tests.support.disk import disk_calls

DIGEST = f"sha256:{hashlib.sha256(b'a token').hexdigest()}"


def test_a_receipt_is_on_the_disk_with_its_name_before_it_counts(tmp_path: Path) -> None:
    receipts = ReceiptFolder(tmp_path)
    assert disk_calls(lambda: receipts.keep(DIGEST, b"a.receipt.")) == ["file", "rename", "folder"]
    assert receipts[DIGEST] == "a.receipt."
    assert DIGEST in receipts
    assert stat.S_IMODE((tmp_path / file_name(DIGEST)).stat().st_mode) == 0o600


def test_an_empty_file_or_a_draft_of_a_crash_is_not_a_receipt(tmp_path: Path) -> None:
    receipts = ReceiptFolder(tmp_path)
    (tmp_path / file_name(DIGEST)).touch()
    (tmp_path / ".0123456789abcdef.draft").write_bytes(b"a.rec")
    assert DIGEST not in receipts
    receipts.keep(DIGEST, b"a.receipt.")
    assert DIGEST in receipts
    (tmp_path / file_name(DIGEST)).write_bytes(b"x" * 10 * MAX_BYTES)
    assert len(ReceiptFolder(tmp_path)[DIGEST]) == MAX_BYTES + 1, "enough to be refused"


def test_a_receipt_that_cannot_be_opened_or_written_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / file_name(DIGEST)).mkdir()
    receipts = ReceiptFolder(tmp_path)
    for act in (lambda: receipts[DIGEST], lambda: receipts.keep(DIGEST, b"a.receipt.")):
        with pytest.raises(SetupError) as raised:
            act()
        assert raised.value.code is Code.RECEIPT_FOLDER
        assert str(tmp_path / file_name(DIGEST)) in raised.value.detail
