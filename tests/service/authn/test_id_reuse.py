"""Which callers under a registered name are told: each at once, then once an hour, in a table that does not grow."""

from __future__ import annotations

from pathlib import Path

from issuer.identity.token import Caller
from issuer.issuance.steps import Payer
from issuer.service.authn.authenticator import RecycledNames
from issuer.service.authn.bounds import MAX_RECYCLED, RECYCLED_S
from tests.support.policies import NOW, POLICY, caller, load

WHOSE = Payer("inspect-ai", "main")


def stranger(folder: Path, repository_id: str = "8") -> Caller:
    return caller(load(folder, inspect_ai=POLICY), repository_id=repository_id)


def test_a_caller_is_told_at_once_and_then_once_an_hour_with_how_often_it_came(tmp_path: Path) -> None:
    names, who = RecycledNames(), stranger(tmp_path)
    assert names.count(WHOSE, who, NOW) == 1
    assert [names.count(WHOSE, who, NOW + after) for after in (0, 1, RECYCLED_S - 1)] == [0, 0, 0]
    assert names.count(WHOSE, who, NOW + RECYCLED_S) == 4
    assert names.count(WHOSE, who, NOW + RECYCLED_S + 1) == 0


def test_another_caller_and_another_identity_are_told_apart(tmp_path: Path) -> None:
    names = RecycledNames()
    assert names.count(WHOSE, stranger(tmp_path), NOW) == 1
    assert names.count(WHOSE, stranger(tmp_path, "9"), NOW) == 1
    assert names.count(Payer("other", "main"), stranger(tmp_path), NOW) == 1


def test_no_flood_of_callers_grows_the_table_and_room_comes_back(tmp_path: Path) -> None:
    names, first = RecycledNames(capacity=2), stranger(tmp_path, "1")
    told = [names.count(WHOSE, stranger(tmp_path, str(number)), NOW) for number in range(1, 5)]
    assert told == [1, 1, 0, 0]
    assert names.count(WHOSE, first, NOW + RECYCLED_S) == 1, "who is remembered is told although the table is full"
    assert len(names) == 2
    assert names.count(WHOSE, stranger(tmp_path, "9"), NOW + 2 * RECYCLED_S) == 1
    assert len(names) == 2
    assert MAX_RECYCLED >= 1000
