"""Callers that use a registered name under other ids: each is reported at once, then hourly, in a bounded table."""

from pathlib import Path

from issuer.identity.token import Caller
from issuer.issuance.steps import Payer
from issuer.service.authn.authenticator import RecycledNames
from issuer.service.authn.bounds import MAX_RECYCLED, RECYCLED_S
from tests.support.policies import NOW, POLICY, caller, load

PAYER = Payer("inspect-ai", "main")


def stranger(folder: Path, repository_id: str = "8") -> Caller:
    return caller(load(folder, inspect_ai=POLICY), repository_id=repository_id)


def test_a_caller_is_reported_at_once_and_then_hourly_with_its_count(tmp_path: Path) -> None:
    names, other = RecycledNames(), stranger(tmp_path)
    assert names.count(PAYER, other, NOW) == 1
    assert [names.count(PAYER, other, NOW + after) for after in (0, 1, RECYCLED_S - 1)] == [0, 0, 0]
    assert names.count(PAYER, other, NOW + RECYCLED_S) == 4
    assert names.count(PAYER, other, NOW + RECYCLED_S + 1) == 0
    assert names.count(PAYER, stranger(tmp_path, "9"), NOW) == 1
    assert names.count(Payer("other", "main"), other, NOW) == 1


def test_a_flood_of_callers_does_not_grow_the_table(tmp_path: Path) -> None:
    names, first = RecycledNames(capacity=2), stranger(tmp_path, "1")
    assert [names.count(PAYER, stranger(tmp_path, str(n)), NOW) for n in range(1, 5)] == [1, 1, 0, 0]
    assert names.count(PAYER, first, NOW + RECYCLED_S) == 1, "a recorded caller is reported although the table is full"
    assert len(names) == 2
    assert names.count(PAYER, stranger(tmp_path, "9"), NOW + 2 * RECYCLED_S) == 1
    assert len(names) == 2
    assert MAX_RECYCLED >= 1000
