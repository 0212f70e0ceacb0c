"""The client against a real service with a transparency log and no witness."""

import time
from collections.abc import Iterator

import pytest
from msgspec import UNSET

from issuer.client import Credential, request_token, wait_for_proof
from issuer.client.answer import proof_objection
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import LOG_POLICY
from issuer.tlog.note import parse_note
from issuer.tlog.proof import parse_proof
from issuer.tlog.witness_policy import parse_policy
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
    assert issued.log.origin == service.settings.log.origin
    leaf = leaf_of(issued.verify_token)
    assert proof_objection(issued.log.proof.encode(), issued.log.origin, leaf, issued.log.index) == ""
    other = leaf_of(request_token(service.url, Credential(service.token(), reusable=False), BODY).verify_token)
    assert "do not lead" in proof_objection(issued.log.proof.encode(), issued.log.origin, other)


def test_without_witnesses_the_proof_comes_soon_and_shows_no_time(service: Running) -> None:
    issued = request_token(service.url, Credential(service.token(), reusable=False), BODY)
    proof = wait_for_proof(service.url, issued, patience_s=60)
    assert proof is not None
    policy = parse_policy((service.folder / LOG_POLICY).read_bytes(), LOG_POLICY)
    witnessed = policy.check(parse_note(parse_proof(proof.raw).checkpoint), int(time.time()))
    assert (witnessed.checkpoint.origin, witnessed.time) == (service.settings.log.origin, None)
