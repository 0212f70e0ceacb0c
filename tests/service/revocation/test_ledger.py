"""The files of revocation: what a relying party has seen is never taken back, whatever happens to files and clocks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import jose
from issuer.formats.strict_json import to_line
from issuer.formats.times import MAX_UNIX_S
from issuer.io import keyfile
from issuer.io.common_documents import FolderHome
from issuer.service.revocation.bounds import LIST_GOOD_S, MAX_REASON_CHARS
from issuer.service.revocation.ledger import (
    NOTHING,
    Act,
    Ledger,
    SignedList,
    Signing,
    find_key,
    is_due,
    make_key,
    unlisted,
)
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.keyring import generate
from issuer.service.signing.lifecycle import KeyEvent, KeyState
from issuer.verify.revocations import LONGEST_S, MAX_BYTES, objection
from tests.support.make import ISSUER, NOW, REVOCATION_KEY, STRANGER
from tests.support.revoking import JTIS, act, as_a_relying_party, interval_of, renew

SIGNING = Signing(REVOCATION_KEY)
Spoil = Callable[[Path], object]


def ledger(folder: Path) -> Ledger:
    return Ledger(FolderHome(folder), ISSUER)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "revocations.lock"}


# -- the list ---------------------------------------------------------------------------------------------------------


def test_the_first_list_names_nothing_and_each_one_after_it_is_newer(tmp_path: Path) -> None:
    lists = [renew(tmp_path, NOW + step).listed for step in range(3)]
    assert [(listed.number, listed.count) for listed in lists] == [(1, 0), (2, 0), (3, 0)]
    assert as_a_relying_party(tmp_path) == lists[-1]
    assert lists[0].next_update == NOW + LIST_GOOD_S
    assert renew(tmp_path, good_s=LONGEST_S).listed.next_update - NOW == LONGEST_S + 2


def test_what_is_revoked_is_in_the_record_at_once_and_in_the_next_list(tmp_path: Path) -> None:
    renew(tmp_path)
    assert ledger(tmp_path).add(act(JTIS[0], JTIS[1]))
    assert ledger(tmp_path).add(act(from_=5, until=9))
    assert ledger(tmp_path).read().items.count == 3
    assert as_a_relying_party(tmp_path).count == 0
    renew(tmp_path)
    listed = as_a_relying_party(tmp_path)
    assert listed.revoked(JTIS[1], "x", 0)
    assert [bool(listed.revoked("", "inspect-ai", at)) for at in (4, 5, 9, 10)] == [False, True, True, False]
    lines = [json.loads(line) for line in (tmp_path / "revocations.jsonl").read_text().splitlines()]
    assert lines[1] == {
        "version": 1,
        "time": NOW,
        "who": "an operator",
        "why": "a test",
        "sub": [{"sub": "inspect-ai", "from": 5, "until": 9}],
    }


def test_the_same_again_adds_nothing_to_the_record(tmp_path: Path) -> None:
    assert ledger(tmp_path).add(act(JTIS[0], from_=5))
    before = contents(tmp_path)
    assert not ledger(tmp_path).add(act(JTIS[0], from_=5, time=NOW + 9))
    assert contents(tmp_path) == before
    assert ledger(tmp_path).add(act(JTIS[0], JTIS[1]))


@pytest.mark.parametrize("gone", ["revocations.jsonl", "both, and an old copy put back"])
def test_what_a_list_has_named_the_next_one_names_too(tmp_path: Path, gone: str) -> None:
    ledger(tmp_path).add(act(JTIS[0]))
    old = contents(tmp_path)
    seen = renew(tmp_path).listed
    (tmp_path / "revocations.jsonl").unlink()
    if gone != "revocations.jsonl":
        for name, raw in old.items():
            (tmp_path / name).write_bytes(raw)
    ledger(tmp_path).add(act(JTIS[1]))
    newer = renew(tmp_path).listed
    assert objection(newer, seen) == ""
    assert newer.jtis == {JTIS[0], JTIS[1]}


def test_a_list_is_never_dated_before_the_last_one(tmp_path: Path) -> None:
    seen = renew(tmp_path, NOW).listed
    back = renew(tmp_path, NOW - 3600).listed
    assert (objection(back, seen), back.iat, back.next_update) == ("", NOW, NOW + LIST_GOOD_S)


def test_a_lost_list_is_numbered_above_one_that_is_known(tmp_path: Path) -> None:
    assert renew(tmp_path, above=41).listed.number == 42
    assert renew(tmp_path, above=7).listed.number == 43


def test_a_list_that_no_relying_party_would_read_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    renew(tmp_path)
    before = contents(tmp_path)
    many = tuple(jose.base64url_encode(number.to_bytes(16, "big")) for number in range(MAX_BYTES // 33))
    with pytest.raises(SetupError, match="The record is unchanged") as refused:
        ledger(tmp_path).add(act(*many))
    assert refused.value.code is Code.REVOCATIONS_FULL
    assert contents(tmp_path) == before
    assert ledger(tmp_path).add(act(*many[: len(many) // 2])), "half of it has room, and is read"
    renew(tmp_path)
    assert as_a_relying_party(tmp_path).count == len(many) // 2


def test_when_a_list_is_due(tmp_path: Path) -> None:
    published = renew(tmp_path)
    half = NOW + LIST_GOOD_S // 2
    assert is_due(None, 0, NOW)
    assert [is_due(published, 0, at) for at in (NOW - 9999, NOW, half - 1, half)] == [False, False, False, True]
    assert is_due(published, unlisted(published, act(JTIS[0]).items), NOW)


def test_of_many_who_would_renew_it_at_once_one_does(tmp_path: Path) -> None:
    first = renew(tmp_path)
    due = NOW + LIST_GOOD_S // 2

    def keep(_: int) -> None:
        ledger(tmp_path).keep(SIGNING, due, NOTHING, first)

    with ThreadPoolExecutor(8) as hosts:
        list(hosts.map(keep, range(8)))
    assert (as_a_relying_party(tmp_path).number, as_a_relying_party(tmp_path).iat) == (2, due)


def test_of_many_who_revoke_at_once_each_is_recorded(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as operators:
        list(operators.map(lambda jti: ledger(tmp_path).add(act(jti)), JTIS))
    assert len(ledger(tmp_path).read().acts) == len(JTIS)


@pytest.mark.parametrize("happened", ["gone", "an older one"])
def test_a_process_that_has_served_a_newer_list_goes_on_from_that(tmp_path: Path, happened: str) -> None:
    old = renew(tmp_path)
    ledger(tmp_path).add(act(JTIS[0]))
    served = renew(tmp_path, NOW + 9)
    (tmp_path / "revocations.jsonl").unlink()
    (tmp_path / "revocations.jwt").unlink() if happened == "gone" else (tmp_path / "revocations.jwt").write_bytes(
        old.raw
    )
    ledger(tmp_path).keep(SIGNING, NOW, NOTHING, served)
    newer = as_a_relying_party(tmp_path)
    assert (objection(newer, served.listed), newer.number) == ("", served.listed.number + 1)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    ledger(tmp_path).add(act(JTIS[0]))
    renew(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


# -- nonsense, and damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"why": ""}, "/why"),
        ({"why": " \n"}, "/why"),
        ({"jti": ()}, ""),
        ({"jti": (JTIS[0], "x")}, "/jti/1"),
        ({"jti": (JTIS[0][:-1] + "B",)}, "/jti/0"),
        ({"sub": (interval_of("Inspect AI", from_=1),)}, "/sub/0/sub"),
        ({"sub": (interval_of(from_=2, until=1),)}, "/sub/0/until"),
        ({"sub": (interval_of(from_=MAX_UNIX_S + 1),)}, "/sub"),
        ({"sub": (interval_of(from_=-1),)}, "/sub"),
        ({"why": "x" * (MAX_REASON_CHARS + 1)}, "/why"),
    ],
    ids=str,
)
def test_nonsense_is_not_recorded_and_where_it_lies_in_a_record_its_line_is_named(
    tmp_path: Path, members: dict[str, Any], pointer: str
) -> None:
    nonsense = Act(**{"time": NOW, "who": "x", "why": "y", "jti": (JTIS[0],), **members})
    with pytest.raises(FormatError) as refused:
        ledger(tmp_path).add(nonsense)
    assert refused.value.pointer == pointer
    assert contents(tmp_path) == {}
    (tmp_path / "revocations.jsonl").write_bytes(b"".join(map(to_line, (act(JTIS[1]), nonsense))))
    found = ledger(tmp_path).read()
    assert found.error is not None
    assert found.error.place.line == 2
    assert found.items.jtis >= {JTIS[1]}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_half_a_line_is_named_and_what_is_whole_counts(tmp_path: Path) -> None:
    for jti in JTIS[:3]:
        ledger(tmp_path).add(act(jti))
    cut(tmp_path / "revocations.jsonl")
    before = contents(tmp_path)
    found = ledger(tmp_path).read()
    assert found.items.jtis == set(JTIS[:2])
    for write in (lambda: ledger(tmp_path).add(act(JTIS[5])), lambda: renew(tmp_path)):
        with pytest.raises(InputError) as refused:
            write()
        assert (refused.value.code, refused.value.place.line) == (Code.FILE_SYNTAX, 3)
    assert contents(tmp_path) == before


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("revocations.jwt", cut),
        ("revocations.jwt", empty),
        ("revocation-keys.json", cut),
        ("revocation-keys.json", empty),
        ("revocation-keys.json", Path.unlink),
    ],
)
def test_a_damaged_list_is_no_base_for_another_and_keeps_nothing_from_being_recorded(
    tmp_path: Path, name: str, spoil: Spoil
) -> None:
    renew(tmp_path)
    spoil(tmp_path / name)
    with pytest.raises(InputError) as refused:
        renew(tmp_path)
    assert str(tmp_path / name) in str(refused.value)
    assert ledger(tmp_path).add(act(JTIS[0]))


def test_another_issuer_s_list_is_none(tmp_path: Path) -> None:
    Ledger(FolderHome(tmp_path), "https://other.example").renew(SIGNING, NOW)
    with pytest.raises(InputError, match="another issuer"):
        renew(tmp_path)


def test_whose_the_list_is_stands_in_the_list_or_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="as --url"):
        Ledger(FolderHome(tmp_path), None).renew(SIGNING, NOW)
    renew(tmp_path)
    Ledger(FolderHome(tmp_path), None).renew(SIGNING, NOW)
    assert as_a_relying_party(tmp_path).number == 2


# -- the key ----------------------------------------------------------------------------------------------------------


def test_a_list_of_another_key_is_replaced_only_where_that_is_said(tmp_path: Path) -> None:
    ledger(tmp_path).add(act(JTIS[0]))
    seen = renew(tmp_path)
    with pytest.raises(SetupError, match=seen.listed.kid):
        renew(tmp_path, key=STRANGER)
    assert as_a_relying_party(tmp_path) == seen.listed
    renew(tmp_path, key=STRANGER, replaces=True)
    newer = as_a_relying_party(tmp_path, STRANGER)
    assert (newer.number, newer.jtis) == (2, frozenset({JTIS[0]}))


def found_in(keys: Path, passphrase: bytes | None = None) -> Any:
    return find_key(keys, FolderHome(keys.parent), lambda: passphrase)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_there_is_one_key(keys: Path) -> None:
    assert found_in(keys) is None
    path = make_key(keys, None)
    assert (path.parent, path.stat().st_mode & 0o777) == (keys / "revocation", 0o600)
    assert found_in(keys).public_key() == keyfile.read(path).public_key()
    with pytest.raises(SetupError, match="exists already"):
        make_key(keys, None)
    keyfile.write(path.with_name("another.pem"), STRANGER)
    with pytest.raises(SetupError, match="has 2 keys"):
        found_in(keys)


@pytest.mark.parametrize("state", ["next", "active", "retiring", "gone"])
def test_a_key_that_signs_tokens_or_once_did_signs_no_list(keys: Path, state: KeyState | Literal["gone"]) -> None:
    path = make_key(keys, None)
    kid, point = (
        path.stem.removeprefix("key-"),
        jose.base64url_encode(keyfile.read(path).public_key().public_bytes_raw()),
    )
    if state == "gone":
        KeyHistory(FolderHome(keys.parent)).record(lambda _: [KeyEvent(NOW, "archived", kid, point, "an operator")])
    else:
        generate(keys, state).write_bytes(path.read_bytes())
    generate(keys, "next").write_text("no key, which is none of the list's business")
    with pytest.raises(SetupError, match="signs tokens, or did") as refused:
        found_in(keys)
    assert refused.value.code is Code.KEY_UNUSABLE


def test_a_key_that_others_may_read_or_move_is_not_taken(keys: Path) -> None:
    path = make_key(keys, None)
    path.chmod(0o640)
    with pytest.raises(SetupError, match="chmod 600"):
        found_in(keys)
    path.chmod(0o600)
    path.parent.chmod(0o722)
    with pytest.raises(SetupError, match=r"chmod .*o-w") as refused:
        found_in(keys)
    assert refused.value.code is Code.KEY_UNSAFE


def test_it_is_encrypted_as_the_others_are(keys: Path) -> None:
    make_key(keys, b"a passphrase")
    assert found_in(keys, passphrase=b"a passphrase") is not None
    with pytest.raises(SetupError, match="is encrypted"):
        found_in(keys)
    with pytest.raises(SetupError, match="empty"):
        make_key(keys / "other", b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_what_root_writes_belongs_to_the_folder_s_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    ledger(tmp_path).add(act(JTIS[0]))
    renew(tmp_path)
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {65534}


def test_who_has_seen_a_list_is_not_shown_an_older_one(tmp_path: Path) -> None:
    old, new = renew(tmp_path), renew(tmp_path, NOW + 1)
    assert isinstance(old, SignedList)
    assert (old.is_behind(new), new.is_behind(old), new.is_behind(new), old.is_behind(None)) == (
        True,
        False,
        False,
        False,
    )
