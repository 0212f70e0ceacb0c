"""Whether a value meets a requirement, and which registered identity a caller is."""

import random
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats.strict_json import JSON
from issuer.identity.profiles import PROFILES
from issuer.policy import patterns
from issuer.policy.decide import Denial, decide
from issuer.policy.match import are_disjoint, pins_match, resolve
from issuer.policy.model import Identity, Matcher, Requirement, describe, equals, is_met, meets
from issuer.policy.patterns import denies, glob_matches, matches_one
from tests.support.policies import NOW, POLICY, caller, changed, load, registration
from tests.support.shared import ROOT

PROFILE = PROFILES["github-actions"]


def test_a_list_is_met_where_one_of_its_globs_is() -> None:
    for others in (0, 20):
        globs = ("gsm8k", "cais/*", "*/hle", "a*b*c", *(f"other-{number}/*" for number in range(others)))
        for value in ("gsm8k", "gsm8k*", "cais/hle", "cais/*", "x/hle", "a-b-c", "cais/a/b", "acb", "other/19", ""):
            met = value in {"gsm8k", "cais/hle", "cais/*", "x/hle", "a-b-c"}
            assert matches_one(globs, value) is met, value
    denied = ("x", "Evil*")
    assert (denies(denied, "eVIL/a@b:c"), denies(denied, "good/evil")) == (True, False), "it crosses everything"


def test_a_near_miss_of_a_glob_is_refused_and_a_star_crosses_no_separator() -> None:
    values = [
        "refs/heads/main/x", "xrefs/heads/main", "refs/heads/main\n", "refs/heads/main\nx", "\nrefs/heads/main", "refs/heads/main@evil",
        "refs/heads/main:evil", "refs/heads/mаin/", "refs/headѕ/main", "ｒefs/heads/main", "refs/heads\u200b/main", "refs//heads/main",
        "Refs/heads/main", "refs/heads", "",
    ]  # fmt: skip
    assert [value for value in values if glob_matches("refs/heads/*", value)] == []
    exact = ["gsm8k\n", "gsm8", "gsm8kk", "xgsm8k", "gѕm8k", "gsm８k", "gsm8k\u200b", "GSM8K", ""]
    assert [value for value in ["gsm8k", *exact] if glob_matches("gsm8k", value)] == ["gsm8k"]
    for barrier in ("/", "@", ":", "\n", "\r", "\t", "\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u2029"):
        assert not glob_matches("main*", f"main{barrier}evil")
        assert not glob_matches("*", barrier)
        assert not glob_matches("a*b*c", f"a{barrier}b-c")
        assert glob_matches(f"a*{barrier}*c", f"a-{barrier}-c")


def test_a_glob_agrees_with_a_slow_matcher_and_only_the_star_is_special() -> None:
    dice, matched = random.Random(2), 0
    for _ in range(2000):
        pattern = "".join(dice.choices("ab/*@", k=dice.randint(0, 7)))
        value = "".join(dice.choices("ab/@", k=dice.randint(0, 8)))
        slow = re.fullmatch("[^/@:]*".join(map(re.escape, pattern.split("*"))), value) is not None
        assert glob_matches(pattern, value) == slow, (pattern, value)
        matched += slow
    assert matched > 50
    for pattern, value in (
        ("a.c", "abc"), ("a|b", "a"), ("a|b", "b"), ("[ab]", "a"), ("a?", "a"), ("a?", "ab"), ("a+", "aa"), ("(a)", "a"), ("^a$", "a"),
        (r"\d", "1"), ("a{2}", "aa"), (".*", "anything"), ("(?i)a", "A"), ("$", ""), ("[!a]", "b"),
    ):  # fmt: skip
        assert (glob_matches(pattern, value), glob_matches(pattern, pattern)) == (False, True), pattern


