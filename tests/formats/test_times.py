"""Times as text for people."""

from issuer.formats.times import show_span, show_time, show_when

NOW = 1_795_000_000


def test_times_are_shown_by_name_and_with_their_distance() -> None:
    assert show_time(NOW) == "2026-11-18T11:06:40Z"
    assert show_time(10**18) == "Unix second 1000000000000000000"
    assert show_when(NOW - 7200, NOW) == "2026-11-18T09:06:40Z (2 h ago)"
    assert show_when(NOW + 3660, NOW) == "2026-11-18T12:07:40Z (in 1 h 1 min)"
    assert show_when(NOW, NOW) == f"{show_time(NOW)} (0 s ago)"


def test_a_span_is_shown_by_its_largest_unit_and_the_one_below() -> None:
    spans = {
        0: "0 s", 1: "1 s", 59: "59 s", 60: "1 min", 61: "1 min 1 s", 3599: "59 min 59 s", 3600: "1 h", 3601: "1 h", 3660: "1 h 1 min",
        86_399: "23 h 59 min", 158_006: "1 d 19 h", 86_400 * 400: "400 d", -3660: "1 h 1 min",
    }  # fmt: skip
    assert {seconds: show_span(seconds) for seconds in spans} == spans
