"""The client's library against the real service: a token, its repeat, a refusal and its explanation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.client import Credential, Denied, explain_request, put_entry, request_token
from issuer.dev.provider import LocalProvider
from issuer.results.entry import read_entries
from tests.support.running import BODY, Running, body, running

REFUSED: dict[str, Any] = body(benchmark_repo="acme/unknown")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, running(tmp_path_factory.mktemp("service"), provider) as live:
        yield live


def identity(service: Running) -> Credential:
    return Credential(service.token(), reusable=False)


def test_a_request_gets_a_token_whose_entry_goes_into_a_file(tmp_path: Path, service: Running) -> None:
    credential, file = identity(service), tmp_path / ".eval_results" / "gsm8k.yaml"
    issued = request_token(service.url, credential, BODY)
    put_entry(file, issued.entry)
    (entry,) = read_entries(file.read_bytes(), "")
    assert entry.token == issued.verify_token
    assert request_token(service.url, credential, BODY) == issued, "the same request gets the same token"


def test_an_explanation_uses_nothing_up(service: Running) -> None:
    credential = identity(service)
    explained = explain_request(service.url, credential, BODY)
    assert (explained.verdict, all(check.passed for check in explained.checks)) == ("granted", True)
    assert request_token(service.url, credential, BODY).policy == explained.policy


def test_a_policy_s_refusal_is_raised_with_its_checks_and_explained_as_an_answer(service: Running) -> None:
    with pytest.raises(Denied) as caught:
        request_token(service.url, identity(service), REFUSED)
    explained = explain_request(service.url, identity(service), REFUSED)
    assert (explained.verdict, explained.code) == ("refused", caught.value.code)
    assert explained.checks == caught.value.checks
    assert [check.code for check in explained.checks if not check.passed] == ["policy.benchmark"]