def test_a_long_value_does_not_stall_a_glob() -> None:
    """In another process, because a regular expression that backtracks cannot be interrupted in this one."""
    program = """
from issuer.policy.patterns import glob_matches
for pattern, value in (("*_*_*_*_*x", "_" * 256), ("*a*b", "a" * 64_000), ("*****x", "y" * 256)):
    assert not glob_matches(pattern, value), pattern
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, timeout=20)


def test_a_requirement_is_met_by_its_value_of_its_type_and_a_glob_by_text_alone() -> None:
    pairs: list[tuple[JSON, str | bool | int]] = [
        ("1", 1), (1, "1"), (True, 1), (1, True), (False, 0), ("true", True), (True, "true"), (1.0, 1), ("", False),
        (None, "None"), (["7"], "7"), ({"a": "7"}, "7"), ("7\n", "7"), ("７", "7"), ("07", "7"), (" 7", "7"),
    ]  # fmt: skip
    for actual, expected in pairs:
        assert not equals(actual, expected)
        assert not meets(actual, expected)
        assert not meets(actual, Matcher(any_of=(expected,)))
        assert equals(expected, expected)
    rules: list[Requirement] = ["a", Matcher(any_of=("b", "a")), Matcher(glob="*"), Matcher(glob="a")]
    assert [meets("a", rule) for rule in rules] == [True] * 4
    assert [meets("a\n", rule) for rule in rules] == [False] * 4
    values: list[JSON] = [None, True, 1, 1.5, ["a"], {"a": "a"}]
    assert [value for value in values if meets(value, Matcher(glob="*"))] == []


def test_only_absent_is_met_by_a_claim_that_is_not_there() -> None:
    rule = Matcher(absent=True)
    assert is_met({}, "x", rule)
    assert is_met({"y": "a"}, "x", rule)
    values: list[JSON] = ["", "a", None, False, 0, [], {}]
    assert [value for value in values if is_met({"x": value}, "x", rule)] == []
    others: list[Requirement] = [
        "a", Matcher(any_of=("a",)), Matcher(glob="*"), Matcher(regex=".*", reason="r"), Matcher(contains_all=("a",)),
    ]  # fmt: skip
    for other in others:
        assert not is_met({}, "x", other)
        assert not is_met({"x": None}, "x", other)
    identity = Identity(id="main", provider="acme", pins={"sub": "robot", "team": "None"})
    claims: list[dict[str, JSON]] = [
        {"sub": "robot"}, {"sub": "robot", "team": None}, {}, {"sub": "robot", "team": "None"},
    ]  # fmt: skip
    assert [pins_match(identity, one) for one in claims] == [False, False, False, True], "an absent one matches no pin"


def test_contains_all_compares_the_words_between_spaces_of_text_alone() -> None:
    read, both = Matcher(contains_all=("read",)), Matcher(contains_all=("read", "write"))
    assert all(meets(claim, read) for claim in ("read", "read  write", " read "))
    assert meets("write openid read", both)
    assert not meets("read", both)
    claims: list[JSON] = [
        "readall", "already", "READ", "read\twrite", "read\nwrite", "read,write", "read\u00a0write", "rеad", "",
        ["read"], {"read": True}, None, 1,
    ]  # fmt: skip
    assert [claim for claim in claims if meets(claim, read)] == []


def test_a_regex_matches_a_whole_value_and_no_near_miss() -> None:
    """Classes mean ASCII, and no letter is folded."""
    for pattern, value in {
        "refs/(heads|tags)/[a-z]+": "refs/tags/v", "a|b": "b", "[^/]+/[^/]+": "org/evals", "v[0-9]{1,3}": "v12",
        r"\.github/[a-z.]*": ".github/a.yml", ".*": "", "(?:ab){2,3}": "abab", "a*": "a" * 256,
    }.items():  # fmt: skip
        assert patterns.find_fault(pattern) == ""
        assert meets(value, Matcher(regex=pattern, reason="r")), pattern
    for pattern, value in (
        ("a|b", "ax"), ("a|b", "xb"), ("a|b", "a\n"), ("(a)|b", "ab"), ("refs/heads/main|x", "refs/heads/main/evil"),
        ("main", "main\n"), ("main", "\nmain"), ("main", "Main"), ("main", "mаin"), ("main", "ｍain"),
        ("main", "ma\u200bin"), (".*", "a\nb"), (".*", "a\rb"), (".*", "a\x00"), (".*", "a\u2028b"), ("[^x]*", "a\x1b"),
        ("[0-9]", "１"), ("[a-z]*", "ı"), ("a*", "a" * 257), ("(?:ab){2,3}", "ab"),
        (r"\d+", "١"), (r"\w", "é"), ("k", "\u212a"), (".", "\ud800"),
    ):  # fmt: skip
        assert patterns.find_fault(pattern) == ""
        assert not meets(value, Matcher(regex=pattern, reason="r")), (pattern, value)


def test_no_value_stalls_a_regex() -> None:
    """Each pattern keeps a backtracking matcher busy for longer than anyone waits: this test would not end."""
    for pattern in ("(a|a)*b", "(a+)+b", "(a*)*b", "(?:a?b?)*c", "(a|ab)+c", ".*.*.*.*x", "a?" * 100 + "b"):
        assert patterns.find_fault(pattern) == ""
        for value in ("a" * 256, "ab" * 128, "a" * 200 + "d" * 56):
            assert not patterns.matches(pattern, value)


def test_a_regex_that_re2_does_not_know_or_that_has_flags_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    bad = [
        r"(a)\1", "(?i)a", "(?=a)a", "(?<=a)a", "(?!a)b", "(?P<n>a)", "(?>a)", "(a", "a)", "*a", "a**", "[", "[]", "[^]",
        "[z-a]", "a{3,2}", "mаin", "a\n", "a{1001}", "((a{100}){100}){100}", "a" * 257,
    ]  # fmt: skip
    assert [pattern for pattern in ["a" * 256, *bad] if patterns.find_fault(pattern) == ""] == ["a" * 256]
    assert capfd.readouterr() == ("", "")


def test_every_requirement_can_be_described() -> None:
    rules: list[tuple[Requirement, str]] = [
        ("a", "a"), (1, "the number 1"), (Matcher(any_of=("a", True)), "one of a, the boolean true"),
        (Matcher(glob="a*"), "text of the form a*"),
        (Matcher(regex="a|b", reason="because"), "text that matches the expression a|b"),
        (Matcher(contains_all=("a", "b")), "the words a, b"), (Matcher(absent=True), "no such claim"),
    ]  # fmt: skip
    assert [describe(rule) for rule, _ in rules] == [text for _, text in rules]


def test_disjoint_identities_never_share_a_token() -> None:
    """Against every token over two claims with few values; and some pairs must be distinguished, and some not."""
    rules: list[Requirement | None] = [
        None, "a", "b", 1, True, Matcher(any_of=("a", 1,)), Matcher(any_of=("b", True,)), Matcher(glob="a*"),
        Matcher(regex="a|b", reason="r"), Matcher(contains_all=("a",)), Matcher(absent=True),
    ]  # fmt: skip
    values: list[JSON] = ["a", "b", "a b", "aa", 1, True, None]
    tokens = [{}, *({"x": x} for x in values), *({"y": y} for y in values)]
    tokens += [{"x": x, "y": y} for x in values for y in values]

    def identity(x: Requirement | None, y: Requirement | None) -> Identity:
        require = {name: rule for name, rule in (("x", x), ("y", y)) if rule is not None}
        return Identity(id="i", provider="acme", pins={"sub": "robot"}, require=require)

    def meeting(one: Identity) -> set[int]:
        return {i for i, claims in enumerate(tokens) if all(is_met(claims, n, r) for n, r in one.require.items())}

    identities = [identity(x, y) for x in rules for y in rules]
    met_by = [meeting(one) for one in identities]
    apart = [(i, j) for i, one in enumerate(identities) for j, two in enumerate(identities) if are_disjoint(one, two)]
    assert 1000 < len(apart) < len(identities) ** 2 - 1000
    assert all(met_by[i].isdisjoint(met_by[j]) for i, j in apart)


def unresolved(folder: Path, text: str = POLICY, /, **changes: JSON) -> Refused:
    policies = load(folder, inspect_ai=text)
    with pytest.raises(Refused) as refused:
        resolve(policies, caller(policies, **changes))
    return refused.value


def test_a_caller_whose_pins_match_is_that_identity_whatever_its_other_claims(tmp_path: Path) -> None:
    """Its requirements are judged by `decide`, which can then say what failed."""
    policies = load(tmp_path, inspect_ai=POLICY)
    found = registration(policies)
    assert (found.policy.integration, found.identity.id) == ("inspect-ai", "main")
    taken_over = {"repository": "evil/evals", "repository_owner": "evil", "sub": "repo:evil@1/evals@2:ref:x"}
    assert registration(policies, ref="refs/heads/other", **taken_over).identity.id == "main"
    with pytest.raises(Refused) as refused:  # the same ids at another provider are another caller
        resolve(policies, caller(policies, iss="https://gitlab.com", sub="s", project_id="7", namespace_id="6"))
    assert refused.value.code is Code.INTEGRATION_UNKNOWN


def test_an_unknown_caller_sees_only_its_own_plain_allow_listed_claims(tmp_path: Path) -> None:
    secretive = changed(
        changed(POLICY, "evals@example.org", "secret@example.org"), "main\n    provider", "hidden\n    provider"
    )
    refusal = unresolved(tmp_path, secretive, repository_id="8", email="a@b.example", actor="mallory")
    (fault,) = refusal.faults
    assert fault.pointer == ""
    assert fault.detail == refusal.detail == (
        "The token is genuine, but this identity is not registered for any integration. The token says: repository_id=8, "
        "repository_owner_id=6, repository=org/evals, repository_owner=org."
    )  # fmt: skip
    refusal = unresolved(tmp_path, repository_id=["7"], repository="r" * 600, repository_owner_id={"a": 1})
    assert refusal.detail.endswith("The token says: repository_owner=org.")
    nothing: dict[str, JSON] = dict.fromkeys(("repository_id", "repository_owner_id", *PROFILE.names))
    assert unresolved(tmp_path, **nothing).detail.endswith("none of the ids that policies pin.")


SECOND = """\
  - id: release
    provider: github-actions
    pins: {repository_id: "7", repository_owner_id: "6"}
    require: {ref: "refs/heads/release"}
