"""The trust file: it is complete or refused; and the documents that it points to, which may be missing."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from issuer.codes import Code
from issuer.errors import FormatError, InputError
from issuer.formats import jose
from issuer.verify.trust import (
    Absence,
    IssuerSources,
    Trust,
    TrustFile,
    TrustSource,
    check_found,
    read_trust_file,
    resolve,
    sources,
)
from tests.support import make, witnessed

GOOD = f"""\
version: 1
audience: {make.AUDIENCE}
issuers:
- issuer: {make.ISSUER}
  keys: {{url: {make.ISSUER}/.well-known/jwks.json}}
  archive: {{url: {make.ISSUER}/.well-known/jwks-archive.json}}
  revocations: {{url: {make.ISSUER}/.well-known/revocations.json}}
- issuer: https://other.example
  keys: {{file: keys.json}}
  frameworks: [inspect-ai, lm-eval]
max_token_life_s: 3600
receipt_keys: {{file: receipts.json}}
revocation_keys: {{file: revocations.json}}
require: [benchmark]
"""
FILE = read_trust_file(GOOD.encode(), "trust.yaml")
FOUND: dict[str, bytes | None] = {
    "/issuers/0/keys": make.jwks(),
    "/issuers/0/archive": make.jwks(make.KEY, active_from=1, last_token_exp=2, revoked_from=3),
    "/issuers/0/revocations": make.revocation_list(jti=["x"]),
    "/issuers/1/keys": make.jwks(make.STRANGER),
    "/receipt_keys": make.jwks(make.RECEIPT_KEY),
    "/revocation_keys": make.jwks(make.REVOCATION_KEY),
}


def refusal(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trust_file(text.encode(), "trust.yaml")
    return caught.value


def test_a_trust_file_names_issuers_keys_frameworks_and_requirements() -> None:
    assert list(sources(FILE)) == list(FOUND)
    assert sources(FILE)["/issuers/1/keys"] == TrustSource(file="keys.json")
    trust = resolve(FILE, FOUND, {"/issuers/0/keys": 5})
    assert [issuer.keys_fetched_at for issuer in trust.issuers.values()] == [5, None]
    assert (trust.audience, trust.max_token_life_s, trust.require) == (make.AUDIENCE, 3600, frozenset({"benchmark"}))
    assert list(trust.issuers) == [make.ISSUER, "https://other.example"]
    first, second = trust.issuers.values()
    assert (first.keys, first.frameworks) == (make.key_set(), None)
    assert (second.keys, second.frameworks) == (make.key_set(make.STRANGER), frozenset({"inspect-ai", "lm-eval"}))
    assert first.archive
    assert (first.archive[make.KID].active_from, first.archive[make.KID].revoked_from) == (1, 3)
    assert first.revocations
    assert first.revocations.jtis == {"x"}
    assert (second.archive, second.revocations) == (UNSET, UNSET)
    assert trust.receipt_keys == make.key_set(make.RECEIPT_KEY)
    assert trust.absent == ()


LOGGED = GOOD.replace("  frameworks:", "  log: {policy: {file: policy}, url: https://log.example}\n  frameworks:")
POLICY = witnessed.policy_text()


def test_a_log_is_trusted_by_a_policy_whose_log_lines_are_its_origins() -> None:
    file = read_trust_file(LOGGED.encode(), "t")
    assert sources(file)["/issuers/1/log/policy"] == TrustSource(file="policy")
    first, second = resolve(file, {**FOUND, "/issuers/1/log/policy": POLICY.encode()}).issuers.values()
    assert first.log is None
    assert second.log == witnessed.trusted_log(url="https://log.example")
    assert second.log.origins == {witnessed.ORIGIN, witnessed.SPARE}
    inline = LOGGED.replace("{file: policy}", json.dumps({"inline": POLICY}))
    _, second = resolve(read_trust_file(inline.encode(), "t"), FOUND).issuers.values()
    assert second.log == witnessed.trusted_log(url="https://log.example"), "the policy is in the trust file itself"


def test_a_required_log_must_be_named_of_every_issuer() -> None:
    error = refusal(LOGGED.replace("[benchmark]", "[benchmark, log]"))
    assert (error.pointer, "each issuer needs one" in error.detail) == ("/issuers/0", True)
    assert error.place.line == 4
    one = LOGGED.replace(
        "- issuer: https://issuer.example", "- issuer: https://issuer.example\n  log: {policy: {file: x}}"
    )
    assert read_trust_file(one.replace("[benchmark]", "[log]").encode(), "t").require == ["log"]


def test_a_log_is_a_local_policy_and_an_address() -> None:
    for old, new, pointer in (
        ("{file: policy}", "{url: https://log.example/policy}", "/issuers/1/log/policy"),
        ("{file: policy}", "{file: policy, inline: x}", "/issuers/1/log/policy"),
        ("policy: {file: policy}, ", "", "/issuers/1/log"),
        (", url: https", ", origin: https", "/issuers/1/log"),
        ("https://log.example", "''", "/issuers/1/log/url"),
        ("{policy: {file: policy}, url: https://log.example}", "policy", "/issuers/1/log"),
    ):
        assert LOGGED.count(old) == 1
        assert refusal(LOGGED.replace(old, new)).pointer.startswith(pointer), new


def test_a_policy_that_breaks_a_rule_is_refused_with_its_place_in_the_trust_file() -> None:
    broken = refusal(LOGGED.replace("{file: policy}", json.dumps({"inline": POLICY.replace("quorum en", "quorum x")})))
    assert (broken.code, broken.pointer) == (Code.LOG_POLICY, "/issuers/1/log/policy/inline")
    assert "line 7 of the policy" in broken.detail
    file = read_trust_file(LOGGED.encode(), "t")
    for text, detail in (
        ("", "cut short"), ("quorum none\n", "no `log` line"), (POLICY + "x\n", "line 8 of the policy"),
    ):  # fmt: skip
        with pytest.raises(FormatError) as caught:
            resolve(file, {**FOUND, "/issuers/1/log/policy": text.encode()})
        assert (caught.value.code, caught.value.pointer) == (Code.LOG_POLICY, "/issuers/1/log/policy")
        assert detail in caught.value.detail


def test_a_short_trust_file_requires_nothing_more_and_trusts_a_day() -> None:
    text = f"version: 1\naudience: a\nissuers: [{{issuer: {make.ISSUER}, keys: {{url: u}}}}]\n"
    trust = resolve(read_trust_file(text.encode(), "t"), {"/issuers/0/keys": make.jwks()})
    assert trust.max_token_life_s == Trust("a", {}).max_token_life_s == 86_400
    assert (trust.require, trust.receipt_keys, trust.absent) == (frozenset(), UNSET, ())
    made = TrustFile(version=1, audience="a", issuers=[IssuerSources(issuer=make.ISSUER, keys=TrustSource(url="u"))])
    assert resolve(made, {"/issuers/0/keys": make.jwks()}).issuers[make.ISSUER].keys == make.key_set()
    assert made.digest.startswith("sha256:"), "and one that is made in code"


def test_the_digest_covers_the_meaning_of_the_file_and_not_its_spelling() -> None:
    again = read_trust_file(GOOD.replace("require: [benchmark]", "require:  # due\n- benchmark").encode(), "t")
    assert again.digest == FILE.digest == resolve(FILE, FOUND).digest
    for old, new in (("3600", "3601"), ("require: [benchmark]\n", ""), ("file: keys.json", "url: keys.json")):
        assert read_trust_file(GOOD.replace(old, new).encode(), "t").digest != FILE.digest


def test_an_incomplete_or_ambiguous_trust_file_is_an_error_and_no_default() -> None:
    audience, life, keys, receipts = (
        f"audience: {make.AUDIENCE}", "max_token_life_s: 3600", "keys: {file: keys.json}", "receipt_keys: {file: receipts.json}",
    )  # fmt: skip
    changes = {
        audience + "\n": [""],
        audience: ['audience: ""', "audience: null", f"audience: [{make.AUDIENCE}]"],
        f"issuer: {make.ISSUER}": ['issuer: ""', "issuers: x"],
        "version: 1\n": [""],
        "version: 1": ["version: 2", 'version: "1"', "version: 1\nversion: 1"],
        life: [
            "max_token_life_s: 0", "max_token_life_s: 86401", "max_token_life_s: true", "max_age: 3600", "max_attempt: 0", "max_attempt: 2.5",
            "max_attempt: true", "max_attempt: null", 'max_attempt: "5"', "max_attempts: 5",
        ],
        "frameworks: [inspect-ai, lm-eval]": ["frameworks: []", "frameworks: inspect-ai", "framework: [inspect-ai]"],
        "inspect-ai, lm-eval": ["yes"],
        keys: [
            "keys: {}", "keys: {file: keys.json, url: x}", "keys: {file: k, inline: {keys: []}}", "keys: keys.json", "keys: {path: keys.json}",
        ],
        f"  {keys}\n": [""],
        "require: [benchmark]": ["require: [receipts]", "require: [attempts]", "require: benchmark"],
        receipts: [
            "receipt_keys: {}", "receipt_keys: receipts.json", 'receipt_keys: {inline: "x"}', "receipt_keys: {inline: {keys: []}}",
        ],
        "/.well-known/jwks-archive.json}": ["/, file: x}"],
        "archive: {url": ["archives: {url"],
    }  # fmt: skip
    codes = {
        Code.FILE_SCHEMA, Code.FILE_UNKNOWN_MEMBER, Code.FILE_RULE, Code.FILE_DUPLICATE_KEY, Code.FILE_SCALAR, Code.FILE_SYNTAX,
    }  # fmt: skip
    for old, new in ((old, new) for old, all_new in changes.items() for new in all_new):
        assert old in GOOD
        error = refusal(GOOD.replace(old, new))
        assert (error.code in codes, error.place.line >= 1) == (True, True), new
    head = f"version: 1\n{audience}\n"
    for tail in ("", "issuers: []\n", "issuers: {}\n", "issuers: null\n"):
        assert refusal(head + tail).code is Code.FILE_SCHEMA


def test_a_trust_file_limits_and_requires_attempts_and_a_wrong_limit_has_its_place() -> None:
    limited = GOOD.replace("[benchmark]", "[attempt, benchmark]\nmax_attempt: 5")
    trust = resolve(read_trust_file(limited.encode(), "t"), FOUND)
    assert (trust.max_attempt, trust.require) == (5, frozenset({"attempt", "benchmark"}))
    assert resolve(FILE, FOUND).max_attempt is None
    assert trust.digest != FILE.digest
    error = refusal(limited.replace("max_attempt: 5", "max_attempt: 65"))
    assert (error.pointer, error.place.line, error.place.column) == ("/max_attempt", 15, 14)
    assert error.detail == "expected a whole number <= 64"


def test_a_trust_file_names_the_definitions_that_count_and_a_wrong_one_has_its_place() -> None:
    first, second = "1" * 40, "2" * 64
    stated = f'\ndefinitions:\n  Openai/GSM8K: "{first}"\n  a/b: ["{first}", "{second}"]\n  c/d: any\n'
    text = GOOD.replace("[benchmark]", f"[benchmark]{stated}")
    trust = resolve(read_trust_file(text.encode(), "t"), FOUND)
    assert trust.definitions.commits == {"openai/gsm8k": (first,), "a/b": (first, second)}
    assert trust.digest != FILE.digest
    assert [trust.definitions.accept("OPENAI/gsm8k", each) for each in (first, second)] == [True, False]
    assert trust.definitions.accept("c/d", second)
    assert trust.definitions.accept("e/f", second)
    for old, new, pointer, rule in (
        (f'"{second}"', "any", "/a~1b/1", "a full commit (40"), (f'"{second}"', f'"{"A" * 40}"', "/a~1b/1", "a full commit (40"),
        ("c/d: any", "c/d: main", "/c~1d", "must be `any`, a full commit"), ("c/d", "c", "/c", "repository: `owner/name`"),
        ("c/d", "A/B", "/A~1B", "occurs twice"), ("c/d: any", "c/d: []", "/c~1d", "a list of length >= 1"),
        ("c/d: any", "c/d: 5", "/c~1d", "expected text or a list"),
    ):  # fmt: skip
        error = refusal(text.replace(old, new))
        assert (error.pointer, error.place.line >= 15) == (f"/definitions{pointer}", True)
        assert rule in error.detail


def test_an_issuer_twice_or_a_list_without_its_key_is_an_error_at_its_line() -> None:
    error = refusal(GOOD.replace("https://other.example", make.ISSUER))
    assert (error.pointer, error.place.line) == ("/issuers/0/issuer", 4)
    error = refusal(GOOD.replace("revocation_keys: {file: revocations.json}\n", ""))
    assert (error.pointer, error.place.line) == ("/issuers/0/revocations", 7)
    assert "revocation_keys" in error.detail


def inline(**member: Any) -> str:
    return GOOD.replace("{file: keys.json}", json.dumps({"inline": member}))


def test_an_inline_key_set_is_judged_like_any_other_and_needs_no_bytes() -> None:
    good: dict[str, Any] = dict(jose.public_jwk(make.STRANGER.public_key()))
    file = read_trust_file(inline(keys=[good, {**good, "kid": "b", "d": "AA"}]).encode(), "t")
    trust = resolve(file, {**FOUND, "/issuers/1/keys": None})
    found = trust.issuers["https://other.example"].keys
    assert found is not None
    assert (list(found.keys), found.skipped) == ([good["kid"]], 1)
    sets: list[dict[str, Any]] = [{"key": []}, {"keys": []}, {"keys": [{"kty": "oct", "kid": "x", "k": "AA"}]}]
    for members in sets:
        error = refusal(inline(**members))
        assert error.pointer.startswith("/issuers/1/keys/inline")
        assert error.place.line == 9


def test_a_missing_document_is_absent_and_every_other_one_is_there() -> None:
    for pointer in FOUND:
        for found in ({**FOUND, pointer: None}, {name: raw for name, raw in FOUND.items() if name != pointer}):
            trust = resolve(FILE, found)
            first, second = trust.issuers.values()
            there: dict[str, object] = {
                "/issuers/0/keys": first.keys, "/issuers/0/archive": first.archive, "/issuers/0/revocations": first.revocations,
                "/issuers/1/keys": second.keys, "/receipt_keys": trust.receipt_keys,
            }  # fmt: skip
            missing = {name for name, value in there.items() if value is None}
            assert missing == {"/issuers/0/revocations" if pointer == "/revocation_keys" else pointer}
            assert trust.absent == (Absence(pointer, "unavailable"),)


def test_a_malformed_document_is_absent_from_a_url_and_an_error_in_a_file() -> None:
    for pointer, source in sources(FILE).items():
        if source.url is not UNSET:
            (absence,) = resolve(FILE, {**FOUND, pointer: b"<html>"}).absent
            assert (absence.pointer, absence.reason != "unavailable") == (pointer, True)
            continue
        for raw in (b"<html>", b"{}", b'{"keys":[]}', b"\xff"):
            with pytest.raises(FormatError) as caught:
                resolve(FILE, {**FOUND, pointer: raw})
            assert caught.value.pointer.startswith(pointer)
            # The named file's own line would look like a line of the trust file.
            assert (caught.value.line, caught.value.column) == (0, 0)


def test_a_list_by_another_key_or_of_another_issuer_is_absent() -> None:
    for bad in ({"key": make.STRANGER}, {"iss": "https://other.example"}, {"typ": "JWT"}):
        trust = resolve(FILE, {**FOUND, "/issuers/0/revocations": make.revocation_list(**bad)})
        assert trust.issuers[make.ISSUER].revocations is None
        assert [absence.pointer for absence in trust.absent] == ["/issuers/0/revocations"]


def test_a_token_key_vouches_for_no_receipt_and_no_revocation_list() -> None:
    """Its thief would write receipts from before the theft, and revert the revocation."""
    receipts = {"/receipt_keys": make.jwks(make.RECEIPT_KEY, make.REVOCATION_KEY)}
    for where in ("/issuers/0/keys", "/issuers/0/archive", "/issuers/1/keys"):
        window = {"active_from": 1} if where.endswith("archive") else {}
        stolen = resolve(FILE, {**FOUND, **receipts, where: make.jwks(make.REVOCATION_KEY, **window)})
        assert stolen.receipt_keys == msgspec.structs.replace(make.key_set(make.RECEIPT_KEY), skipped=1)
        assert stolen.issuers[make.ISSUER].revocations is None
        absent = {absence.pointer for absence in stolen.absent}
        assert absent == {"/receipt_keys", "/revocation_keys", "/issuers/0/revocations"}
    jwk = {**jose.public_jwk(make.KEY.public_key()), "kid": "receipts"}  # another kid
    trust = resolve(FILE, {**FOUND, "/receipt_keys": json.dumps({"keys": [jwk]}).encode()})
    assert trust.receipt_keys == jose.KeySet({}, 1)


BYTES = st.binary(max_size=40) | st.text(max_size=20).map(str.encode) | st.just(b"{" * 5000)


@given(st.sampled_from(list(FOUND)), BYTES)
@example("/issuers/0/archive", b'{"keys":5}')
@example("/issuers/0/revocations", b"{}")
def test_any_bytes_anywhere_are_absent_or_an_input_error(pointer: str, raw: bytes) -> None:
    check_found(pointer, FOUND[pointer] or b"")
    with pytest.raises(FormatError):
        check_found(pointer, raw)
    with pytest.raises(InputError):
        read_trust_file(raw, "t")
    with contextlib.suppress(FormatError):
        assert pointer in {absence.pointer for absence in resolve(FILE, {**FOUND, pointer: raw}).absent}
