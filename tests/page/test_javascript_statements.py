"""Receipts and revocation lists in JavaScript: read, refused and judged as in Python."""

import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET

from issuer.formats import jcs, jose
from issuer.verify import receipts, revocations
from issuer.verify.revocations import Revocations
from tests.support import make
from tests.support.javascript import Calls, in_javascript, in_python

pytestmark = [pytest.mark.needs_tool("node"), pytest.mark.long]

OTHERS: list[Any] = [..., None, "", "x", "x" * 513, 0, 1, -1, 2**33, 2**33 + 1, 1.5, True, [], {}, ["a", "a"], [1]]
DIGEST = "sha256:" + "0" * 64
SUBJECT = {
    "repo": make.REPO, "path": make.PATH, "token": DIGEST, "jti": make.JTI, "content_digest": DIGEST, "kid": make.KID,
}  # fmt: skip
CHECKS = {str(number): "pass" for number in range(1, 12)}
RECEIPT = {"ver": 1, **SUBJECT, "at": make.NOW, "trust": DIGEST, "checks": CHECKS, "iat": make.NOW + 1}
INTERVALS = [{"sub": "inspect-ai", "from": 5, "until": 9}, {"sub": "inspect-ai", "from": make.NOW}]
LIST = {
    "ver": 1, "iss": make.ISSUER, "iat": make.NOW, "number": 7, "jti": [make.JTI, "b"], "sub": INTERVALS,
    "next_update": make.NOW + 86_400,
}  # fmt: skip


def altered(good: dict[str, Any], at: random.Random) -> dict[str, Any]:
    """Change a member or two, or a part of one."""
    members = {**good}
    for _ in range(at.choice([0, 1, 1, 2])):
        name = at.choice([*good, "more"])
        within = members.get(name)
        if isinstance(within, dict) and at.random() < 0.8:
            other = at.choice([..., "fail", "skip", "good", 1])
            members[name] = make.without_dots({**within, at.choice(["1", "10", "12"]): other})
        elif isinstance(within, list) and at.random() < 0.8:
            one = {**at.choice(INTERVALS), at.choice(["sub", "from", "until", "more"]): at.choice(OTHERS)}
            members[name] = [*within, make.without_dots(one) if name == "sub" else at.choice(OTHERS[1:])]
        else:
            members[name] = at.choice(
                [*OTHERS, make.NOW - 9, make.NOW + 59, make.NOW + 70, make.NOW + 8 * 86_400, "other"]
            )
    return make.without_dots(members)


def signed(payload: dict[str, Any], typ: str, key: Ed25519PrivateKey, at: random.Random) -> bytes:
    """Sign a payload, mostly as it should be."""
    header: dict[str, Any] = make.statement_header(typ, key)
    if at.random() < 0.1:
        header[at.choice(["alg", "kid", "typ", "crit"])] = at.choice(["EdDSA", "Ed25519", "none", "ES256", make.KID, 1])
    signing_input = jose.signing_input(header, jcs.canonical(payload))
    by = key if at.random() < 0.95 else make.STRANGER
    raw = jose.compact(signing_input, jose.sign(by, signing_input)).encode()
    if at.random() < 0.1:
        place = at.randrange(len(raw))
        raw = raw[:place] + at.choice([b"", b"A", b".", b"=", b"\n", b"\xff"]) + raw[place + 1 :]
    return at.choice([b"", b"", b"\n", b"\r\n"]) + raw + at.choice([b"", b"\n", b"\r\n\n"])


def shown(found: Revocations | None) -> Any:
    if found is None:
        return None
    spans = {sub: [(each.from_, each.until) for each in had] for sub, had in found.intervals.items()}
    return {*found.jtis}, spans, found.iat, found.number, found.next_update, found.kid, found.held


def shown_of(found: dict[str, Any] | None) -> Any:
    if found is None:
        return None
    spans = {
        sub: list(dict.fromkeys((each["from"], each.get("until", UNSET)) for each in had))
        for sub, had in found["intervals"].items()
    }
    return found["jtis"], spans, found["iat"], found["number"], found["nextUpdate"], found["kid"], found["held"]


