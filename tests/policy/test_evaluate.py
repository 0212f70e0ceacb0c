"""One evaluation: the same functions, in the same order, as the service takes one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.token import Caller
from issuer.policy.decide import Denial, decide, evaluate
from tests.support.policies import GITHUB, NOW, POLICY, caller, load, registration, runs_of, submission


def test_an_evaluation_is_what_the_service_finds_and_decides(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    who, runs = caller(policies), runs_of(submission(), submission("/results/1", model="evil/model"))
    found = evaluate(policies, who, runs, NOW, integration="inspect-ai", audience="https://other.example")
    registered = registration(policies)
    assert found.registration is registered
    alone = decide(registered, who, runs, NOW, integration="inspect-ai", audience="https://other.example")
    assert isinstance(found.decision, Denial)
    assert found.decision == alone


def test_a_stranger_has_no_evaluation(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    with pytest.raises(Refused) as refused:
        evaluate(policies, caller(policies, repository_id="1"), (), NOW)
    assert refused.value.code is Code.INTEGRATION_UNKNOWN


def test_a_supposed_caller_has_no_use_to_claim(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    supposed = Caller.suppose(caller(policies).provider, GITHUB, NOW)
    assert (supposed.use_parts, supposed.issued_at, supposed.expires_at) == ((), NOW, NOW)
