"""Times as people see them."""

from __future__ import annotations

from issuer.formats.times import show_time


def test_times_have_names_up_to_a_year_and_are_numbers_beyond() -> None:
    assert show_time(1795000000) == "2026-11-18T11:06:40Z"
    assert show_time(10**18) == "Unix second 1000000000000000000"
