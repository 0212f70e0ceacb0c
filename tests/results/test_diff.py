"""Differences of entries: material if the content digest binds the member, none for spelling, not material for the
token."""

from issuer.results.entry import Entry, content_digest, differences, matched, read_entries
from tests.support import make
from tests.support.result_texts import read_one

SUBMITTED = make.submission({"notes": "no tools", "run": {"seed": 1, "deep": [1, {"a": 2}]}})
FILE = make.file_for(SUBMITTED)


def found(new: Entry) -> list[tuple[str, str, str, bool]]:
    return [(one.pointer, one.left, one.right, one.material) for one in differences(read_one(FILE), new)]


def test_another_spelling_is_not_a_difference() -> None:
    null = "  date: null\n  notes:"
    spelled = {"20.9": "20.90", '"no tools"': "no tools  # c", "  notes:": null, "verify_token": "verifyToken"}
    assert [new for old, new in spelled.items() if found(read_one(FILE.replace(old, new, 1)))] == []


def test_each_member_that_differs_is_listed_with_both_sides() -> None:
    """Another token is listed, and is not material."""
    for old, new, expected in (
        ("20.9", "21", ("/metrics/0/value", "20.9", "21", True)),
        ('"no tools"', '"tools"', ("/notes", '"no tools"', '"tools"', True)),
        ('  notes: "no tools"\n', "", ("/notes", '"no tools"', "", True)),
        ("a: 2", "a: 3", ("/run/deep/1/a", "2", "3", True)),
        ("  notes:", '  x/y: "z"\n  notes:', ("/x~1y", "", '"z"', True)),
        ("  notes:", "  value: 20.9\n  notes:", ("/value", "", "20.9", False)),
    ):
        assert FILE.count(old) >= 1
        other = read_one(FILE.replace(old, new, 1))
        assert found(other) == [expected]
        assert (content_digest(other.form) != SUBMITTED.content_digest) is expected[3]
    (one,) = found(read_one(FILE[: FILE.index("verify_token")] + "verify_token: a.b.c\n"))
    assert (one[0], one[2], one[3]) == ("/verify_token", '"a.b.c"', False)


def test_entries_are_matched_by_what_they_are_of_and_then_by_what_they_say() -> None:
    said = (("t", "x"), ("gsm8k", "y"), ("gsm8k", "no tools"))
    others = [make.file_for(make.submission({"notes": notes}, task_id=task)) for task, notes in said]
    left = read_entries((FILE + others[0] + others[2]).encode(), "l")
    right = read_entries("".join(others).encode(), "r")
    pairs = [(one and one.pointer, other and other.pointer) for one, other in matched(left, right)]
    assert pairs == [("/0", "/1"), ("/1", "/0"), ("/2", "/2")]
    assert list(matched(left[:1], ())) == [(left[0], None)]
    assert list(matched((), right[:1])) == [(None, right[0])]
