"""`stops.yaml` is read strictly and separately: its well-formed stops count, and an edit keeps the rest of the text."""

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import InputError
from issuer.policy.authoring.load import load_policies
from issuer.policy.authoring.stops import MAX_STOPS_BYTES, add_stop, read_stops, remove_stops
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
    reason: "an outage of unknown cause"
    since: "2026-11-21T08:30:00Z"
    until: "2026-11-22T08:30:00Z"
"""
FIRST = Stop("integration:inspect-ai", "its key is in a log", "2026-11-21T08:00:00Z")
SECOND = Stop("provider:hub", "an outage of unknown cause", "2026-11-21T08:30:00Z", "2026-11-22T08:30:00Z")
NEW = Stop("everything", 'because "of" \n it', "2026-11-21T09:00:00Z")


def removed(raw: bytes, what: str) -> bytes:
    after = remove_stops(raw, "stops.yaml", what)
    assert after is not None
    return after


def test_a_broken_stop_is_reported_with_its_place_and_hides_no_other() -> None:
    for old, new, expected, left in [
        ('"provider:hub"', '"providers:hub"', "stops.yaml:9:11: file.rule: give everything, provider:ID", 1),
        ('"2026-11-21T08:30:00Z"', '"yesterday"', "stops.yaml:11:12: file.rule: must be a UTC time", 1),
        ('until: "2026-11-22', 'until: "2026-11-20', "stops.yaml:12:12: file.rule: must be after `since`", 1),
        ("until:", "untill:", "stops.yaml:12:13: file.unknown_member", 1),
        ('    reason: "its key is in a log"\n', "", "stops.yaml:5:5: file.schema", 1),
        ("version: 1", "version: 2", "stops.yaml:2:10: file.schema", 2),
        ("stops:\n", "stops:\n stop: [\n", "stops.yaml:", 0),
    ]:
        text = FILE.replace(old, new)
        assert text != FILE
        stops, errors = read_stops(text.encode(), "stops.yaml")
        assert (str(errors[0])[: len(expected)], len(stops.all)) == (expected, left)


def test_the_folder_s_policies_load_beside_any_stops_file(tmp_path: Path) -> None:
    write(tmp_path, inspect_ai=POLICY)
    before = load_policies(tmp_path, ISSUER_URL)
    for text in (FILE, "nothing good", ""):
        (tmp_path / "stops.yaml").write_text(text)
        after = load_policies(tmp_path, ISSUER_URL)
        assert (after.digest, after.digests) == (before.digest, before.digests), "no stop changes what tokens say"


def test_a_stop_is_added_below_the_others_of_a_file_of_any_layout_or_makes_the_file() -> None:
    after = add_stop(FILE.encode(), "stops.yaml", NEW)
    assert after.startswith(FILE.encode())
    stops, errors = read_stops(after, "stops.yaml")
    assert (stops.all, errors) == ((FIRST, SECOND, NEW), ())
    for before in (None, b"version: 1\nstops: []\n", b"stops: []\nversion: 1"):
        assert read_stops(add_stop(before, "stops.yaml", NEW), "stops.yaml")[0].all == (NEW,)
    for text in [
        'version: 1\nstops: [{what: "provider:hub", reason: "a", since: "2026-11-21T08:00:00Z"}]\n',
        'stops:\n- what: "provider:hub"\n  reason: "a"\n  since: "2026-11-21T08:00:00Z"\nversion: 1\n',
        'version: 1\nstops:\n- {what: "provider:hub", reason: "a", since: "2026-11-21T08:00:00Z"}',
    ]:
        (old,) = read_stops(text.encode(), "stops.yaml")[0].all
        after = add_stop(text.encode(), "stops.yaml", NEW)
        assert read_stops(after, "stops.yaml")[0].all == (old, NEW)
        assert read_stops(removed(after, "provider:hub"), "stops.yaml")[0].all == (NEW,)


def test_a_stop_is_removed_with_its_lines_alone_and_the_last_leaves_an_empty_file() -> None:
    after = removed(FILE.encode(), "integration:inspect-ai")
    lines = FILE.splitlines(keepends=True)
    assert after.decode() == "".join([*lines[:4], *lines[7:]])
    stops, errors = read_stops(removed(after, "provider:hub"), "stops.yaml")
    assert (stops.all, errors) == ((), ())
    assert remove_stops(FILE.encode(), "stops.yaml", "everything") is None, "it is not stopped"


def test_a_broken_file_gets_the_stop_and_keeps_an_error_and_every_line() -> None:
    """Its other stops are unknown: while it has an error, the service lifts none of those that it had."""
    later = Stop("provider:robots", "b", "2026-11-21T09:00:00Z")
    misspelt, conflict = FILE.replace("until:", "untill:"), f"<<<<<<< HEAD\n{FILE}=======\n"
    for broken, readable in {
        misspelt.encode(): (FIRST,),
        conflict.encode(): (),
        FILE[:-5].encode(): (),
        FILE.replace("version: 1", "version: 2").encode(): (FIRST, SECOND),
        b'version: 1\nstops: [{what: "everything"}]': (),
        b"version: 1\nstops:\n": (), b"": (), b"\xff\xe2\x80\xa8\x00 [\r\n": (), b"nothing good": (), b"[]": (),
    }.items():  # fmt: skip
        once = add_stop(broken, "stops.yaml", NEW)
        twice = add_stop(once, "stops.yaml", later)
        for after, added in ((once, (NEW,)), (twice, (NEW, later))):
            stops, errors = read_stops(after, "stops.yaml")
            assert (stops.all, bool(errors)) == ((*readable, *added), True), after
        assert twice.startswith(once), "only the first edit may have to set lines aside"
        with pytest.raises(InputError):
            remove_stops(once, "stops.yaml", "everything")
    assert add_stop(misspelt.encode(), "stops.yaml", NEW).startswith(misspelt.encode())
    kept = add_stop(conflict.encode(), "stops.yaml", NEW).decode().splitlines()
    assert set(kept) >= {f"# {line}".rstrip() for line in conflict.splitlines()}


def test_a_file_without_room_for_a_stop_is_refused() -> None:
    full = FILE.replace("its key is in a log", "x" * (MAX_STOPS_BYTES - len(FILE)))
    with pytest.raises(InputError) as error:
        add_stop(full.encode(), "stops.yaml", NEW)
    assert error.value.code is Code.FILE_TOO_LARGE
