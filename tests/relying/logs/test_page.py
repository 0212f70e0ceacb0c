"""Every alarm is on the page about the log. Its examples are a story (tests/test_stories.py)."""

import re
from pathlib import Path
from typing import get_args

import issuer.relying
from issuer.tlog.watch import AHEAD_S, BEHIND_S, MAX_ANNOUNCED, AlarmName

PAGE = (Path(issuer.relying.__file__).parent / "LOG.md").read_text("utf-8")


def test_every_alarm_is_on_the_page_with_its_numbers() -> None:
    named = set(re.findall(r"`((?:token|tokens|key|leaf|announcements|checkpoint|log)\.[a-z_]+)`", PAGE))
    assert named == set(get_args(AlarmName))
    assert f"{MAX_ANNOUNCED:,}" in PAGE
    assert f"over {AHEAD_S} s later" in PAGE
    assert f"over {BEHIND_S // 3600} h older" in PAGE
