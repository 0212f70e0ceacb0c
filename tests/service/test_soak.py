"""The short form of `make soak`: memory, descriptors and keys stay bounded under mixed traffic from many addresses."""

from pathlib import Path

import pytest

from tests.support.soak import judge, soak


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process")  # forked beside the provider's thread, which the children do not use
def test_twenty_thousand_mixed_requests_leave_nothing_behind(tmp_path: Path) -> None:
    assert judge(soak(tmp_path, 20_000)) == []
