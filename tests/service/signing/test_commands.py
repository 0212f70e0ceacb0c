"""Operators' work on keys: they make, move and revoke them in their folders, and the history records it."""

import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats.times import show_time
from issuer.io import files, keyfile
from issuer.io.common_documents import FolderHome
from issuer.service.signing.bounds import CLOCK_BACK_S, LAST_TOKEN_S, PUBLISHED_S
from issuer.service.signing.commands import Custody, Target
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.lifecycle import STATES, KeyEvent, KeyStep, archive
from issuer.verify.trust import parse_archive
from tests.support import make
from tests.support.disk import fill, small_disk
from tests.support.keyrings import load_keyring
from tests.support.kms import LocalKms

NOW = 1_795_251_600


def custody_of(folder: Path, passphrase: bytes | None = None, data: str = "data", **more: Any) -> Custody:
    history = KeyHistory(FolderHome(folder / data))
    return Custody(folder / "keys", history, lambda: passphrase, NOW, "alice@host", **more)


def later(custody: Custody, seconds: int) -> Custody:
    return replace(custody, now=custody.now + seconds)


def states(custody: Custody) -> dict[str, str]:
    return {path.stem.removeprefix("key-"): path.parent.name for path in custody.folder.glob("*/*.pem")}


def put(custody: Custody, name: str, text: str) -> Path:
    """Write into next/ the file of a key in another place."""
    path = custody.folder / "next" / name
    path.parent.mkdir(0o700)
    path.touch(0o600)
    path.write_text(text)
    return path


def recorded(custody: Custody) -> list[tuple[str, str]]:
    return [(event.kid, event.what) for event in events(custody)]


def events(custody: Custody) -> list[KeyEvent]:
    raw = Path(custody.history.place).read_bytes() if Path(custody.history.place).exists() else b""
    return [msgspec.json.decode(line, type=KeyEvent) for line in raw.splitlines()]


def kid_of(path: Path | None) -> str:
    assert path
    return path.stem.removeprefix("key-")


def publish(custody: Custody, kid: str) -> None:
    """Record what a service does when every host has a key in its key set."""
    x = custody.history.read()[kid].x
    custody.history.record(lambda _: [KeyEvent(custody.now, "published", kid, x, "service")])


def refused(act: Callable[[], object], code: Code = Code.KEY_STEP) -> str:
    with pytest.raises(SetupError) as error:
        act()
    assert error.value.code is code, error.value.detail
    return error.value.detail


def issuer_of(folder: Path, passphrase: bytes | None = None) -> tuple[Custody, str]:
    """Return an issuer that signs since NOW, and its key."""
    custody = custody_of(folder, passphrase)
    return custody, kid_of(custody.generate())


# -- making --------------------------------------------------------------------------------------------------------------


def test_the_first_key_signs_the_second_waits_and_the_history_says_who_and_why(tmp_path: Path) -> None:
    custody = custody_of(tmp_path, why="a new issuer")
    first, second = custody.generate(), later(custody, 5).generate()
    assert [path.parent.name for path in (first, second)] == ["active", "next"]
    assert first.name == f"key-{kid_of(first)}.pem", "a kid may begin with `-`"
    assert load_keyring(custody.folder).active_kid == kid_of(first)
    assert [(e.what, e.time, e.who, e.why) for e in events(custody)] == [
        ("active", NOW, "alice@host", "a new issuer"),
        ("next", NOW + 5, "alice@host", "a new issuer"),
    ]
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (first.parent, custody.folder)} == {0o700}


