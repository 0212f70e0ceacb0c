"""The client against a real service with a transparency log and no witness."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import UNSET

from issuer.client import Credential, request_token, wait_for_proof
from issuer.client.answer import proof_objection
from issuer.dev.provider import LocalProvider
from tests.support.logged import logged_service
from tests.support.running import BODY, Running
from tests.support.witnessed import leaf_of


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalProvider() as provider, logged_service(tmp_path_factory.mktemp("logged"), provider) as service:
        yield service


def test_a_token_comes_with_its_place_in_the_log(service: Running) -> None:
    issued = request_token(service.url, Credential(service.token(), reusable=False), BODY)
    assert issued.log is not UNSET
    assert issued.log.origin == service.settings.log_origin
    leaf = leaf_of(issued.verify_token)
    assert proof_objection(issued.log.proof.encode(), issued.log.origin, leaf, issued.log.index) == ""
    other = leaf_of(request_token(service.url, Credential(service.token(), reusable=False), BODY).verify_token)
    assert "do not lead" in proof_objection(issued.log.proof.encode(), issued.log.origin, other)


def test_without_witnesses_there_is_no_proof_that_shows_a_time(service: Running) -> None:
    issued = request_token(service.url, Credential(service.token(), reusable=False), BODY)
    assert wait_for_proof(service.url, issued, patience_s=1) is None
