"""The populations of the simulation were fixed before the choice of limits, and the limits hold on them."""

import hashlib
from collections.abc import Iterable

import pytest

from issuer.limits.abuse import Abuse, ItemTally, Tally
from tests.simulation.attackers import SIGNALS, Attacker, attackers, untellable
from tests.simulation.honest import KINDS, Team, honest
from tests.simulation.replay import Answer, replay
from tests.simulation.report import broken, month, signals
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


def test_the_populations_are_the_ones_that_were_fixed(small: list[Request], everyone: list[Attacker]) -> None:
    sent = (request for attacker in everyone for request in attacker.requests)
    assert digest(small) == "4baa2800e01eaa3f01734f371b10e939e1849ee1564039aa0d8bd9d8ef3205b3"
    assert digest(sent) == "b9720df791128784c45f1c9fc68e71dbed1d23b220be3dc23ddd2279577866e4"
    assert Team(2, "nightly-0").model() != Team(1, "nightly-0").model()
    assert next(attackers(2, each=1)) != everyone[0]


@pytest.mark.long
def test_the_whole_honest_month_is_the_one_that_was_fixed() -> None:
    assert digest(honest(1)) == "3a4ca1ac0c69869be8f913456add5a0c3c04c303a8fda6ded9cbf2f296cbfc7e"


def test_a_month_is_in_the_order_of_time_and_has_every_kind(small: list[Request], everyone: list[Attacker]) -> None:
    assert [request.at for request in small] == sorted(request.at for request in small)
    assert {request.integration.rsplit("-", 1)[0] for request in small} == {kind.__name__ for kind, _ in KINDS}
    assert sum(count for _, count in KINDS) == 200
    with_bad_token = {
        (attacker.signal, attacker.pace)
        for attacker in everyone
        if any(result.is_bad for request in attacker.requests for result in request.results)
    }
    assert {(kind.__name__, pace) for kind in SIGNALS for pace in ("fast", "slow")} <= with_bad_token


@pytest.mark.long
def test_a_small_month_holds_the_demands_on_the_real_script() -> None:
    everyone = [*attackers(6, each=2), *untellable(6, each=1)]
    sent = [request for attacker in everyone for request in attacker.requests]
    rules = Abuse()
    seen = month(replay(honest(5, share=0.2), rules), everyone, replay(sent, rules))
    assert broken(rules, seen) == []
    for unseen in ("empty_commits", "many_identities", "ignored_name", "one_digit_changed"):
        raised = [signal for answers in seen.of(unseen, "") for answer in answers for signal in signals(rules, answer)]
        assert not raised


def test_a_daily_warning_and_an_unseen_attacker_break_the_demands() -> None:
    attacker = next(attackers(1, each=1))
    seen_once = Tally((ItemTally(number=1, since=0),))
    crossed = Tally((ItemTally(number=60, since=0),))
    honest_month = [Answer(request, request.at, crossed, (4,)) for request in attacker.requests]
    unseen = [Answer(request, request.at, seen_once, (4,)) for request in attacker.requests]
    faults = broken(Abuse(), month(honest_month, [attacker], unseen))
    assert any("had a warning" in fault for fault in faults)
    assert "attempts.distinct, fast: never" in faults
