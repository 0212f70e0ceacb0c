"""Text on a terminal: none that it would obey, columns that stay columns, and a width that no text exceeds."""

from __future__ import annotations

import pytest

from issuer.cli.terminal import printable, render_table, shorten

OBEYED = ["\x1b[2K\rverified", "\x9b2K", "a\nb", "a\u2028b", "\u202everified", "\ufeff", "\x00", "\x7f"]


@pytest.mark.parametrize("text", OBEYED)
def test_no_cell_holds_what_a_terminal_would_obey(text: str) -> None:
    assert printable(text) != text
    table = render_table([["head", "x"], [text, "y"], ["z", text]])
    assert all(sign.isprintable() for sign in table.replace("\n", ""))
    assert len(table.split("\n")) == 3


def test_markup_and_colons_are_text_like_any_other() -> None:
    assert render_table([["[red]a[/red]", ":smile:"], ["b", "c"]]) == "[red]a[/red]  :smile:\nb             c"


def test_signs_that_take_two_columns_are_counted_as_two() -> None:
    assert render_table([["日本", "x"], ["abcd", "y"], ["ab", "z"]]) == "日本  x\nabcd  y\nab    z"


def test_no_line_ends_in_white_space() -> None:
    assert render_table([["a", "long"], ["b", ""], ["", ""]]) == "a  long\nb\n"


@pytest.mark.parametrize(
    ("text", "short"), [("12345678", "12345678"), ("123456789", "12345..."), ("日本日本日", "日本 ..."), ("\x1b[31m12", "\\x1b[...")]
)  # fmt: skip
def test_what_is_too_wide_is_cut_and_says_so(text: str, short: str) -> None:
    assert shorten(text, 8) == short