def test_no_other_key_is_made_to_sign_at_once(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    assert "--compromised" in refused(lambda: custody.generate("active"))
    custody.revoke(kid, NOW)
    assert "--compromised" in refused(lambda: custody.generate("active")), "also where none is active now"
    assert states(custody) == {kid: "revoked"}
    assert custody.generate().parent.name == "next"


def test_an_issuer_older_than_its_history_makes_no_first_key(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    Path(custody.history.place).unlink()
    os.utime(custody.folder / "active" / f"key-{kid}.pem", (1000, 1000))
    new = kid_of(custody.generate())
    assert recorded(custody) == [(kid, "active"), (new, "next")]
    assert custody.history.read()[kid].active_from == 1000
    assert custody.rotate().next == KeyStep("activate", new, None)


def test_plain_and_encrypted_keys_never_mix_and_an_unreadable_file_stops_no_key(tmp_path: Path) -> None:
    mixed: list[tuple[bytes | None, bytes | None, str]] = [
        (None, b"one", "is not encrypted"), (b"one", None, "is encrypted: give --passphrase-file"),
        (b"one", b"two", "one passphrase opens all keys"), (None, b"", "1 to 1023 bytes"),
    ]  # fmt: skip
    for number, (before, new, why) in enumerate(mixed):
        folder = tmp_path / str(number)
        custody, kid = issuer_of(folder, before)
        if new == b"":
            custody.revoke(kid, NOW)  # an archived key is not opened
        known = states(custody), recorded(custody)
        assert why in refused(custody_of(folder, new).generate, Code.KEY_UNUSABLE)
        assert (states(custody), recorded(custody)) == known
    custody, kid = issuer_of(tmp_path, b"one")
    made = custody.generate()
    assert keyfile.is_encrypted(made)
    assert load_keyring(custody.folder, b"one").active_kid == kid
    made.chmod(0o640)
    assert custody.generate().exists(), "in a bad night its successor can still be made"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_makes_and_moves_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o700)
    os.chown(tmp_path / "keys", 4711, 4712)
    custody = custody_of(tmp_path)
    custody.generate()
    custody.generate()
    custody.rotate(compromised=True)
    found = list(custody.folder.rglob("*"))
    assert {path.name for path in found} > {"active", "next", "retiring"}
    assert {(path.stat().st_uid, path.stat().st_gid) for path in found} == {(4711, 4712)}
    assert all(file.opened for file in custody.look()[0]), "and root can read it"
    alien = next((custody.folder / "active").iterdir())
    os.chown(alien, 4713, 4713)
    (file,) = [file for file in custody.look()[0] if file.path == alien]
    assert "another user" in file.why


# -- what cannot be recorded ---------------------------------------------------------------------------------------------


def test_what_widens_is_undone_where_the_history_has_no_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "64k"):
        custody, kid = issuer_of(tmp_path)
        following = kid_of(custody.generate())
        fill(tmp_path / "data" / "filler")
        before = states(custody)
        for act in (custody.generate, lambda: custody.rotate(compromised=True)):
            with pytest.raises(OSError, match="key-history"):
                act()
            assert states(custody) == before == {kid: "active", following: "next"}
        assert load_keyring(custody.folder).active_kid == kid


