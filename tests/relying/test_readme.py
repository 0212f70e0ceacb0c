"""The numbers of the pages for relying parties. Their examples are a story (tests/test_stories.py)."""

import re
from pathlib import Path
from typing import get_args

import issuer.relying
from issuer.relying.documents import LONGEST_AGE_S, MAX_CACHE_BYTES, MAX_DOCUMENT_BYTES
from issuer.tlog.watch import AHEAD_S, BEHIND_S, MAX_ANNOUNCED, AlarmName

FOLDER = Path(issuer.relying.__file__).parent


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = (FOLDER / "README.md").read_text("utf-8")
    assert f"{MAX_CACHE_BYTES // 2**20} MiB" in page
    assert f"{MAX_DOCUMENT_BYTES // 2**20} MiB" in page
    assert LONGEST_AGE_S == 86_400


def test_every_alarm_is_on_the_page_of_the_log_with_its_numbers() -> None:
    page = (FOLDER / "LOG.md").read_text("utf-8")
    named = set(re.findall(r"`((?:token|tokens|key|leaf|announcements|checkpoint|log)\.[a-z_]+)`", page))
    assert named == set(get_args(AlarmName))
    assert f"{MAX_ANNOUNCED:,}" in page
    assert f"over {AHEAD_S} s later" in page
    assert f"over {BEHIND_S // 3600} h older" in page
