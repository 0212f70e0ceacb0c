"""Followed files: changes, faults of the file, and steps of the clock."""

import os
import threading
from collections.abc import Callable, Hashable
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import FormatError, InputError, IssuerError, Place
from issuer.io import files
from issuer.io.followed import Failure, Followed, Reading, look_at

Words = frozenset[str]


class Source:
    """A file of words, which is complete if it ends with a full stop, and its follower."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "words"
        self.reads = 0
        self.reports: list[str] = []
        self.in_reading: Callable[[], object] = lambda: None
        self.again = False

    def look(self) -> Hashable:
        return look_at(str(self.path))

    def read(self, _last: Words | None) -> Reading[Words]:
        self.reads += 1
        raw = files.read(self.path, 100).decode()
        self.in_reading()
        words, end, _ = raw.partition(".")
        error = None if end else InputError(Code.FILE_RULE, "no full stop", Place(str(self.path)))
        return Reading(frozenset(words.split()), error, self.again)

    def report(self, failure: Failure | None) -> None:
        self.reports.append(
            "well" if failure is None else str(failure.code if isinstance(failure, IssuerError) else failure)
        )

    def follow(self, *, confirm: bool = False, narrow: bool = False) -> Followed[Words]:
        return Followed(self.look, self.read, self.report, confirm=confirm, narrow=_narrow if narrow else None)


def _narrow(last: Words, found: Words) -> Words:
    return last if last <= found else last & found


@pytest.fixture
def source(tmp_path: Path) -> Source:
    built = Source(tmp_path)
    built.path.write_text("a b.")
    return built


AB = frozenset("ab")


def test_an_unchanged_file_is_not_read_again(source: Source) -> None:
    followed = source.follow()
    assert not any(followed.turn() for _ in range(3))
    assert (followed.value, source.reads) == (AB, 1)
    os.utime(source.path)
    followed.turn()
    assert source.reads == 2
    followed.turn(asked=True)
    assert source.reads == 3, "an operator asked"
    followed.forget()
    followed.turn()
    assert source.reads == 4


def test_a_change_is_taken_at_once_or_when_two_looks_agree_or_an_operator_asks(source: Source) -> None:
    at_once, confirmed, asked = source.follow(), source.follow(confirm=True), source.follow(confirm=True)
    source.path.write_text("b c.")
    assert at_once.turn()
    assert not confirmed.turn()
    assert confirmed.value == AB
    assert confirmed.turn()
    assert asked.turn(asked=True)
    assert {at_once.value, confirmed.value, asked.value} == {frozenset("bc")}


@pytest.mark.parametrize("confirm", [False, True])
def test_a_half_written_file_leaves_the_last_good_value_and_is_reported_once(source: Source, confirm: bool) -> None:
    followed = source.follow(confirm=confirm)
    source.path.write_text("a")
    for _ in range(4):
        followed.turn()
        assert followed.value == AB
    assert isinstance(followed.error, InputError)
    assert (source.reports, source.reads) == (["file.rule"], 2), "only a change can help"
    source.path.write_text("a b c.")
    followed.turn()
    followed.turn()
    assert followed.value == frozenset("abc")
    assert source.reports == ["file.rule", "well"]
    source.path.write_text("b c")  # it is being written
    followed.turn()
    source.path.write_text("b c d.")
    followed.turn()
    followed.turn()
    reported = ["file.rule", "well"] if not confirm else []
    assert (followed.value, source.reports[2:]) == (frozenset("bcd"), reported), "reported only if it stays bad"


@pytest.mark.parametrize("confirm", [False, True])
def test_a_file_that_vanishes_and_comes_back_leaves_the_last_good_value(source: Source, confirm: bool) -> None:
    followed, away = source.follow(confirm=confirm, narrow=True), source.path.with_name("away")
    source.path.rename(away)
    for _ in range(3):
        followed.turn()
    assert (followed.value, source.reports) == (AB, ["file.unreadable"])
    assert followed.seen is None
    away.rename(source.path)
    followed.turn()
    followed.turn()
    assert (followed.value, source.reports) == (AB, ["file.unreadable", "well"])


def test_an_unreadable_file_is_tried_at_each_look(source: Source) -> None:
    followed = source.follow()
    look, good = source.look(), True
    source.in_reading = lambda: None if good else _raise(OSError(5, "Input/output error"))
    followed._look = lambda: look  # the fingerprint is the same when the disk is back
    good = False
    followed.turn(asked=True)
    followed.turn()
    assert (followed.value, followed.seen, source.reports) == (AB, None, ["[Errno 5] Input/output error"])
    good = True
    followed.turn()
    assert (followed.value, followed.error, source.reports[1:]) == (AB, None, ["well"])


def test_each_new_failure_is_reported_and_the_same_one_again_on_demand(source: Source) -> None:
    followed = source.follow()
    source.path.unlink()
    followed.turn()
    source.path.write_text("a")
    followed.turn()
    source.path.write_text("b")
    followed.turn()
    followed.turn(asked=True)
    assert source.reports == ["file.unreadable", "file.rule", "file.rule"]
    reads, source.again = source.reads, True  # a reader may demand another try of an unchanged file
    source.path.write_text("c")
    for _ in range(3):
        followed.turn()
    assert (source.reads - reads, len(source.reports)) == (3, 3)


def test_an_unreadable_or_damaged_file_keeps_its_user_from_starting(source: Source) -> None:
    source.path.write_text("a")
    with pytest.raises(InputError, match="no full stop"):
        source.follow()
    source.path.unlink()
    with pytest.raises(InputError, match=r"file\.unreadable"):
        source.follow()
    assert source.reports == []


def test_a_removal_takes_effect_at_the_first_look_also_beside_damage(source: Source) -> None:
    followed = source.follow(confirm=True, narrow=True)
    source.path.write_text("a b c.")
    assert not followed.turn(), "no word is gone, and it may be half of a change"
    source.path.write_text("a c")
    assert followed.turn()
    assert (followed.value, source.reports) == (frozenset("a"), ["file.rule"])
    source.path.write_text("c d.")
    assert followed.turn()
    assert (followed.value, followed.error) == (frozenset("cd"), None), "with all that this look shows"


@pytest.mark.parametrize("confirm", [False, True])
def test_a_change_during_the_reading_is_not_lost(source: Source, confirm: bool) -> None:
    followed = source.follow(confirm=confirm)
    source.path.write_text("c.")
    followed.turn()
    source.in_reading = lambda: source.path.write_text("d e.")
    followed.forget()
    followed.turn()
    assert followed.value == (AB if confirm else frozenset("c")), "only what was there is confirmed"
    source.in_reading = lambda: None
    followed.turn()
    followed.turn()
    assert followed.value == frozenset("de")


def test_while_a_reading_hangs_other_threads_have_the_last_good_value(source: Source) -> None:
    followed = source.follow()
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go_on.wait(60)

    source.in_reading = hang
    source.path.write_text("c.")
    reader = threading.Thread(target=followed.turn)
    reader.start()
    assert begun.wait(60)
    assert not followed.turn()
    assert not followed.turn(asked=True)
    assert (followed.value, source.reads) == (AB, 2)
    go_on.set()
    reader.join(60)
    assert followed.value == frozenset("c")
    source.path.write_text("d.")
    assert followed.turn()


@pytest.mark.parametrize("step_s", [-86_400, 86_400])
def test_a_clock_that_steps_hides_no_change(source: Source, step_s: int) -> None:
    followed, before = source.follow(confirm=True), source.path.stat().st_mtime
    source.path.write_text("x y.")
    os.utime(source.path, (before + step_s,) * 2)
    followed.turn()
    assert followed.turn()
    source.path.write_text("y z.")
    os.utime(source.path, (before + step_s,) * 2)  # in the same second, of the same size
    followed.turn()
    assert followed.turn()
    assert followed.value == frozenset("yz")


def test_an_internal_error_ends_the_turn_and_the_next_one_reads_again(source: Source) -> None:
    followed = source.follow()
    source.path.write_text("c.")
    source.in_reading = lambda: _raise(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        followed.turn()
    source.in_reading = lambda: _raise(FormatError(Code.FILE_RULE, "x"))
    followed.turn()
    assert (followed.value, source.reports) == (AB, ["file.rule"])
    source.in_reading = lambda: None
    assert followed.turn()


def _raise(error: Exception) -> None:
    raise error