def test_a_clock_that_went_back_or_a_damaged_history_widens_nothing_but_revokes(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    assert later(custody, -CLOCK_BACK_S).generate().exists(), "hosts differ a little"
    back = later(custody, -CLOCK_BACK_S - 1)
    for act in (back.generate, back.rotate):
        assert f"is from {show_time(NOW)}" in refused(act, Code.KEY_HISTORY)
    assert back.revoke(kid, NOW - 500).failures == ()
    assert custody.history.read()[kid].revoked_from == NOW - 500
    custody, kid = issuer_of(tmp_path / "damaged")
    Path(custody.history.place).write_bytes(b"{}\n")
    for widen in (custody.generate, custody.rotate, lambda: custody.bring(kid, "archived")):
        assert f"{custody.history.place}:1: " in refused(widen, Code.KEY_HISTORY)
    assert states(custody) == {kid: "active"}
    (failure,) = custody.revoke(kid, NOW).failures
    assert f"{custody.history.place}:1: " in failure
    assert "run the command again" in failure
    assert states(custody) == {kid: "revoked"}


# -- a rotation ----------------------------------------------------------------------------------------------------------


def test_a_rotation_step_by_step_each_when_it_is_due(tmp_path: Path) -> None:
    custody = custody_of(tmp_path)
    assert custody.plan()[0].may_sign_from == NOW
    old = kid_of(custody.rotate().made)
    assert states(custody) == {old: "active"}, "the first key of an issuer"
    made = later(custody, 10).rotate()
    new = kid_of(made.made)
    assert made.next == KeyStep("activate", new, None)
    waits = later(custody, 5000).rotate()
    assert (waits.done, waits.next) == (None, KeyStep("activate", new, None)), "no host has published it"
    publish(later(custody, 5000), new)
    due = 5000 + PUBLISHED_S
    early = later(custody, due - 1).rotate()
    assert (early.done, early.next) == (None, KeyStep("activate", new, NOW + due))
    assert states(custody) == {old: "active", new: "next"}
    taken = later(custody, due).rotate()
    assert taken.done == KeyStep("activate", new, NOW + due)
    assert states(custody) == {old: "retiring", new: "active"}
    ends = due + LAST_TOKEN_S
    assert taken.next == KeyStep("archive", old, NOW + ends)
    assert later(custody, ends - 1).rotate().done is None
    assert states(custody) == {old: "retiring", new: "active"}
    assert later(custody, ends).rotate().done == KeyStep("archive", old, NOW + ends)
    assert states(custody) == {old: "archived", new: "active"}
    back = later(custody, ends)
    assert back.rotate().made, "and the next one begins"
    window = parse_archive(archive(custody.history.read()))[old]
    assert (window.active_from, window.last_token_exp) == (NOW, NOW + ends)
    back.bring(old, "next")
    assert "the history does not show that yet" in refused(lambda: back.bring(old, "active")), "it is published anew"
    publish(back, old)
    later(back, PUBLISHED_S).bring(old, "active")
    assert states(custody)[old] == "active"


def test_a_key_signs_earlier_only_after_a_compromise_and_a_retiring_one_again(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.generate())
    assert "the history does not show that yet" in refused(lambda: custody.bring(new, "active"))
    publish(custody, new)
    assert f"may sign from {show_time(NOW + PUBLISHED_S)}" in refused(lambda: custody.bring(new, "active"))
    assert recorded(custody)[-1] == (new, "published")
    custody.bring(new, "active", compromised=True)
    assert states(custody) == {old: "retiring", new: "active"}
    assert recorded(custody)[-2:] == [(old, "retiring"), (new, "active")]
    custody.bring(old, "active")
    assert states(custody) == {old: "active", new: "retiring"}, "a retiring key may sign again"
    (custody.folder / "retiring" / f"key-{new}.pem").rename(custody.folder / "active" / f"key-{new}.pem")
    custody.bring(new, "retiring")
    assert states(custody) == {old: "active", new: "retiring"}, "one of two active keys may retire"


def test_a_rotation_that_was_killed_between_two_moves_goes_on(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.rotate().made)
    publish(custody, new)
    (custody.folder / "retiring").mkdir(0o700)
    name = f"key-{old}.pem"
    (custody.folder / "active" / name).rename(custody.folder / "retiring" / name)
    assert later(custody, PUBLISHED_S).rotate().done == KeyStep("activate", new, NOW + PUBLISHED_S)
    assert states(custody) == {old: "retiring", new: "active"}
    assert recorded(custody)[-2:] == [(old, "retiring"), (new, "active")]


STEPS_REFUSED: Sequence[tuple[str, Target, str]] = [
    ("active", "retiring", "signs now"), ("active", "archived", "signs now"), ("active", "active", "is already active"),
    ("next", "retiring", "is next, and such a key cannot become retiring"),
    ("retiring", "next", "is retiring, and such a key cannot become next"),
    ("retiring", "archived", "the last token of {kid} expires at"),
    ("archived", "active", "--to next` publishes it anew"), ("revoked", "active", "is revoked, and never signs again"),
    ("revoked", "next", "is revoked, and never signs again"),
    ("revoked", "archived", "is revoked, and never signs again"),
]  # fmt: skip


def test_a_step_that_is_not_allowed_says_what_is(tmp_path: Path) -> None:
    for number, (state, to, why) in enumerate(STEPS_REFUSED):
        custody, old = issuer_of(tmp_path / str(number))
        new = kid_of(custody.generate())
        kid = new if state == "next" else old
        if state in {"retiring", "archived"}:
            custody.bring(new, "active", compromised=True)
        if state == "archived":
            custody = later(custody, LAST_TOKEN_S)
            custody.bring(old, "archived")
        if state == "revoked":
            custody.revoke(old, NOW)
        before = states(custody), recorded(custody)
        assert before[0][kid] == state
        assert why.format(kid=kid) in refused(partial(custody.bring, kid, to))
        assert (states(custody), recorded(custody)) == before


def test_what_is_put_away_is_named_after_its_key_and_comes_back_unopened(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path, b"secret")
    signs = custody.folder / "active"
    (signs / f"key-{old}.pem").rename(signs / "signing-2026.pem")
    custody.rotate(compromised=True)
    assert (custody.folder / "retiring" / "signing-2026.pem").exists()
    custody = later(custody, LAST_TOKEN_S)
    custody.rotate()
    assert (custody.folder / "archived" / f"key-{old}.pem").exists()
    replace(custody, passphrase=lambda: None).bring(old, "next")
    assert (custody.folder / "next" / f"key-{old}.pem").exists()


def test_a_rotation_knows_every_key_or_does_nothing(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path, b"secret")
    assert "give --passphrase-file" in refused(custody_of(tmp_path).rotate, Code.KEY_UNUSABLE)
    assert "the passphrase is wrong" in refused(custody_of(tmp_path, b"wrong").rotate, Code.KEY_UNUSABLE)
    path = put(custody, "signing-2027.yaml", "version: 1\nbackend: abacus\n")
    why = refused(custody.rotate, Code.KEY_UNUSABLE)
    assert f"{path}:2:" in why
    assert [file.why for file in custody.look()[0]] == [why, ""]
    assert states(custody) == {kid: "active"}


def test_a_file_of_the_same_name_is_not_replaced(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    custody.generate()
    (custody.folder / "retiring").mkdir(0o700)
    other = custody.folder / "retiring" / f"key-{old}.pem"
    keyfile.write(other, keyfile.generate())
    raw = other.read_bytes()
    with pytest.raises(FileExistsError, match="retiring"):
        custody.rotate(compromised=True)
    assert other.read_bytes() == raw
    assert len(list(custody.folder.glob("active/*.pem"))) == 1, "and the moved file is back"


# -- revoking ----------------------------------------------------------------------------------------------------------


def test_a_revoked_key_is_in_no_key_set_and_the_archive_says_since_when(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    spare = kid_of(custody.generate())
    done = replace(later(custody, 100), why="it was in a log").revoke(kid, NOW + 40)
    assert (done.paths, done.failures, done.has_active) == ((custody.folder / "revoked" / f"key-{kid}.pem",), (), False)
    last = events(custody)[-1]
    assert (last.what, last.time, last.since, last.who, last.why) == (
        "revoked", NOW + 100, NOW + 40, "alice@host", "it was in a log",
    )  # fmt: skip
    assert parse_archive(archive(custody.history.read()))[kid].revoked_from == NOW + 40
    assert set(states(custody).items()) == {(kid, "revoked"), (spare, "next")}
    custody.revoke(kid, NOW + 20)
    assert custody.history.read()[kid].revoked_from == NOW + 20, "and it may turn out to be worse"


def test_where_the_file_cannot_be_moved_the_history_says_so(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    (custody.folder / "revoked").write_text("in the way")
    done = custody.revoke(kid, NOW)
    (failure,) = done.failures
    assert f"Remove it by hand: `rm {custody.folder / 'active' / f'key-{kid}.pem'}`" in failure
    assert custody.history.read()[kid].revoked_from == NOW
    assert done.has_active is False
    assert "is revoked, and never signs again" in refused(lambda: custody.bring(kid, "active"))


def test_a_locked_history_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    impatient = replace(custody, history=KeyHistory(FolderHome(tmp_path / "data"), wait_s=0.05))
    with files.locked(Path(custody.history.place).with_suffix(".lock")):
        with pytest.raises(BlockingIOError, match=r"which may be stopped.*key-history\.lock"):
            impatient.generate()
        assert states(custody) == {kid: "active"}
        (failure,) = impatient.revoke(kid, NOW).failures
    assert "locked by another process" in failure
    assert states(custody) == {kid: "revoked"}
    assert impatient.revoke(kid, NOW).failures == ()


def test_after_a_theft_a_key_signs_at_once_and_one_revoked_elsewhere_is_put_away(tmp_path: Path) -> None:
    custody, stolen = issuer_of(tmp_path)
    spare = kid_of(custody.generate())
    assert custody.revoke(stolen, NOW - 50).has_active is False
    assert custody.rotate(compromised=True).done == KeyStep("activate", spare, None)
    assert states(custody) == {stolen: "revoked", spare: "active"}
    custody.history.record(lambda _: [KeyEvent(NOW, "revoked", spare, custody.history.read()[spare].x, "bob@other")])
    assert states(custody) == {stolen: "revoked", spare: "active"}, "another host has revoked it"
    made = kid_of(custody.rotate(compromised=True).made)
    assert states(custody) == {stolen: "revoked", spare: "revoked", made: "active"}
    assert recorded(custody)[-2:] == [(spare, "revoked"), (made, "active")]
    newest = kid_of(custody.rotate(compromised=True).made)
    assert states(custody) == {stolen: "revoked", spare: "revoked", made: "retiring", newest: "active"}
    assert load_keyring(custody.folder).active_kid == newest


def test_a_key_whose_file_is_gone_is_revoked_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    (custody.folder / "active" / f"key-{kid}.pem").unlink()
    assert custody.revoke(kid, NOW).failures == ()
    assert custody.history.read()[kid].revoked_from == NOW
    with pytest.raises(SetupError, match="there is no key nobody") as unknown:
        custody.revoke("nobody", NOW)
    assert unknown.value.code is Code.KEY_UNKNOWN
    assert "its file is gone" in refused(lambda: custody.bring(kid, "active"))
    assert "there is no such key" in refused(lambda: custody.bring("nobody", "active"))


def test_a_key_that_nobody_can_open_is_revoked_by_its_name_or_in_two_steps(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path / "plain")
    Path(custody.history.place).unlink()
    assert custody.revoke(kid, NOW - 5).failures == ()
    assert parse_archive(archive(custody.history.read()))[kid].revoked_from == NOW - 5, "older than its history"
    _, kid = issuer_of(tmp_path, b"secret")

    def unreadable() -> bytes:
        raise InputError(Code.FILE_UNREADABLE, "No such file", Place("passphrase.txt"))

    for passphrase in (lambda: None, unreadable):
        assert replace(custody_of(tmp_path), passphrase=passphrase).revoke(kid, NOW).failures == ()
    assert states(custody_of(tmp_path)) == {kid: "revoked"}
    custody, kid = issuer_of(tmp_path / "without a history", b"secret")
    Path(custody.history.place).unlink()
    (failure,) = replace(custody, passphrase=lambda: None).revoke(kid, NOW).failures
    assert "give the passphrase of its file" in failure
    assert states(custody) == {kid: "revoked"}
    assert custody.revoke(kid, NOW).failures == (), "told again, with the passphrase"


def test_a_copy_in_another_folder_is_taken_away_too(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    name = f"key-{kid}.pem"
    (custody.folder / "next").mkdir(0o700)
    (custody.folder / "next" / name).write_bytes((custody.folder / "active" / name).read_bytes())
    (custody.folder / "next" / name).chmod(0o600)
    assert "is in two folders" in refused(lambda: custody.bring(kid, "active"))
    done = custody.revoke(kid, NOW)
    assert sorted(path.name for path in done.paths) == [f"key-{kid}-2.pem", name]
    assert not [path for state in STATES for path in custody.folder.glob(f"{state}/*.pem")]


# -- looking -------------------------------------------------------------------------------------------------------------


def test_a_remote_key_is_rotated_and_not_asked_once_it_is_put_away(tmp_path: Path) -> None:
    with LocalKms(make.KEY) as kms:
        custody, old = issuer_of(tmp_path)
        put(custody, "signing-2027.yaml", kms.file())
        rotated = custody.rotate(compromised=True)
        assert rotated.done == KeyStep("activate", make.KID, None)
        assert recorded(custody)[-2:] == [(old, "retiring"), (make.KID, "active")]
        assert kms.asked["GetPublicKey"] == 1, "opened once"
        custody.rotate(compromised=True)
        assert custody.revoke(make.KID, NOW).paths == (custody.folder / "revoked" / f"key-{make.KID}.yaml",)
        asked = dict(kms.asked)
        (file,) = [file for file in custody_of(tmp_path).look()[0] if file.kid == make.KID]
        assert (file.state, file.opened, file.why, file.encrypted) == ("revoked", False, "", None)
        assert dict(kms.asked) == asked
