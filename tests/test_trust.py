"""The trust file: an issuer and an audience, or nothing; and keys only where they could be had."""

import json
from typing import Any

import pytest

from issuer import jose
from issuer.errors import Code, InputError
from issuer.trust import KeySetSource, Trust, inline_keys, read_trust_file, with_keys
from tests import make

GOOD = f"""\
version: 1
audience: {make.AUDIENCE}
issuers:
- issuer: {make.ISSUER}
  keys: {{url: {make.ISSUER}/.well-known/jwks.json}}
- issuer: https://other.example
  keys: {{file: keys.json}}
  frameworks: [inspect-ai, lm-eval]
max_token_life_s: 3600
"""


def refusal(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trust_file(text.encode(), "trust.yaml")
    return caught.value


def test_a_trust_file_names_audience_issuers_and_the_longest_life() -> None:
    trust = with_keys(read_trust_file(GOOD.encode(), "trust.yaml"), {make.ISSUER: make.key_set()})
    assert trust.audience == make.AUDIENCE
    assert trust.max_token_life_s == 3600
    assert trust.issuers[make.ISSUER].keys == make.key_set()
    assert trust.issuers[make.ISSUER].frameworks is None
    other = trust.issuers["https://other.example"]
    assert (other.keys, other.frameworks) == (None, frozenset({"inspect-ai", "lm-eval"}))


def test_the_longest_life_is_a_day_where_none_is_given() -> None:
    trust = with_keys(read_trust_file(GOOD.replace("max_token_life_s: 3600\n", "").encode(), "t"), {})
    assert trust.max_token_life_s == Trust("a", {}).max_token_life_s == 86_400


def test_key_sets_of_issuers_that_nobody_named_are_not_trusted() -> None:
    trust = with_keys(read_trust_file(GOOD.encode(), "t"), {"https://stranger.example": make.key_set()})
    assert set(trust.issuers) == {make.ISSUER, "https://other.example"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"audience: {make.AUDIENCE}\n", ""),
        (f"audience: {make.AUDIENCE}", 'audience: ""'),
        (f"audience: {make.AUDIENCE}", "audience: null"),
        (f"audience: {make.AUDIENCE}", f"audience: [{make.AUDIENCE}]"),
        (f"issuer: {make.ISSUER}", 'issuer: ""'),
        (f"issuer: {make.ISSUER}", "issuers: x"),
        ("version: 1", "version: 2"),
        ("version: 1", 'version: "1"'),
        ("version: 1\n", ""),
        ("max_token_life_s: 3600", "max_token_life_s: 0"),
        ("max_token_life_s: 3600", "max_token_life_s: 86401"),
        ("max_token_life_s: 3600", "max_token_life_s: true"),
        ("max_token_life_s: 3600", "max_age: 3600"),
        ("frameworks: [inspect-ai, lm-eval]", "frameworks: []"),
        ("frameworks: [inspect-ai, lm-eval]", "frameworks: inspect-ai"),
        ("frameworks: [inspect-ai, lm-eval]", "framework: [inspect-ai]"),
        ("keys: {file: keys.json}", "keys: {}"),
        ("keys: {file: keys.json}", "keys: {file: keys.json, url: x}"),
        ("keys: {file: keys.json}", "keys: {file: k, inline: {keys: []}}"),
        ("keys: {file: keys.json}", "keys: keys.json"),
        ("keys: {file: keys.json}", "keys: {path: keys.json}"),
        ("  keys: {file: keys.json}\n", ""),
        ("https://other.example", make.ISSUER),
        ("version: 1", "version: 1\nversion: 1"),
        ("inspect-ai, lm-eval", "yes"),
    ],
)
def test_a_trust_file_that_is_not_complete_and_plain_is_an_error_and_no_permissive_default(old: str, new: str) -> None:
    assert old in GOOD
    error = refusal(GOOD.replace(old, new))
    assert error.code in {Code.FILE_SCHEMA, Code.FILE_RULE, Code.FILE_DUPLICATE_KEY, Code.FILE_SCALAR}
    assert error.place.line >= 1


def test_a_trust_file_without_an_issuer_is_an_error() -> None:
    head = f"version: 1\naudience: {make.AUDIENCE}\n"
    for tail in ("", "issuers: []\n", "issuers: {}\n", "issuers: null\n"):
        assert refusal(head + tail).code is Code.FILE_SCHEMA


def test_the_same_issuer_twice_is_an_error_at_its_line() -> None:
    error = refusal(GOOD.replace("https://other.example", make.ISSUER))
    assert (error.pointer, error.place.line) == ("/issuers/0/issuer", 4)


def test_an_inline_key_set_is_judged_like_any_other() -> None:
    good: dict[str, Any] = dict(jose.public_jwk(make.KEY.public_key()))
    text = GOOD.replace("{file: keys.json}", json.dumps({"inline": {"keys": [good, {**good, "kid": "b", "d": "AA"}]}}))
    trust = read_trust_file(text.encode(), "t")
    found = inline_keys(trust.issuers[1].keys)
    assert found is not None
    assert (list(found.keys), found.skipped) == ([make.KID], 1)
    assert inline_keys(trust.issuers[0].keys) is None
    with pytest.raises(InputError):
        inline_keys(KeySetSource(inline={"key": []}))
