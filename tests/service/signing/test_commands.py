"""What people do with the keys: made, moved and taken back in their folders, and told to the history."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats import jose
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


def hands(folder: Path, passphrase: bytes | None = None, data: str = "data", **more: Any) -> Custody:
    history = KeyHistory(FolderHome(folder / data))
    return Custody(folder / "keys", history, lambda: passphrase, NOW, "alice@host", **more)


def later(custody: Custody, seconds: int) -> Custody:
    return replace(custody, now=custody.now + seconds)


def states(custody: Custody) -> dict[str, str]:
    """Return the state of each key by its folder."""
    return {path.stem.removeprefix("key-"): path.parent.name for path in custody.folder.glob("*/*.pem")}


def told(custody: Custody) -> list[tuple[str, str]]:
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
    custody = hands(folder, passphrase)
    return custody, kid_of(custody.generate())


# -- making --------------------------------------------------------------------------------------------------------------


def test_the_first_key_signs_and_the_second_waits_and_the_history_has_who_and_why(tmp_path: Path) -> None:
    custody = hands(tmp_path, why="a new issuer")
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


def test_an_issuer_that_signed_before_there_was_a_history_does_not_make_a_first_key(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    Path(custody.history.place).unlink()
    os.utime(custody.folder / "active" / f"key-{kid}.pem", (1000, 1000))
    new = kid_of(custody.generate())
    assert told(custody) == [(kid, "active"), (new, "next")]
    assert custody.history.read()[kid].active_from == 1000
    assert custody.rotate().next == KeyStep("activate", new, None)


@pytest.mark.parametrize(
    ("before", "new", "says"),
    [
        (None, b"one", "is not encrypted"),
        (b"one", None, "is encrypted: give --passphrase-file"),
        (b"one", b"two", "one passphrase opens all keys"),
        (None, b"", "1 to 1023 bytes"),
    ],
)
def test_plain_and_encrypted_keys_never_mix(tmp_path: Path, before: bytes | None, new: bytes | None, says: str) -> None:
    custody, kid = issuer_of(tmp_path, before)
    if new == b"":
        custody.revoke(kid, NOW)  # what is put away is opened by nobody
    known = states(custody), told(custody)
    assert says in refused(hands(tmp_path, new).generate, Code.KEY_UNUSABLE)
    assert (states(custody), told(custody)) == known
    load_keyring(custody.folder, before) if new else None


def test_keys_of_one_passphrase_are_made_and_a_file_that_cannot_be_read_hinders_nobody(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path, b"one")
    made = custody.generate()
    assert keyfile.is_encrypted(made)
    assert load_keyring(custody.folder, b"one").active_kid == kid
    made.chmod(0o640)
    assert custody.generate().exists(), "in a bad night its successor can still be made"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_makes_and_moves_belongs_to_whom_the_folder_of_keys_does(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o700)
    os.chown(tmp_path / "keys", 4711, 4712)
    custody = hands(tmp_path)
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


def test_what_widens_is_undone_where_it_could_not_be_read_again(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    following = kid_of(custody.generate())
    for act in (hands(tmp_path, why="\0").generate, lambda: hands(tmp_path, why="\0").rotate(compromised=True)):
        refused(act, Code.KEY_HISTORY)
        assert states(custody) == {kid: "active", following: "next"}


def test_a_damaged_history_widens_nothing(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    Path(custody.history.place).write_bytes(b"{}\n")
    for act in (custody.generate, custody.rotate, lambda: custody.bring(kid, "archived")):
        assert f"{Path(custody.history.place)}:1: " in refused(act, Code.KEY_HISTORY)
    assert states(custody) == {kid: "active"}


def test_a_clock_that_went_back_widens_nothing_and_takes_back_all_the_same(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    assert later(custody, -CLOCK_BACK_S).generate().exists(), "hosts differ a little"
    back = later(custody, -CLOCK_BACK_S - 1)
    for act in (back.generate, back.rotate):
        assert f"is from {show_time(NOW)}" in refused(act, Code.KEY_HISTORY)
    assert back.revoke(kid, NOW - 500).failures == ()
    assert custody.history.read()[kid].revoked_from == NOW - 500


# -- a rotation ----------------------------------------------------------------------------------------------------------


def test_a_rotation_step_by_step_each_when_it_is_due(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
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
    assert later(custody, ends).rotate().made, "and the next one begins"
    window = parse_archive(archive(custody.history.read()))[old]
    assert (window.active_from, window.last_token_exp) == (NOW, NOW + ends)


def test_a_first_rotation_makes_the_first_key_and_it_signs(tmp_path: Path) -> None:
    custody = hands(tmp_path)
    assert custody.plan()[0].may_sign_from == NOW
    made = custody.rotate().made
    assert made
    assert made.parent.name == "active"


def test_a_rotation_that_was_killed_between_two_moves_goes_on(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.rotate().made)
    publish(custody, new)
    (custody.folder / "retiring").mkdir(0o700)
    name = f"key-{old}.pem"
    (custody.folder / "active" / name).rename(custody.folder / "retiring" / name)
    due = later(custody, PUBLISHED_S)
    assert due.rotate().done == KeyStep("activate", new, NOW + PUBLISHED_S)
    assert states(custody) == {old: "retiring", new: "active"}
    lives = custody.history.read()
    assert (lives[old].what, lives[new].what) == ("retiring", "active")


def test_a_key_signs_earlier_only_when_it_is_said_that_the_other_is_compromised(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.generate())
    assert "the history does not show that yet" in refused(lambda: custody.bring(new, "active"))
    publish(custody, new)
    assert f"may sign from {show_time(NOW + PUBLISHED_S)}" in refused(lambda: custody.bring(new, "active"))
    assert told(custody)[-1] == (new, "published")
    custody.bring(new, "active", compromised=True)
    assert states(custody) == {old: "retiring", new: "active"}
    assert told(custody)[-2:] == [(old, "retiring"), (new, "active")]


def test_after_a_theft_the_next_key_signs_at_once_and_where_there_is_none_a_new_one(tmp_path: Path) -> None:
    custody, stolen = issuer_of(tmp_path)
    spare = kid_of(custody.generate())
    assert custody.revoke(stolen, NOW - 50).has_active is False
    assert custody.rotate(compromised=True).done == KeyStep("activate", spare, None)
    assert states(custody) == {stolen: "revoked", spare: "active"}
    made = kid_of(custody.rotate(compromised=True).made)
    assert states(custody) == {stolen: "revoked", spare: "retiring", made: "active"}
    assert load_keyring(custody.folder).active_kid == made


@pytest.mark.parametrize(
    ("state", "to", "says"),
    [
        ("active", "retiring", "signs now"),
        ("active", "archived", "signs now"),
        ("active", "active", "is already active"),
        ("next", "retiring", "is next, and such a key cannot become retiring"),
        ("retiring", "next", "is retiring, and such a key cannot become next"),
        ("retiring", "archived", "its last token"),
        ("archived", "active", "--to next` publishes it anew"),
        ("revoked", "active", "is revoked, and never signs again"),
        ("revoked", "next", "is revoked, and never signs again"),
        ("revoked", "archived", "is revoked, and never signs again"),
    ],
)
def test_a_step_that_is_not_allowed_says_what_is(tmp_path: Path, state: str, to: Target, says: str) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.generate())
    kid = new if state == "next" else old
    if state in {"retiring", "archived"}:
        custody.bring(new, "active", compromised=True)
    if state == "archived":
        custody = later(custody, LAST_TOKEN_S)
        custody.bring(old, "archived")
    if state == "revoked":
        custody.revoke(old, NOW)
    before = states(custody), told(custody)
    assert before[0][kid] == state
    why = refused(lambda: custody.bring(kid, to))
    assert says.replace("its last token", f"the last token of {kid} expires at") in why
    assert (states(custody), told(custody)) == before


def test_an_archived_key_comes_back_only_by_being_published_anew(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    custody.rotate(compromised=True)
    custody = later(custody, LAST_TOKEN_S)
    custody.rotate()
    custody.bring(old, "next")
    assert "the history does not show that yet" in refused(lambda: custody.bring(old, "active"))
    publish(custody, old)
    later(custody, PUBLISHED_S).bring(old, "active")
    assert states(custody)[old] == "active"


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


def test_who_retires_may_sign_again_at_once_and_of_two_active_keys_one_may_retire(tmp_path: Path) -> None:
    custody, old = issuer_of(tmp_path)
    new = kid_of(custody.rotate(compromised=True).made)
    custody.bring(old, "active")
    assert states(custody) == {old: "active", new: "retiring"}
    (custody.folder / "retiring" / f"key-{new}.pem").rename(custody.folder / "active" / f"key-{new}.pem")
    custody.bring(new, "retiring")
    assert states(custody) == {old: "active", new: "retiring"}


def test_a_rotation_knows_every_key_or_does_nothing(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path, b"secret")
    assert "give --passphrase-file" in refused(hands(tmp_path).rotate, Code.KEY_UNUSABLE)
    assert "the passphrase is wrong" in refused(hands(tmp_path, b"wrong").rotate, Code.KEY_UNUSABLE)
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
    assert len(list(custody.folder.glob("active/*.pem"))) == 1, "and what was moved is back"


ACTS: Sequence[tuple[str, Any]] = [
    ("wait", 10), ("wait", PUBLISHED_S), ("wait", LAST_TOKEN_S), ("publish", None), ("generate", None), ("rotate", None),
    ("move", "active"), ("move", "archived"), ("move", "next"), ("revoke", None),
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 3)), max_size=14))
def test_whatever_people_do_no_key_signs_before_it_is_known_and_never_two(
    acts: Sequence[tuple[tuple[str, Any], int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        custody, _ = issuer_of(Path(folder))
        published: dict[str, int] = {}
        for (name, argument), index in acts:
            kid = sorted(states(custody))[index % len(states(custody))]
            before = states(custody)
            if name == "wait":
                custody = later(custody, argument)
            elif name == "publish" and before[kid] == "next":
                publish(custody, kid)
                published[kid] = custody.now
            elif name in {"generate", "rotate"}:
                getattr(custody, name)()
            elif name == "move":
                with contextlib.suppress(SetupError):
                    custody.bring(kid, argument)
            elif name == "revoke":
                custody.revoke(kid, custody.now)
            for each, state in states(custody).items():
                if state == "active" != before.get(each):
                    assert before.get(each) == "retiring" or custody.now >= published[each] + PUBLISHED_S
                if before.get(each) == "revoked":
                    assert state == "revoked"
            assert list(states(custody).values()).count("active") <= 1
            assert {kid: life.what for kid, life in custody.history.read().items()} == states(custody)


# -- taking back ---------------------------------------------------------------------------------------------------------


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


def test_a_key_that_signed_before_there_was_a_history_is_revoked_in_the_archive(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    Path(custody.history.place).unlink()
    assert custody.revoke(kid, NOW - 5).failures == ()
    assert parse_archive(archive(custody.history.read()))[kid].revoked_from == NOW - 5


def test_where_the_history_cannot_be_written_the_file_is_taken_away_all_the_same(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    Path(custody.history.place).write_bytes(b"damaged\n")
    done = custody.revoke(kid, NOW)
    assert states(custody) == {kid: "revoked"}
    (failure,) = done.failures
    assert f"{Path(custody.history.place)}:1: " in failure
    assert "run the command again" in failure


def test_a_history_that_a_stopped_process_has_locked_is_not_waited_for_for_ever(tmp_path: Path) -> None:
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


def test_where_the_file_cannot_be_moved_the_history_says_it_and_the_file_is_named(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    (custody.folder / "revoked").write_text("in the way")
    done = custody.revoke(kid, NOW)
    (failure,) = done.failures
    assert f"Remove it by hand: `rm {custody.folder / 'active' / f'key-{kid}.pem'}`" in failure
    assert custody.history.read()[kid].revoked_from == NOW
    assert done.has_active is False
    assert "is revoked, and never signs again" in refused(lambda: custody.bring(kid, "active"))


def test_a_key_that_another_host_has_revoked_is_put_away_and_not_retired(tmp_path: Path) -> None:
    custody, stolen = issuer_of(tmp_path)
    x = custody.history.read()[stolen].x
    custody.history.record(lambda _: [KeyEvent(NOW, "revoked", stolen, x, "bob@other")])
    assert states(custody) == {stolen: "active"}
    made = kid_of(custody.rotate(compromised=True).made)
    assert states(custody) == {stolen: "revoked", made: "active"}
    assert told(custody)[-2:] == [(stolen, "revoked"), (made, "active")]


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


def test_a_key_that_nobody_can_open_is_revoked_by_its_name(tmp_path: Path) -> None:
    _, kid = issuer_of(tmp_path, b"secret")

    def unreadable() -> bytes:
        raise InputError(Code.FILE_UNREADABLE, "No such file", Place("passphrase.txt"))

    for passphrase in (lambda: None, unreadable):
        assert replace(hands(tmp_path), passphrase=passphrase).revoke(kid, NOW).failures == ()
    assert states(hands(tmp_path)) == {kid: "revoked"}


def test_of_an_encrypted_key_without_a_history_the_file_is_taken_away_and_the_rest_is_said(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path, b"secret")
    Path(custody.history.place).unlink()
    (failure,) = hands(tmp_path).revoke(kid, NOW).failures
    assert "give the passphrase of its file" in failure
    assert states(custody) == {kid: "revoked"}
    assert custody.revoke(kid, NOW).failures == (), "told again, with the passphrase"


def test_a_copy_in_another_folder_is_taken_away_too_and_no_file_is_replaced(tmp_path: Path) -> None:
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


def test_every_file_is_seen_in_whatever_state_and_what_is_wrong_with_one_hides_no_other(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    for state in ("archived", "receipt", "revocation", "next"):
        (custody.folder / state).mkdir(0o700, exist_ok=True)
        keyfile.write(
            custody.folder / state / f"{state}.pem", keyfile.generate(), b"secret" if state == "next" else None
        )
    (custody.folder / "retiring").mkdir(0o700)
    (custody.folder / "retiring" / "broken.pem").write_text("no key")
    (custody.folder / "retiring" / "broken.pem").chmod(0o600)
    found = {file.state: file for file in custody.look()[0]}
    assert list(found) == ["next", "active", "retiring", "archived", "revocation", "receipt"]
    assert (found["next"].opened, found["next"].encrypted, found["next"].why, found["next"].kid) == (
        False,
        True,
        "",
        "",
    )
    assert (found["active"].opened, found["active"].kid) == (True, kid)
    assert "broken.pem cannot be used" in found["retiring"].why
    assert {state for state, file in found.items() if file.opened} == {"active", "archived", "revocation", "receipt"}


def test_an_encrypted_key_is_known_by_its_name_and_the_history(tmp_path: Path) -> None:
    kid = issuer_of(tmp_path, b"secret")[1]
    ((file,), lives) = hands(tmp_path).look()
    assert (file.kid, file.opened, file.x) == (kid, False, lives[kid].x)
    assert jose.public_jwk(keyfile.read(file.path, b"secret").public_key())["x"] == file.x
    old = file.path.rename(file.path.with_name(f"{kid}.pem"))
    assert hands(tmp_path).look()[0][0].kid == kid, "as files were named before"
    old.rename(old.with_name("mine.pem"))
    assert hands(tmp_path).look()[0][0].kid == ""


def test_a_key_that_lies_elsewhere_is_rotated_like_any_other_and_not_asked_for_once_it_is_put_away(
    tmp_path: Path,
) -> None:
    with LocalKms(make.KEY) as kms:
        custody, old = issuer_of(tmp_path)
        path = custody.folder / "next" / "signing-2027.yaml"
        path.parent.mkdir(0o700)
        path.touch(0o600)
        path.write_text(kms.file())
        rotated = custody.rotate(compromised=True)
        assert rotated.done == KeyStep("activate", make.KID, None)
        assert told(custody)[-2:] == [(old, "retiring"), (make.KID, "active")]
        assert kms.asked["GetPublicKey"] == 1, "opened once"
        custody.rotate(compromised=True)
        assert custody.revoke(make.KID, NOW).paths == (custody.folder / "revoked" / f"key-{make.KID}.yaml",)
        asked = dict(kms.asked)
        (file,) = [file for file in hands(tmp_path).look()[0] if file.kid == make.KID]
        assert (file.state, file.opened, file.why, file.encrypted) == ("revoked", False, "", None)
        assert dict(kms.asked) == asked


def test_a_file_that_names_no_key_is_told_and_hinders_a_rotation(tmp_path: Path) -> None:
    custody, kid = issuer_of(tmp_path)
    path = custody.folder / "next" / "signing-2027.yaml"
    path.parent.mkdir(0o700)
    path.touch(0o600)
    path.write_text("version: 1\nbackend: abacus\n")
    why = refused(custody.rotate, Code.KEY_UNUSABLE)
    assert f"{path}:2:" in why
    assert [file.why for file in custody.look()[0]] == [why, ""]
    assert states(custody) == {kid: "active"}
