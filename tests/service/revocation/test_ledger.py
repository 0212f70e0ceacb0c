"""The files of revocation: a list never contradicts an earlier one, whatever happens to files and clocks."""

import itertools
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
from issuer.service.revocation.ledger import NOTHING, Act, Ledger, Signing, find_key, make_key
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.keyring import generate
from issuer.service.signing.lifecycle import KeyEvent, KeyState
from issuer.verify.revocations import LONGEST_S, MAX_BYTES, objection
from tests.support.make import ISSUER, NOW, REVOCATION_KEY, STRANGER
from tests.support.revoking import JTIS, act, as_a_relying_party, interval_of, renew

SIGNING = Signing(REVOCATION_KEY)


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
    _, line = (tmp_path / "revocations.jsonl").read_text().splitlines()
    interval = {"sub": "inspect-ai", "from": 5, "until": 9}
    assert json.loads(line) == {"version": 1, "time": NOW, "who": "an operator", "why": "a test", "sub": [interval]}


def test_the_same_again_adds_nothing_to_the_record(tmp_path: Path) -> None:
    assert ledger(tmp_path).add(act(JTIS[0], from_=5))
    before = contents(tmp_path)
    assert not ledger(tmp_path).add(act(JTIS[0], from_=5, time=NOW + 9))
    assert contents(tmp_path) == before
    assert ledger(tmp_path).add(act(JTIS[0], JTIS[1]))


def test_what_a_list_has_named_the_next_one_names_too(tmp_path: Path) -> None:
    for put_back in (False, True):
        folder = tmp_path / str(put_back)
        ledger(folder).add(act(JTIS[0]))
        old = contents(folder)
        seen = renew(folder).listed
        (folder / "revocations.jsonl").unlink()
        for name, raw in old.items() if put_back else ():
            (folder / name).write_bytes(raw)
        ledger(folder).add(act(JTIS[1]))
        newer = renew(folder).listed
        assert objection(newer, seen) == ""
        assert newer.jtis == {JTIS[0], JTIS[1]}


def test_a_list_is_never_dated_before_the_last_one_and_numbered_above_a_known_one(tmp_path: Path) -> None:
    seen = renew(tmp_path, NOW).listed
    back = renew(tmp_path, NOW - 3600).listed
    assert (objection(back, seen), back.iat, back.next_update) == ("", NOW, NOW + LIST_GOOD_S)
    assert [renew(tmp_path, above=above).listed.number for above in (41, 7)] == [42, 43], "a list was lost"


def test_a_list_that_no_relying_party_would_read_is_not_written(tmp_path: Path) -> None:
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


def test_of_many_hosts_that_renew_it_at_once_one_does(tmp_path: Path) -> None:
    first = renew(tmp_path)
    due = NOW + LIST_GOOD_S // 2

    def keep(_: int) -> None:
        ledger(tmp_path).keep(SIGNING, due, NOTHING, first)

    with ThreadPoolExecutor(8) as hosts:
        list(hosts.map(keep, range(8)))
    assert (as_a_relying_party(tmp_path).number, as_a_relying_party(tmp_path).iat) == (2, due)


def test_of_many_operators_that_revoke_at_once_each_is_recorded(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as operators:
        list(operators.map(lambda jti: ledger(tmp_path).add(act(jti)), JTIS))
    assert len(ledger(tmp_path).read().acts) == len(JTIS)


def test_a_process_that_has_served_a_newer_list_goes_on_from_that(tmp_path: Path) -> None:
    for is_gone in (True, False):
        folder = tmp_path / str(is_gone)
        old = renew(folder)
        ledger(folder).add(act(JTIS[0]))
        served = renew(folder, NOW + 9)
        (folder / "revocations.jsonl").unlink()
        (folder / "revocations.jwt").unlink() if is_gone else (folder / "revocations.jwt").write_bytes(old.raw)
        ledger(folder).keep(SIGNING, NOW, NOTHING, served)
        newer = as_a_relying_party(folder)
        assert (objection(newer, served.listed), newer.number) == ("", served.listed.number + 1)


# -- nonsense, and damage ---------------------------------------------------------------------------------------------


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"why": ""}, "/why"), ({"why": " \n"}, "/why"), ({"jti": ()}, ""), ({"jti": (JTIS[0], "x")}, "/jti/1"),
    ({"jti": (JTIS[0][:-1] + "B",)}, "/jti/0"), ({"sub": (interval_of("Inspect AI", from_=1),)}, "/sub/0/sub"),
    ({"sub": (interval_of(from_=2, until=1),)}, "/sub/0/until"),
    ({"sub": (interval_of(from_=MAX_UNIX_S + 1),)}, "/sub"), ({"sub": (interval_of(from_=-1),)}, "/sub"),
    ({"why": "x" * (MAX_REASON_CHARS + 1)}, "/why"),
]  # fmt: skip