def test_many_revocation_lists_are_read_as_in_python() -> None:
    at, calls = random.Random(8), Calls()
    keys = calls.add("keys.js", "parseKeySet", make.jwks(make.REVOCATION_KEY))
    lists, asked = [], []
    for _ in range(1500):
        raw = signed(altered(LIST, at), revocations.REVOCATIONS_TYPE, make.REVOCATION_KEY, at)
        wanted = in_python(make.parse_list, raw)
        lists.append((place := calls.add("revocation.js", "parseRevocations", raw, make.ISSUER, keys), wanted))
        if isinstance(wanted, Revocations):
            jti, sub = at.choice([make.JTI, "c", "d"]), at.choice(["inspect-ai", "other"])
            token = jti, sub, at.choice([4, 5, 9, 10, make.NOW])
            asked.append((calls.add("revocation.js", "revokedReason", place, *token), wanted.revoked(*token)))
    answers = calls.run()
    for place, wanted in lists:
        answer = in_javascript(answers[place.number])
        assert (shown_of(answer) if isinstance(answer, dict) else answer) == (
            shown(wanted) if isinstance(wanted, Revocations) else wanted
        )
    assert [answers[place.number] for place, _ in asked] == [reason for _, reason in asked]
    assert min(len(asked), 1500 - len(asked)) > 300


def test_the_list_that_counts_is_the_one_that_counts_in_python() -> None:
    at, calls, wanted, places = random.Random(9), Calls(), [], []
    keys = calls.add("keys.js", "parseKeySet", make.jwks(make.REVOCATION_KEY))
    kept = []
    for _ in range(60):
        payload: dict[str, Any] = {
            "number": at.choice([7, 7, 8]), "iat": make.NOW + at.choice([0, 0, 1, 90]), "jti": at.choice([[], ["a"], ["a", "b"]]),
            "sub": at.choice([[], INTERVALS[:1], INTERVALS, INTERVALS + INTERVALS]),
        }  # fmt: skip
        raw = make.revocation_list(**payload)
        kept.append((calls.add("revocation.js", "parseRevocations", raw, make.ISSUER, keys), make.parse_list(raw)))
    for _ in range(1500):
        found = at.choice([*kept, (None, None)])
        seen = at.sample(kept, at.randrange(3))
        reason = revocations.newest(found[1], [each for _, each in seen], make.NOW)
        wanted.append((shown(reason[0]), reason[1]))
        places.append(calls.add("revocation.js", "newest", found[0], [place for place, _ in seen], make.NOW))
    answers = calls.run()
    found_answers = [answers[place.number] for place in places]
    assert [(shown_of(one["list"]), one["refused"]) for one in found_answers] == wanted
    assert len({reason[:12] for _, reason in wanted}) >= 5


def test_many_receipts_are_read_and_judged_as_in_python() -> None:
    at, calls, places, wanted = random.Random(6), Calls(), [], []
    keys = calls.add("keys.js", "parseKeySet", make.jwks(make.RECEIPT_KEY))
    for _ in range(1500):
        text = signed(altered(RECEIPT, at), receipts.RECEIPT_TYPE, make.RECEIPT_KEY, at).decode("latin-1")
        subject = {**SUBJECT, **({at.choice([*SUBJECT]): "other"} if at.random() < 0.1 else {})}
        place = calls.add("receipt.js", "readReceipt", text, keys)
        read = in_python(receipts.read_receipt, text, make.key_set(make.RECEIPT_KEY))
        if isinstance(read, receipts.Receipt):
            place = calls.add("receipt.js", "receiptObjection", place, subject, make.NOW)
            read = receipts.objection(read, receipts.ReceiptSubject(**subject), make.NOW)
        places.append(place)
        wanted.append(read)
    answers = calls.run()
    assert [in_javascript(answers[place.number]) for place in places] == wanted
    assert min(wanted.count(""), 1500 - wanted.count("")) > 250
