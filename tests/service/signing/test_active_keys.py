"""The keys of a running process follow their folders: a missing key is dropped at once, a new one only if all are fit."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.io import files
from issuer.service.signing.bounds import PUBLISHED_S
from issuer.service.signing.keyring import generate
from issuer.service.signing.lifecycle import KeyState
from tests.support.key_hosts import KeyHost, Seconds


@contextlib.asynccontextmanager
async def house(folder: Path, *states: KeyState) -> AsyncIterator[KeyHost]:
    """Run a host with these keys, which has no store and so hears of no other."""
    host = KeyHost(folder, Seconds()).has(*states).start()
    try:
        yield host
    finally:
        await host.stop()


def loaded(host: KeyHost) -> list[tuple[object, object]]:
    return [(event["event"], event["keys"]) for event in host.recorded()]


async def test_a_key_that_is_gone_or_not_fit_any_more_is_dropped_at_the_first_look(tmp_path: Path) -> None:
    changes: list[Callable[[Path], object]] = [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"not a key"),
        lambda path: path.chmod(0o644),
        lambda path: path.rename(f"{path}.old"),
    ]
    for number, change in enumerate(changes):
        async with house(tmp_path / str(number), "active", "retiring") as it:
            active, retiring = it.paths
            change(retiring)
            await it.turn()
            assert (it.signer.usable_kids, it.published) == ((active.stem,), {active.stem}), number
            with pytest.raises(Undecided) as error:
                await it.signer.sign(retiring.stem, (b"x",))
            assert error.value.code is Code.DEPENDENCY_SIGNER


async def test_nothing_else_that_is_wrong_keeps_a_key_that_is_gone(tmp_path: Path) -> None:
    def replace_audit(it: KeyHost) -> None:
        it.events.rename(it.events.with_suffix(".old"))
        it.events.mkdir()

    faults: dict[str, Callable[[KeyHost], object]] = {
        "an unfit key": lambda it: generate(it.keys, "next").write_bytes(b"not a key"),
        "two active keys": lambda it: generate(it.keys, "active"),
        "the same key twice": lambda it: it.copy(it.paths[0], "next"),
        "no audit": replace_audit,
    }
    for beside, spoil in faults.items():
        async with house(tmp_path / beside, "active", "retiring") as it:
            active, stolen = it.paths
            spoil(it)
            stolen.unlink()
            await it.turn()
            assert (it.signer.active_kid, it.signer.usable_kids) == (active.stem, (active.stem,)), beside
            assert it.signer.stale is (beside != "no audit")


async def test_a_new_key_waits_until_two_looks_agree_and_the_folders_are_fit(tmp_path: Path) -> None:
    async with house(tmp_path, "active") as it:
        await it.signer.announce()
        (first,) = it.paths
        new = generate(it.keys, "next")
        await it.turn()
        assert it.published == {first.stem}
        await it.turn()
        assert it.published == {first.stem, new.stem}
        it.write("published", new)
        it.clock.now += PUBLISHED_S
        it.move(new, "active")  # half of a rotation
        for _ in range(3):
            await it.turn()
        assert (it.signer.active_kid, it.signer.stale) == (first.stem, True)
        it.move(first, "retiring")
        await it.turn(True)  # a signal asks for it: no second look
        assert (it.signer.active_kid, it.signer.stale) == (new.stem, False)
        assert it.published == {first.stem, new.stem}
        assert loaded(it) == [
            ("keys_loaded", {first.stem: "active"}),
            ("keys_loaded", {first.stem: "active", new.stem: "next"}),
            ("keys_refused", {first.stem: "active", new.stem: "next"}),
            ("keys_loaded", {new.stem: "active", first.stem: "retiring"}),
        ]


async def test_a_key_that_moves_while_the_folders_are_read_is_not_dropped(tmp_path: Path) -> None:
    async with house(tmp_path, "active", "retiring") as it:
        active, retiring = it.paths
        reads: list[int] = []

        def tell() -> None:
            """Called when the files have been listed, and before they are read."""
            reads.append(1)
            if len(reads) == 1:
                it.move(retiring, "next")

        it.signer._passphrase = tell
        generate(it.keys, "next")
        await it.turn()
        assert len(reads) == 2
        assert set(it.signer.usable_kids) == {active.stem, retiring.stem}


async def test_without_its_passphrase_a_key_stays_while_its_file_does(tmp_path: Path) -> None:
    async with house(tmp_path, "active", "retiring", "next") as it:
        active, stolen, upcoming = it.paths
        it.passphrase = b"gone"
        stolen.unlink()
        await it.turn(True)
        assert it.published == {active.stem, upcoming.stem}
        assert it.signer.active_kid == active.stem
        it.passphrase = None
        await it.turn()  # without a request: it could not be judged before
        assert not it.signer.stale
        assert it.life(stolen).what == "removed"


async def test_what_is_wrong_with_the_folders_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    async with house(tmp_path, "active", "retiring") as it:
        await it.signer.announce()
        it.passphrase = b"gone"
        os.utime(it.paths[0])
        with capture_logs() as logged:
            await it.turn(times=4)
            await it.turn(True)
            it.passphrase = None
            await it.turn(times=3)
        assert [line["event"] for line in logged] == ["keys refused", "keys refused", "keys accepted again"]
        assert [event for event, _ in loaded(it)] == ["keys_loaded", "keys_refused", "keys_refused"], (
            "one was asked for"
        )


async def test_a_new_key_is_not_taken_before_it_can_be_audited(tmp_path: Path) -> None:
    async with house(tmp_path, "active") as it:
        generate(it.keys, "next")
        it.events.unlink()
        it.events.mkdir()
        for _ in range(3):
            await it.turn()
        assert it.published == {it.paths[0].stem}
        it.events.rmdir()
        await it.turn()
        assert len(it.published) == 2
        assert loaded(it)[-1][0] == "keys_loaded"


async def test_folders_that_did_not_change_are_not_read_again(tmp_path: Path) -> None:
    async with house(tmp_path, "active") as it:
        it.signer._passphrase = lambda: pytest.fail("it was read")
        for _ in range(3):
            await it.turn()
        os.utime(it.paths[0])
        with pytest.raises(pytest.fail.Exception):
            await it.turn()


async def test_a_locked_history_keeps_no_key_that_is_gone(tmp_path: Path) -> None:
    async with house(tmp_path, "active", "retiring", "next") as it:
        active, stolen, _ = it.paths
        with files.locked(it.data / "key-history.lock", shared=True):
            stolen.unlink()
            await it.signer.turn(False)  # `removed` must be recorded now, and cannot
            assert stolen.stem not in it.published
            active.unlink()
            await it.signer.turn(False)
            assert it.signer.usable_kids == ()
            assert it.life(stolen).what == "retiring"
        await it.turn(times=2)
        assert (it.life(stolen).what, it.life(active).what) == ("removed", "removed")


async def test_a_locked_history_does_not_prevent_a_start(tmp_path: Path) -> None:
    host = KeyHost(tmp_path, Seconds()).has("active")
    host.wait_s = 0.01
    host.data.mkdir()
    with files.locked(host.data / "key-history.lock", shared=True):
        host.start()
        assert (host.signer.stale, host.signs) == (True, None), "a key that never signed is not said to, yet"
        await host.turn()
        assert host.signer.usable_kids == ()
    await host.turn()
    assert (host.signer.stale, host.signs) == (False, host.paths[0].stem)
    await host.stop()


async def test_a_key_that_is_gone_meanwhile_is_not_told_as_active(tmp_path: Path) -> None:
    async with house(tmp_path, "active", "next") as it:
        old, new = it.paths
        it.write("published", new)
        it.clock.now += PUBLISHED_S
        await it.turn()
        with files.locked(it.data / "key-history.lock", shared=True):
            it.move(old, "retiring")
            new = it.move(new, "active")
            await it.signer.turn(True)  # `active` must be recorded now, and cannot
            new.unlink()
        await it.turn(times=3)
        assert ("active", new.stem) not in it.history()
        assert it.life(new).what == "removed"
