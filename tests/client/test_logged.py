"""The client against a real service with a transparency log and no witness."""

import time
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with LocalProvider() as provider, logged_service(tmp_path, provider) as service:
        yield service


def test_a_token_comes_with_its_place_in_the_log_and_its_proof_follows(service: Running) -> None:
    issued = request_token(service.url, Credential(service.token(), reusable=False), BODY)
    assert issued.log is not UNSET
    assert issued.log.origin == service.settings.log.origin
    leaf = leaf_of(issued.verify_token)
    assert proof_objection(issued.log.proof.encode(), issued.log.origin, leaf, issued.log.index) == ""
    other = leaf_of(request_token(service.url, Credential(service.token(), reusable=False), BODY).verify_token)
    assert "do not lead" in proof_objection(issued.log.proof.encode(), issued.log.origin, other)
    proof = wait_for_proof(service.url, issued, patience_s=60)
    assert proof is not None
    policy = parse_policy((service.folder / LOG_POLICY).read_bytes(), LOG_POLICY)
    witnessed = policy.check(parse_note(parse_proof(proof.raw).checkpoint), int(time.time()))
    origin = service.settings.log.origin
    assert (witnessed.checkpoint.origin, witnessed.time) == (origin, None), "without witnesses it shows no time"