def test_nonsense_is_not_recorded_and_in_a_record_its_line_is_named(tmp_path: Path) -> None:
    for members, pointer in NONSENSE:
        nonsense = Act(**{"time": NOW, "who": "x", "why": "y", "jti": (JTIS[0],), **members})
        with pytest.raises(FormatError) as refused:
            ledger(tmp_path).add(nonsense)
        assert refused.value.pointer == pointer, members
        assert contents(tmp_path) == {}
        record = tmp_path / "revocations.jsonl"
        record.write_bytes(b"".join(map(to_line, (act(JTIS[1]), nonsense))))
        found = ledger(tmp_path).read()
        assert found.error is not None
        assert found.error.place.line == 2, members
        assert found.items.jtis >= {JTIS[1]}
        record.unlink()


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


def test_a_damaged_list_is_no_base_for_another_and_stops_no_revocation(tmp_path: Path) -> None:
    spoils: list[tuple[str, Callable[[Path], object]]] = [
        *itertools.product(("revocations.jwt", "revocation-keys.json"), (cut, lambda path: path.write_bytes(b""))),
        ("revocation-keys.json", Path.unlink),
    ]
    for number, (name, spoil) in enumerate(spoils):
        folder = tmp_path / str(number)
        renew(folder)
        spoil(folder / name)
        with pytest.raises(InputError) as refused:
            renew(folder)
        assert str(folder / name) in str(refused.value)
        assert ledger(folder).add(act(JTIS[0]))


def test_the_issuer_of_a_list_is_in_the_list_or_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="as --url"):
        Ledger(FolderHome(tmp_path), None).renew(SIGNING, NOW)
    renew(tmp_path)
    Ledger(FolderHome(tmp_path), None).renew(SIGNING, NOW)
    assert as_a_relying_party(tmp_path).number == 2
    with pytest.raises(InputError, match="another issuer"):
        Ledger(FolderHome(tmp_path), "https://other.example").renew(SIGNING, NOW)


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


def test_a_key_that_signs_tokens_or_once_did_signs_no_list(tmp_path: Path) -> None:
    states: tuple[KeyState | Literal["gone"], ...] = ("next", "active", "retiring", "gone")
    for state in states:
        keys = tmp_path / state / "keys"
        path = make_key(keys, None)
        if state == "gone":
            jwk = jose.public_jwk(keyfile.read(path).public_key())
            gone = KeyEvent(NOW, "archived", str(jwk["kid"]), str(jwk["x"]), "an operator")
            KeyHistory(FolderHome(keys.parent)).record(lambda _: [gone])  # noqa: B023
        else:
            generate(keys, state).write_bytes(path.read_bytes())
        generate(keys, "next").write_text("no key, which does not concern the list")
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


def test_files_are_for_their_owner_alone_and_root_writes_for_the_folder_s_owner(tmp_path: Path) -> None:
    owner = os.geteuid() or 65534
    os.chown(tmp_path, owner, -1)
    ledger(tmp_path).add(act(JTIS[0]))
    renew(tmp_path)
    found = {(path.stat().st_mode & 0o777, path.stat().st_uid) for path in tmp_path.iterdir()}
    assert found == {(0o600, owner)}
