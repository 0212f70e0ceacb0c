"""The populations of the simulation are what was fixed before any threshold was looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest

from tests.simulation.attackers import SIGNALS, Attacker, attackers, untellable
from tests.simulation.honest import KINDS, Team, honest
from tests.simulation.runs import Request


def digest(requests: Iterable[Request]) -> str:
    hashed = hashlib.sha256()
    for request in requests:
        hashed.update(repr(tuple(request)).encode())
    return hashed.hexdigest()


@pytest.fixture(scope="module")
def small() -> list[Request]:
    return list(honest(1, days=3, share=0.02))


@pytest.fixture(scope="module")
def everyone() -> list[Attacker]:
    return [*attackers(1, each=1), *untellable(1, each=1)]


def test_the_honest_population_is_the_one_that_was_fixed(small: list[Request]) -> None:
    assert digest(small) == "91559a82778f977e7c70958cc12a97d062a65ecb37f4227ff249e1bd58c9f81d"


@pytest.mark.long
def test_the_whole_honest_month_is_the_one_that_was_fixed() -> None:
    assert digest(honest(1)) == "48815dbfe6dfcd574d3d14cfaa8d9bb8a85727e90a378301ffc2dc405b44d2f3"


def test_the_attackers_are_those_that_were_fixed(everyone: list[Attacker]) -> None:
    sent = digest(request for attacker in everyone for request in attacker.requests)
    assert sent == "70d7a119bcac1cd6fc4b653313c8e4484af137e796ac5cee2d810baf50d174b0"


def test_a_month_is_in_the_order_of_time_and_has_every_kind(small: list[Request]) -> None:
    assert [request.at for request in small] == sorted(request.at for request in small)
    assert {request.integration.rsplit("-", 1)[0] for request in small} == {kind.__name__ for kind, _ in KINDS}


def test_another_seed_is_another_month(everyone: list[Attacker]) -> None:
    assert Team(2, "nightly-0").model() != Team(1, "nightly-0").model()
    assert next(attackers(2, each=1)) != everyone[0]


def test_a_month_has_two_hundred_integrations() -> None:
    assert sum(count for _, count in KINDS) == 200


def test_each_attacker_of_a_signal_knows_its_first_bad_token(everyone: list[Attacker]) -> None:
    told = {
        (attacker.signal, attacker.pace)
        for attacker in everyone
        if any(result.is_bad for request in attacker.requests for result in request.results)
    }
    assert {(kind.__name__, pace) for kind in SIGNALS for pace in ("fast", "slow")} <= told
