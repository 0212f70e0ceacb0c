"""The types of the HTTP API: clients ignore new members of answers, and the service refuses those of requests."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from issuer.token import wire

CHECK: dict[str, Any] = {
    "code": "policy.model", "pointer": "", "rule": "r", "passed": False, "actual": "a", "expected": "", "hint": "",
}  # fmt: skip
EXPLAINED = {
    "verdict": "refused", "integration": "i", "identity": "ci", "policy": "p", "checks": [CHECK], "warnings": [],
    "request_id": "1", "code": "policy.model",
}  # fmt: skip
PROBLEM = {
    "type": "t", "title": "t", "status": 403, "detail": "d", "instance": "u", "code": "policy.model",
    "retryable": False, "request_id": "1", "errors": [{"pointer": "", "code": "policy.model", "detail": "d"}],
    "checks": [CHECK],
}  # fmt: skip
ISSUED: dict[str, Any] = {
    **{name: name for name in wire.IssuedToken.__struct_fields__}, "issued_at": 1, "expires_at": 2, "warnings": [],
    "log": {"origin": "o", "index": 0, "proof": "p"},
}  # fmt: skip
ANSWERS: list[tuple[type[Struct], dict[str, Any]]] = [
    (wire.Explained, EXPLAINED), (wire.Problem, PROBLEM), (wire.IssuedToken, ISSUED),
    (wire.IssuedTokens, {"tokens": [ISSUED]}),
]  # fmt: skip


def test_an_answer_of_a_later_issuer_is_read_all_the_same() -> None:
    for kind, answer in ANSWERS:
        grown = msgspec.json.decode(msgspec.json.encode(answer).replace(b"}", b',"new":{"a":1}}'))
        assert msgspec.convert(grown, kind) == msgspec.convert(answer, kind)
        assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(grown, kind))) == answer


def test_a_request_with_an_unknown_member_is_refused() -> None:
    item = {"claims": {}, "new": 1}
    for kind, value in ((wire.TokenRequest, item), (wire.BatchItem, item), (wire.BatchRequest, {"results": [item]})):
        with pytest.raises(msgspec.ValidationError, match="new"):
            msgspec.convert(value, kind)