grants:
"""


def test_of_identities_with_the_same_pins_the_nearest_is_found(tmp_path: Path) -> None:
    """`main` lacks one requirement of two, `release` its only one: equally near, and `main` comes first."""
    policies = load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", SECOND))
    for name in ("main", "release"):
        assert registration(policies, ref=f"refs/heads/{name}").identity.id == name
    refs: list[JSON] = ["refs/heads/other", "refs/heads/main\n", None, True]
    for ref in refs:
        near = registration(policies, ref=ref)
        verdict = decide(near, caller(policies, ref=ref), (), NOW)
        assert near.identity.id == "main"
        assert isinstance(verdict, Denial)
        assert verdict.code in {Code.IDENTITY_CLAIM_MISMATCH, Code.IDENTITY_CLAIM_MISSING}
        assert [check.rule for check in verdict.checks if not check.passed] == ["identities.main.require.ref"]
    assert registration(policies, ref="refs/heads/x", runner_environment="self-hosted").identity.id == "release"


def test_a_caller_of_two_identities_is_ambiguous_and_one_of_neither_unknown(tmp_path: Path) -> None:
    """Of two integrations: naming one of them would reveal the other's policy. The loader refuses a pair that one caller
    could match, so it is put together here: the second lock on the same door."""
    policies = load(tmp_path, inspect_ai=POLICY)
    key, one = next(iter(policies.registrations)), registration(policies)
    doubled = msgspec.structs.replace(policies, registrations={key: (one, one)})
    other = changed(changed(POLICY, "integration: inspect-ai", "integration: other"), "refs/heads/main", "refs/heads/x")
    apart = load(tmp_path, inspect_ai=POLICY, other=other)
    assert registration(apart, ref="refs/heads/x").policy.integration == "other"
    for loaded, ref, code in (
        (doubled, "refs/heads/main", Code.INTEGRATION_AMBIGUOUS), (apart, "refs/heads/y", Code.INTEGRATION_UNKNOWN),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            registration(loaded, ref=ref)
        assert (refused.value.code, "refs/heads" in refused.value.detail) == (code, False)
        assert code is Code.INTEGRATION_UNKNOWN or refused.value.faults == ()
