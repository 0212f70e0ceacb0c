"""The keys of a running process follow their folders: what is gone is gone at once, what comes must be fit as a whole."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.service.audit import FileAudit
from issuer.service.signing.keyring import KeyState, generate
from issuer.service.signing.live import LiveSigner


class House:
    """The folders of keys, the audit, and the signer that follows them."""

    def __init__(self, folder: Path, *states: KeyState) -> None:
        self.keys = folder / "keys"
        self.events = folder / "data" / "audit.jsonl"
        self.paths = [generate(self.keys, state) for state in states]
        self.audit = FileAudit(self.events)
        self.passphrase: bytes | None = None
        self.signer = LiveSigner(self.keys, self.tell, self.audit)

    def tell(self) -> bytes | None:
        if self.passphrase == b"gone":
            raise SetupError(Code.SETTINGS_INVALID, "key_passphrase_file: No such file")
        return self.passphrase

    def move(self, path: Path, state: KeyState) -> Path:
        (self.keys / state).mkdir(0o700, exist_ok=True)
        return path.rename(self.keys / state / path.name)

    def recorded(self) -> list[tuple[str, dict[str, str]]]:
        return [(event["event"], event["keys"]) for event in map(json.loads, self.events.read_text().splitlines())]

    @property
    def published(self) -> set[str]:
        return {key["kid"] for key in json.loads(self.signer.keyring.jwks)["keys"]}


@contextlib.contextmanager
def house(folder: Path, *states: KeyState) -> Iterator[House]:
    built = House(folder, *states)
    yield built
    built.audit.close()


async def test_a_key_that_is_gone_is_dropped_at_the_first_look(tmp_path: Path) -> None:
    with house(tmp_path, "active", "retiring") as it:
        active, retiring = it.paths
        retiring.unlink()
        await it.signer.turn(False)
        assert it.signer.usable_kids == (active.stem,)
        assert it.published == {active.stem}
        with pytest.raises(Undecided) as error:
            await it.signer.sign(retiring.stem, (b"x",))
        assert error.value.code is Code.DEPENDENCY_SIGNER


async def test_without_its_active_key_a_service_begins_no_token_and_is_not_ready(tmp_path: Path) -> None:
    """The old key was stolen; there is nothing that it could be used for."""
    with house(tmp_path, "active", "next") as it:
        it.paths[0].unlink()
        await it.signer.turn(False)
        with pytest.raises(Undecided) as error:
            _ = it.signer.active_kid
        assert error.value.code is Code.DEPENDENCY_SIGNER
        with pytest.raises(Undecided) as error:
            await it.signer.keyring.check(1_795_251_600)
        assert error.value.code is Code.DEPENDENCY_SIGNER
        assert it.published == {it.paths[1].stem}
        assert it.signer.stale


async def test_the_successor_of_a_key_that_is_gone_signs_without_waiting(tmp_path: Path) -> None:
    with house(tmp_path, "active", "next") as it:
        stolen, successor = it.paths
        stolen.unlink()
        it.move(successor, "active")
        await it.signer.turn(False)
        assert it.signer.active_kid == successor.stem
        assert it.published == {successor.stem}


def spoil(path: Path) -> None:
    path.write_bytes(b"not a key")


@pytest.mark.parametrize("spoiling", [spoil, lambda path: path.chmod(0o644), lambda path: path.rename(f"{path}.old")])
async def test_a_key_that_is_not_fit_any_more_is_dropped(tmp_path: Path, spoiling: object) -> None:
    with house(tmp_path, "active", "retiring") as it:
        spoiling(it.paths[1])  # type: ignore[operator]
        await it.signer.turn(False)
        assert it.signer.usable_kids == (it.paths[0].stem,)


@pytest.mark.parametrize("beside", ["an unfit key", "two active keys", "the same key twice", "no audit"])
async def test_nothing_else_that_is_wrong_keeps_a_key_that_is_gone(tmp_path: Path, beside: str) -> None:
    with house(tmp_path, "active", "retiring") as it:
        active, stolen = it.paths
        if beside == "an unfit key":
            spoil(generate(it.keys, "next"))
        elif beside == "two active keys":
            generate(it.keys, "active")
        elif beside == "the same key twice":
            (it.keys / "next").mkdir(0o700)
            twin = it.keys / "next" / "twin.pem"
            twin.touch(0o600)
            twin.write_bytes(active.read_bytes())
        else:
            it.events.rename(it.events.with_suffix(".old"))
            it.events.mkdir()  # where the audit should be
        stolen.unlink()
        await it.signer.turn(False)
        assert it.signer.usable_kids == (active.stem,)
        assert it.signer.active_kid == active.stem
        assert it.signer.stale is (beside != "no audit")


async def test_a_key_that_comes_waits_until_two_looks_agree_and_the_folders_are_fit(tmp_path: Path) -> None:
    with house(tmp_path, "active") as it:
        await it.signer.announce()
        (first,) = it.paths
        new = generate(it.keys, "next")
        await it.signer.turn(False)
        assert it.published == {first.stem}
        await it.signer.turn(False)
        assert it.published == {first.stem, new.stem}
        it.move(new, "active")  # half of a rotation
        for _ in range(3):
            await it.signer.turn(False)
        assert (it.signer.active_kid, it.signer.stale) == (first.stem, True)
        it.move(first, "retiring")
        await it.signer.turn(True)  # a signal asks for it: no second look
        assert (it.signer.active_kid, it.signer.stale) == (new.stem, False)
        assert it.published == {first.stem, new.stem}
        assert it.recorded() == [
            ("keys_loaded", {first.stem: "active"}),
            ("keys_loaded", {first.stem: "active", new.stem: "next"}),
            ("keys_refused", {first.stem: "active", new.stem: "next"}),
            ("keys_loaded", {new.stem: "active", first.stem: "retiring"}),
        ]


async def test_a_key_that_moves_while_the_folders_are_read_is_not_dropped(tmp_path: Path) -> None:
    with house(tmp_path, "active", "retiring") as it:
        active, retiring = it.paths
        reads: list[int] = []

        def tell() -> None:
            """Called when the files have been listed, and before they are read."""
            reads.append(1)
            if len(reads) == 1:
                it.move(retiring, "next")

        it.signer._passphrase = tell
        generate(it.keys, "next")
        await it.signer.turn(False)
        assert len(reads) == 2
        assert set(it.signer.usable_kids) == {active.stem, retiring.stem}


async def test_without_its_passphrase_a_key_whose_file_is_there_stays_and_one_that_is_gone_goes(tmp_path: Path) -> None:
    with house(tmp_path, "active", "retiring", "next") as it:
        active, stolen, upcoming = it.paths
        it.passphrase = b"gone"
        stolen.unlink()
        await it.signer.turn(True)
        assert set(it.signer.usable_kids) == {active.stem, upcoming.stem}
        assert it.signer.active_kid == active.stem
        it.passphrase = None
        await it.signer.turn(False)  # nobody has to ask for it: it could not be judged before
        assert not it.signer.stale


async def test_a_key_that_comes_is_not_taken_before_it_can_be_audited_and_is_then(tmp_path: Path) -> None:
    with house(tmp_path, "active") as it:
        generate(it.keys, "next")
        it.events.unlink()
        it.events.mkdir()
        for _ in range(3):
            await it.signer.turn(False)
        assert it.published == {it.paths[0].stem}
        it.events.rmdir()
        await it.signer.turn(False)
        assert len(it.published) == 2
        assert it.recorded()[-1][0] == "keys_loaded"


async def test_folders_that_did_not_change_are_not_read_again(tmp_path: Path) -> None:
    with house(tmp_path, "active") as it:
        it.signer._passphrase = lambda: pytest.fail("it was read")
        for _ in range(3):
            await it.signer.turn(False)
        os.utime(it.paths[0])
        with pytest.raises(pytest.fail.Exception):
            await it.signer.turn(False)
