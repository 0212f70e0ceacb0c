"""`stops.yaml` is read strictly and apart; what of it is well-formed counts, and editing it keeps what people wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.stops import add_stop, read_stops, remove_stops
from issuer.policy.stops import Stop
from tests.support.policies import ISSUER_URL, POLICY, write

FILE = """\
# Written in a hurry.
version: 1
stops:
  # the first one
  - what: "integration:inspect-ai"   # all of it
    reason: "its key is in a log"
    since: "2026-11-21T08:00:00Z"
  # the second one
  - what: "provider:hub"
    reason: "an outage: nobody knows more"
    since: "2026-11-21T08:30:00Z"
    until: "2026-11-22T08:30:00Z"
"""
FIRST, SECOND = (
    Stop("integration:inspect-ai", "its key is in a log", "2026-11-21T08:00:00Z"),
    Stop("provider:hub", "an outage: nobody knows more", "2026-11-21T08:30:00Z", "2026-11-22T08:30:00Z"),
)
NEW = Stop("everything", 'because "of" \n it', "2026-11-21T09:00:00Z")


def found(text: str) -> list[str]:
    return [str(finding) for finding in read_stops(text.encode(), "stops.yaml")[1]]


def test_a_good_file_is_read_whole() -> None:
    stops, errors = read_stops(FILE.encode(), "stops.yaml")
    assert (stops.all, errors) == ((FIRST, SECOND), ())
    assert read_stops(b"version: 1\nstops: []\n", "stops.yaml")[0].all == ()


def removed(raw: bytes, what: str) -> bytes:
    after = remove_stops(raw, "stops.yaml", what)
    assert after is not None
    return after


@pytest.mark.parametrize(
    ("old", "new", "expected", "left"),
    [
        ('"provider:hub"', '"providers:hub"', "stops.yaml:9:11: file.rule: give everything, provider:ID", 1),
        ('"2026-11-21T08:30:00Z"', '"yesterday"', "stops.yaml:11:12: file.rule: must be a UTC time", 1),
        ('until: "2026-11-22', 'until: "2026-11-20', "stops.yaml:12:12: file.rule: must be after `since`", 1),
        ("until:", "untill:", "stops.yaml:12:13: file.unknown_member", 1),
        ('    reason: "its key is in a log"\n', "", "stops.yaml:5:5: file.schema", 1),
        ("version: 1", "version: 2", "stops.yaml:2:10: file.schema", 2),
        ("stops:\n", "stops:\n stop: [\n", "stops.yaml:", 0),
    ],
)
def test_a_broken_stop_is_reported_with_its_place_and_hides_no_other(
    old: str, new: str, expected: str, left: int
) -> None:
    text = FILE.replace(old, new)
    assert text != FILE
    assert found(text)[0].startswith(expected)
    assert len(read_stops(text.encode(), "stops.yaml")[0].all) == left


def test_the_folder_s_policies_load_beside_any_stops_file(tmp_path: Path) -> None:
    write(tmp_path, inspect_ai=POLICY)
    before = load_policies(tmp_path, ISSUER_URL)
    for text in (FILE, "nothing good", ""):
        (tmp_path / "stops.yaml").write_text(text)
        after = load_policies(tmp_path, ISSUER_URL)
        assert (after.digest, after.digests) == (before.digest, before.digests), "no stop changes what tokens say"


def test_what_is_not_stopped_cannot_be_resumed() -> None:
    assert remove_stops(FILE.encode(), "stops.yaml", "everything") is None


# -- editing ----------------------------------------------------------------------------------------------------------


def test_a_stop_is_written_below_the_others_and_every_comment_stays() -> None:
    after = add_stop(FILE.encode(), "stops.yaml", NEW)
    assert after.startswith(FILE.encode())
    assert read_stops(after, "stops.yaml")[0].all == (FIRST, SECOND, NEW)


@pytest.mark.parametrize("before", [None, b"version: 1\nstops: []\n", b"stops: []\nversion: 1"])
def test_the_first_stop_makes_the_file(before: bytes | None) -> None:
    assert read_stops(add_stop(before, "stops.yaml", NEW), "stops.yaml")[0].all == (NEW,)


@pytest.mark.parametrize(
    "text",
    [
        'version: 1\nstops: [{what: "provider:hub", reason: "a", since: "2026-11-21T08:00:00Z"}]\n',
        'stops:\n- what: "provider:hub"\n  reason: "a"\n  since: "2026-11-21T08:00:00Z"\nversion: 1\n',
        'version: 1\nstops:\n- {what: "provider:hub", reason: "a", since: "2026-11-21T08:00:00Z"}',
    ],
)
def test_a_file_of_any_layout_takes_a_stop_and_loses_one(text: str) -> None:
    (old,) = read_stops(text.encode(), "stops.yaml")[0].all
    after = add_stop(text.encode(), "stops.yaml", NEW)
    assert read_stops(after, "stops.yaml")[0].all == (old, NEW)
    assert read_stops(removed(after, "provider:hub"), "stops.yaml")[0].all == (NEW,)


def test_a_stop_is_taken_out_with_its_lines_alone() -> None:
    after = removed(FILE.encode(), "integration:inspect-ai")
    lines = FILE.splitlines(keepends=True)
    assert after.decode() == "".join([*lines[:4], *lines[7:]])


def test_the_last_stop_leaves_a_file_that_stops_nothing() -> None:
    none = removed(removed(FILE.encode(), "integration:inspect-ai"), "provider:hub")
    assert read_stops(none, "stops.yaml")[0].all == ()
    assert read_stops(none, "stops.yaml")[1] == ()


def test_a_broken_file_is_not_edited() -> None:
    """What it was to stop is not known; the service goes on with what it had, and people must look."""
    broken = FILE.replace("until:", "untill:").encode()
    with pytest.raises(InputError) as error:
        add_stop(broken, "stops.yaml", NEW)
    with pytest.raises(InputError):
        remove_stops(broken, "stops.yaml", "provider:hub")
    assert error.value.code is Code.FILE_UNKNOWN_MEMBER
    assert error.value.place.line == 12
