"""JSON texts, key sets, archives and trust files, good and bad, are read in JavaScript as in Python."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from math import prod
from typing import Any, TypeAlias

import pytest

from issuer.formats import jcs, jose
from issuer.formats.strict_json import loads
from issuer.verify.trust import ArchivedKey, Trust, parse_archive, read_trust_file, resolve
from tests.support import make
from tests.support.contract_cases import TRUSTS
from tests.support.javascript import Calls, Failed, Line, in_javascript, in_python, mapping
from tests.support.judging_vectors import MAX_JSON_BYTES, MAX_JSON_DEPTH

pytestmark = [pytest.mark.needs_tool("node"), pytest.mark.long]

LIMITS = {"maxBytes": MAX_JSON_BYTES, "maxDepth": MAX_JSON_DEPTH}


_SCALAR = re.compile(rb'"[^"]*"(?=[,}\]])|-?[0-9.e-]+(?=[,}\]])')
_SCALARS = [
    b"1e400", b"-0", b"0.0", b"01", b"9007199254740992", b"9007199254740991", b"0.12345678901234567", b"0.123456789012345678", b"1.00000000000000000", b"1e16", b"1e-400",
    b"NaN", b"-Infinity", b'"\\ud83d"', b'"\\u0000"', b'"\\ud83d\\ude00"', b'{"a":1,"\\u0061":2}', b'{"a":{},"a":[]}', b"[[[[[[[[[]]]]]]]]]", b'"\xff"', b"5e-324", b"2e1",
]  # fmt: skip


def changed(at: random.Random, raw: bytes, pieces: list[bytes]) -> bytes:
    if at.random() < 0.6 and (scalars := list(_SCALAR.finditer(raw))):  # it stays JSON
        found = at.choice(scalars)
        return raw[: found.start()] + at.choice(_SCALARS) + raw[found.end() :]
    for _ in range(at.choice([1, 1, 2, 4])):
        place, width = at.randrange(len(raw) + 1), at.choice([0, 0, 1, 1, 3, 20])
        raw = raw[:place] + at.choice(pieces) + raw[place + width :]
    return raw


# -- JSON ----------------------------------------------------------------------------------------------------------------

_PIECES = [
    b"", b" ", b"\n", b"\t", b"\x0b", b"\xa0", b"\xef\xbb\xbf", b"\xff", b"\x00", b"\x1f", b"\x7f", b'"', b"\\", b"\\u0041", b"\\ud83d\\ude00", b"\\ud83d", b"\\udc00\\ud800",
    b"\\u0000", b"\\u00", b"\\x", b"\\/", b"{", b"}", b"[", b"]", b",", b":", b"0", b"1", b"9", b"-", b"+", b".", b"e", b"E", b"e5", b"e-400", b"1e400", b"-0", b"0.0", b"01", b"9007199254740992",
    b"0.12345678901234567890", b"1.00000000000000000", b"NaN", b"Infinity", b"null", b"true", b"False", b'"a":1,', b'"__proto__":2,', b'"a":1,"\\u0061":2,', "\u2028".encode(), "😀".encode(),
    b"[[[[[[[[[]]]]]]]]]", b"//", b"'", b"\xed\xa0\x80", b"\xc0\x80", b"2e1", b"20.0", b"1E+2", b"5e-324",
]  # fmt: skip
_TEXTS = [
    jcs.canonical(make.payload_of(make.submission())), make.jwks(active_from=1), b'{"a": [1, 2.5, {"b": null, "c": "x"}], "d": "\\u00e9\\n"}',
    b'[0, -1, 1.5e-7, 123456789012345, 0.1, 1e21, 1e15]', b'"text"', b"7", b'{"\xc3\xa9": {"~/": [[], {}]}}',
]  # fmt: skip


def canonical_of(text: bytes) -> str:
    return jcs.canonical(loads(text, max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)).decode()


def test_texts_are_read_to_the_same_canonical_bytes_or_refused_for_the_same_reason() -> None:
    at, calls, texts, lines, outcomes = random.Random(31), Calls(), list[bytes](), list[Line](), Counter[str]()
    for _ in range(5000):
        texts.append(changed(at, at.choice(_TEXTS), _PIECES))
        lines.append(calls.add("canonical.js", "canonical", calls.add("json.js", "readJson", texts[-1], LIMITS)))
    answers = calls.run()
    for text, line in zip(texts, lines, strict=True):
        read = in_python(canonical_of, text)
        answer = in_javascript(answers[line.number])
        if isinstance(read, tuple) and answer[0] == "file.too_large":
            answer = read  # it says that before what else is wrong
        if isinstance(read, tuple) and read[0] == "file.syntax":
            answer = (answer[0], "")
        assert answer == read, text
        outcomes[read[0] if isinstance(read, tuple) else "read"] += 1
    words = ("read", "file.syntax", "file.encoding", "file.number", "file.duplicate_key")
    assert min(outcomes[word] for word in words) > 40


# -- keys ----------------------------------------------------------------------------------------------------------------

_P = 2**255 - 19
_LOW = [0, 1, _P - 1, 2707385501144840649318225287225658788936804267575313519463743609750303021]


def _b64(number: int, size: int, order: Any = "big") -> str:
    return jose.base64url_encode((number % 2 ** (8 * size)).to_bytes(size, order))


_PRIMES = [n for n in range(2, 168) if all(n % smaller for smaller in range(2, n))]


def _modulus(at: random.Random) -> int:
    bits: int = at.choice([2048, 2048, 2047, 3072, 8192, 8193])
    if at.random() < 0.2:  # of the ROCA flaw
        flawed = prod(_PRIMES)
        return flawed * ((1 << (bits - 1)) // flawed + 5) + pow(65537, at.randrange(1, 10**6), flawed)
    return at.getrandbits(bits) | 1 << (bits - 1) | at.choice([0, 1, 1, 1])


def _rsa(at: random.Random) -> dict[str, Any]:
    modulus, exponent = _modulus(at), at.choice([65537, 65537, 65537, 3, 65538, 2**32 - 1, 2**32 + 1])
    size = (modulus.bit_length() + 7) // 8 + at.choice([0, 0, 1])
    return {"kty": "RSA", "n": _b64(modulus, size), "e": _b64(exponent, at.choice([4, 5]))}


_CURVES = {
    "P-256": (32, 2**256 - 2**224 + 2**192 + 2**96 - 1, 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B),
    "P-384": (48, 2**384 - 2**128 - 2**96 + 2**32 - 1, 0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF),
    "P-521": (66, 2**521 - 1, 0x51953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF109E156193951EC7E937B1652C0BD3BB1BF073573DF883D2C34F1EF451FD46B503F00),
}  # fmt: skip


def _ec(at: random.Random) -> dict[str, Any]:
    name = at.choice(list(_CURVES))
    size, p, b = _CURVES[name]
    start = at.choice([1, 2, 3, at.getrandbits(200)])
    x = next(x for x in count(start) if pow(x**3 - 3 * x + b, (p - 1) // 2, p) == 1)
    y = pow(x**3 - 3 * x + b, (p + 1) // 4, p)
    x, y = at.choice([(x, y), (x, y), (x, p - y), (x + p, y), (x, y + p), (x, y + 1), (0, 0), (x, y)])
    curve, width = at.choice([name, name, name, name, "P-256K", "__proto__"]), at.choice([size, size, size, size - 1])
    return {"kty": "EC", "crv": curve, "x": _b64(x, size), "y": _b64(y, width)}


def _okp(at: random.Random) -> dict[str, Any]:
    good = str(jose.public_jwk(at.choice([make.KEY, make.STRANGER, make.RECEIPT_KEY]).public_key())["x"])
    odd = _b64(at.choice([*_LOW, _P, _P + 1, 2, at.getrandbits(255)]) | at.choice([0, 1 << 255]), 32, "little")
    curve = at.choice(["Ed25519"] * 8 + ["X25519", None])
    return {"kty": "OKP", "crv": curve, "x": at.choice([good, good, odd, good + "A", good[:-1] + "B", 5, ""])}


_AROUND: dict[str, list[Any]] = {
    "alg": ["EdDSA", "Ed25519", "ES256", "RS256", "PS512", "", None, ["EdDSA"], 5], "use": ["sig", "enc", None, ""], "key_ops": [["verify"], ["sign"], [], None, "verify"],
    "d": ["AA", None], "k": [1], "extra": [1e300, "x"], "kid": ["", "a b", "é", 5, None, "x" * 256, "x" * 257, "constructor"],
}  # fmt: skip


def _jwk(at: random.Random) -> dict[str, Any]:
    key = at.choice([_okp, _okp, _rsa, _ec])(at)
    key["kid"] = at.choice(["one", "two", "three", make.KID])
    for name in at.sample(list(_AROUND), at.choice([0, 0, 1, 2])):
        key[name] = at.choice(_AROUND[name])
    return key


def _good_jwk(at: random.Random) -> dict[str, Any]:
    return dict(jose.public_jwk(at.choice([make.KEY, make.STRANGER, make.RECEIPT_KEY]).public_key()))


_Kind: TypeAlias = Callable[[random.Random], dict[str, Any]]


def _jwk_sets(
    at: random.Random, how_many: int, kind: _Kind = _jwk, **more: Callable[[random.Random], Any]
) -> Iterator[bytes]:
    for _ in range(how_many):
        keys = [
            {**_jwk(at), **{name: pick(at) for name, pick in more.items() if at.random() < 0.8}}
            for _ in range(at.choice([0, 1, 2, 4]))
        ]
        given: Any = keys if at.random() < 0.97 else at.choice([{}, None, keys * 40, [*keys, 5]])
        raw = json.dumps({"keys": given}).encode()
        yield raw if at.random() < 0.9 else changed(at, raw, _PIECES)


def _said_of(key: jose.Key) -> tuple[list[str], bytes]:
    raw = key.public.public_bytes_raw() if jose.EDDSA in key.algorithms else b""  # type: ignore[union-attr]
    return sorted(key.algorithms), raw


def _heard_of(key: dict[str, Any]) -> tuple[list[str], bytes]:
    return sorted(key["algorithms"]), key["publicKey"] if "EdDSA" in key["algorithms"] else b""


def test_key_sets_have_the_same_usable_keys_and_skip_the_same() -> None:
    at, calls, sets, usable = random.Random(32), Calls(), list[bytes](), Counter[str]()
    for raw in _jwk_sets(at, 1500):
        sets.append(raw)
        calls.add("keys.js", "parseKeySet", raw)
    for raw, answer in zip(sets, calls.run(), strict=True):
        read = in_python(jose.parse_key_set, raw)
        if isinstance(read, jose.KeySet):
            usable.update(name for key in read.keys.values() for name in key.algorithms)
            assert {kid: _heard_of(key) for kid, key in answer["keys"].items()} == {
                kid: _said_of(key) for kid, key in read.keys.items()
            }, raw
            assert answer["skipped"] == read.skipped
        else:
            assert in_javascript(answer)[0] in {read[0], "file.too_large"}, raw
    assert min(usable[name] for name in ("EdDSA", "Ed25519", "ES256", "ES384", "ES512", "RS256", "PS512")) > 20


def _time(at: random.Random) -> Any:
    return at.choice([0, 1, 5, 5, 9, 9, 9, 2**33, 2**33, at.choice([2**33 + 1, -1, 1.0, "1", None])])


def test_archives_have_the_same_windows_or_are_refused_for_the_same_reason() -> None:
    at, calls, archives, outcomes = random.Random(33), Calls(), list[bytes](), Counter[str]()
    plain = dict.fromkeys(("active_from", "last_token_exp", "revoked_from"), _time)
    for raw in (
        *_jwk_sets(at, 750, **plain),
        *_jwk_sets(at, 750, _good_jwk, **plain),
        *(make.jwks(active_from=1, last_token_exp=end) for end in (0, 1, 2)),
    ):
        archives.append(raw)
        calls.add("archive.js", "parseArchive", raw)
    for raw, answer in zip(archives, calls.run(), strict=True):
        read = in_python(parse_archive, raw)
        if isinstance(read, dict):
            outcomes["read"] += bool(read)
            assert {kid: _window_heard(found) for kid, found in answer.items()} == {
                kid: _window(found) for kid, found in read.items()
            }, raw
        else:
            outcomes[read[0]] += 1
            assert in_javascript(answer) == read or (read[0] == "file.syntax" and isinstance(answer, Failed)), raw
    assert min(outcomes[word] for word in ("read", "file.rule", "file.schema")) > 10


def _window(found: ArchivedKey) -> tuple[Any, ...]:
    return _said_of(found.key), found.active_from, found.last_token_exp, found.revoked_from


def _window_heard(found: dict[str, Any]) -> tuple[Any, ...]:
    return _heard_of(found["key"]), found["activeFrom"], found["lastTokenExp"], found["revokedFrom"]


# -- trust files ---------------------------------------------------------------------------------------------------------

_MEMBERS: dict[str, list[Any]] = {
    "/version": [2, "1", None], "/audience": ["", "x" * 513, 5], "/issuers": [[], {}], "/max_token_life_s": [0, 60, 86_401, 60.5, "60"], "/max_attempt": [0, 1, 65],
    "/require": [[], ["benchmark"], ["log"], ["keys"], "log", ["attempt", "attempt"]], "/tolerance": [{}, {"a": 0.5}, {"a": -1}, {"": 1}, {"a": "1"}], "/extra": [1],
    "/definitions": [{}, {"a/b": "any"}, {"a/b": "0" * 40, "c/d": ["1" * 64, "0" * 40]}, {"a/b": "main"}, {"a/b": ["any"]}, {"a/b": []}, {"a/b": 5}, {"a/b": ["0" * 40, 5]}, {"A/b": "any", "a/B": "any"},
                     {"a": "any"}, {"é/b": "any"}, {"a/b": ["0" * 40, "0" * 39]}, {"a/b": "A" * 40}, {"": "any"}, {"x" * 513: "any"}, [], {"a/b": None}, {"A/b": "1" * 40}],
    "/issuers/0/issuer": ["", "https://other.example"], "/issuers/0/frameworks": [[], ["a"], [""], "a"], "/issuers/0/x": [1], "/issuers/0/keys": [{}, {"url": "a", "file": "b"}, {"file": "k.json"}, 5],
    "/issuers/0/archive": [{"inline": {"keys": []}}, {"inline": {"keys": 5}}, {"inline": "x"}, {"file": "a"}, {"inline": {"keys": [{"kid": "a"}]}}],
    "/issuers/0/revocations": [{"file": "r"}, {"inline": "a.b.c"}, {"inline": "é"}], "/issuers/0/log": [{"policy": {"url": "x"}}, {"policy": {"inline": "quorum none\n"}}, {"policy": {"inline": "log x\nquorum none\n"}}, {}],
    "/receipt_keys": [{"file": "k"}, {"inline": {"keys": []}}, {"inline": {"keys": [jose.public_jwk(make.KEY.public_key())]}}, {"inline": {"keys": [jose.public_jwk(make.RECEIPT_KEY.public_key())], "n": 20.0}}],
    "/revocation_keys": [{"file": "k"}, {"inline": {"keys": [jose.public_jwk(make.REVOCATION_KEY.public_key())]}}, {}],
}  # fmt: skip
_FOUND = [
    make.jwks(), make.jwks(make.STRANGER), make.jwks(make.RECEIPT_KEY, make.KEY), make.revocation_list(),
    make.revocation_list(jti=["a"], number=2), b"", b"{}", b'{"keys":[]}', None,
]  # fmt: skip


def _put(value: Any, pointer: str, member: Any) -> None:
    *path, last = pointer.split("/")[1:]
    for name in path:
        value = value[int(name)] if isinstance(value, list) else value[name]
    value[last] = member


def _trusts(at: random.Random, how_many: int) -> Iterator[tuple[bytes, dict[str, bytes | None]]]:
    for _ in range(how_many):
        trust = json.loads(json.dumps(at.choice(list(TRUSTS.values()))))
        file, documents = trust["file"], trust["documents"]
        found = {pointer: each["text"] and each["text"].encode() for pointer, each in documents.items()}
        for pointer in at.sample(list(_MEMBERS), at.choice([0, 1, 1, 2, 3])):
            if isinstance(file["issuers"], list) and file["issuers"]:
                _put(file, pointer, at.choice(_MEMBERS[pointer]))
                if at.random() < 0.5:
                    found[pointer] = at.choice(_FOUND)
        if at.random() < 0.1 and isinstance(file["issuers"], list):
            file["issuers"] += file["issuers"]
        yield json.dumps(file).encode(), found


def _trusted(trust: Trust) -> dict[str, Any]:
    """Return a trust in a form that both sides share."""

    def kids(keys: Any) -> Any:
        return sorted(keys.keys) if keys else None if keys is None else "not asked"

    return {
        "audience": trust.audience, "life": trust.max_token_life_s, "attempt": trust.max_attempt, "require": sorted(trust.require),
        "tolerance": dict(trust.tolerance.absolute), "definitions": {repo: list(each) for repo, each in trust.definitions.commits.items()},
        "absent": [(each.pointer, each.reason) for each in trust.absent], "receipts": kids(trust.receipt_keys),
        "issuers": [
            (name, kids(each.keys), each.frameworks and sorted(each.frameworks), bool(each.archive), each.log and each.log.digest,
             [each.revocations.number, *sorted(each.revocations.jtis)] if each.revocations else None)
            for name, each in trust.issuers.items()
        ],
    }  # fmt: skip


def _trusted_heard(trust: dict[str, Any]) -> dict[str, Any]:
    def kids(keys: Any, *, asked: bool = True) -> Any:
        return sorted(keys["keys"]) if keys else None if asked else "not asked"

    return {
        "audience": trust["audience"], "life": trust["maxTokenLife"], "attempt": trust["maxAttempt"], "require": sorted(trust["require"]),
        "tolerance": trust["tolerance"], "definitions": trust["definitions"],
        "absent": [(each["pointer"], each["reason"]) for each in trust["absent"]], "receipts": kids(trust["receiptKeys"]),
        "issuers": [
            (name, kids(each["keys"]), each["frameworks"] and sorted(each["frameworks"]), bool(each["archive"]), each["log"] and each["log"]["digest"],
             each["revocations"] and [each["revocations"]["number"], *sorted(each["revocations"]["jtis"])])
            for name, each in trust["issuers"].items()
        ],
    }  # fmt: skip


def trust_of(raw: bytes, found: dict[str, bytes | None]) -> Trust:
    return resolve(read_trust_file(raw, "trust.yaml"), found)


def test_trust_files_give_the_same_trust_or_are_refused_at_the_same_place() -> None:
    at, calls, given, lines, outcomes = random.Random(34), Calls(), list[Any](), list[Line](), Counter[str]()
    for raw, found in _trusts(at, 1500):
        given.append((raw, found))
        lines.append(calls.add("trust.js", "resolve", calls.add("trust.js", "readTrustFile", raw), mapping(found)))
    answers = calls.run()
    for (raw, found), line in zip(given, lines, strict=True):
        read = in_python(trust_of, raw, found)
        answer = answers[line.number]
        if isinstance(read, Trust):
            outcomes["read"] += 1
            assert not isinstance(answer, Failed), (raw, answer)
            wanted = _trusted(read)
            if wanted["receipts"] == "not asked":
                wanted["receipts"] = None
            assert _trusted_heard(answer) == wanted, raw
        else:
            outcomes["refused"] += 1
            assert in_javascript(answer) == read, raw
    assert min(outcomes["read"], outcomes["refused"]) > 300
