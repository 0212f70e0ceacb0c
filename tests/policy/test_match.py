"""Whether a value meets a requirement, and which registered identity a caller is."""

from __future__ import annotations

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
from tests.support.policies import GITHUB, NOW, POLICY, caller, changed, load, registration
from tests.support.shared import ROOT

PROFILE = PROFILES["github-actions"]

# -- globs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("refs/heads/main", "refs/heads/main"),
        ("refs/heads/*", "refs/heads/main"),
        ("refs/heads/*", "refs/heads/"),
        ("*/*", "cais/hle"),
        ("cais/h*e", "cais/hle"),
        ("*", "gsm8k"),
        ("*", ""),
        ("**", "gsm8k"),
        ("a*b*c", "a-b-b-c"),
        ("*ab*ab", "abab"),
        ("org/evals/.github/workflows/*.yml@refs/heads/main", "org/evals/.github/workflows/run.yml@refs/heads/main"),
    ],
)
def test_a_glob_matches_a_whole_value(pattern: str, value: str) -> None:
    assert glob_matches(pattern, value)


@pytest.mark.parametrize("others", [0, 20], ids=["short", "long"])
@pytest.mark.parametrize(
    ("value", "met"),
    [("gsm8k", True), ("gsm8k*", False), ("cais/hle", True), ("cais/*", True), ("x/hle", True), ("a-b-c", True),
     ("cais/a/b", False), ("acb", False), ("other/19", False), ("", False)],
)  # fmt: skip
def test_a_list_is_met_where_one_of_its_globs_is(value: str, met: bool, others: int) -> None:
    globs = ("gsm8k", "cais/*", "*/hle", "a*b*c", *(f"other-{number}/*" for number in range(others)))
    assert matches_one(globs, value) is met
    assert any(glob_matches(glob, value) for glob in globs) is met


def test_a_denied_glob_crosses_everything_in_any_case() -> None:
    assert denies(("x", "Evil*"), "eVIL/a@b:c")
    assert not denies(("x", "Evil*"), "good/evil")


@pytest.mark.parametrize(
    "value",
    [
        "refs/heads/main/x",
        "xrefs/heads/main",
        "refs/heads/main\n",
        "refs/heads/main\nx",
        "\nrefs/heads/main",
        "refs/heads/main@evil",
        "refs/heads/main:evil",
        "refs/heads/mаin/",
        "refs/headѕ/main",  # Cyrillic dze
        "ｒefs/heads/main",
        "refs/heads\u200b/main",
        "refs//heads/main",
        "Refs/heads/main",
        "refs/heads",
        "",
    ],
)
def test_a_near_miss_of_a_glob_is_refused(value: str) -> None:
    assert not glob_matches("refs/heads/*", value)


@pytest.mark.parametrize(
    "value", ["gsm8k\n", "gsm8", "gsm8kk", "xgsm8k", "gѕm8k", "gsm８k", "gsm8k\u200b", "GSM8K", ""]
)
def test_a_pattern_without_a_star_is_the_exact_value(value: str) -> None:
    assert glob_matches("gsm8k", "gsm8k")
    assert not glob_matches("gsm8k", value)


@pytest.mark.parametrize(
    "barrier", ["/", "@", ":", "\n", "\r", "\t", "\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u2029"]
)
def test_a_star_does_not_cross_separators_control_characters_or_line_breaks(barrier: str) -> None:
    assert not glob_matches("main*", f"main{barrier}evil")
    assert not glob_matches("*", barrier)
    assert not glob_matches("a*b*c", f"a{barrier}b-c")
    assert glob_matches(f"a*{barrier}*c", f"a-{barrier}-c")


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("a.c", "abc"), ("a|b", "a"), ("a|b", "b"), ("[ab]", "a"), ("a?", "a"), ("a?", "ab"), ("a+", "aa"),
        ("(a)", "a"), ("^a$", "a"), (r"\d", "1"), ("a{2}", "aa"), (".*", "anything"), ("(?i)a", "A"), ("$", ""),
        ("[!a]", "b"),
    ],
)  # fmt: skip
def test_only_the_star_is_special(pattern: str, value: str) -> None:
    assert not glob_matches(pattern, value)
    assert glob_matches(pattern, pattern)


def test_a_glob_agrees_with_a_matcher_that_tries_everything() -> None:
    dice, matched = random.Random(2), 0
    for _ in range(5000):
        pattern = "".join(dice.choices("ab/*@", k=dice.randint(0, 7)))
        value = "".join(dice.choices("ab/@", k=dice.randint(0, 8)))
        slow = re.fullmatch("[^/@:]*".join(map(re.escape, pattern.split("*"))), value) is not None
        assert glob_matches(pattern, value) == slow, (pattern, value)
        matched += slow
    assert matched > 100


LONG_VALUES = """
from issuer.policy.patterns import glob_matches
for pattern, value in (("*_*_*_*_*x", "_" * 256), ("*a*b", "a" * 64_000), ("*****x", "y" * 256)):
    assert not glob_matches(pattern, value), pattern
"""


def test_a_callers_long_value_does_not_stall_a_glob() -> None:
    """In another process, because a regular expression that backtracks cannot be interrupted in this one."""
    subprocess.run([sys.executable, "-c", LONG_VALUES], check=True, cwd=ROOT, timeout=20)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("1", 1), (1, "1"), (True, 1), (1, True), (False, 0), ("true", True), (True, "true"), (1.0, 1), ("", False),
        (None, "None"), (["7"], "7"), ({"a": "7"}, "7"), ("7\n", "7"), ("７", "7"), ("07", "7"), (" 7", "7"),
    ],
)  # fmt: skip
def test_values_of_two_types_are_never_equal(actual: JSON, expected: str | bool | int) -> None:
    assert not equals(actual, expected)
    assert not meets(actual, expected)
    assert not meets(actual, Matcher(any_of=(expected,)))
    assert equals(expected, expected)


@pytest.mark.parametrize("rule", ["a", Matcher(any_of=("b", "a")), Matcher(glob="*"), Matcher(glob="a")])
def test_a_requirement_is_met_by_its_value(rule: Requirement) -> None:
    assert meets("a", rule)
    assert not meets("a\n", rule)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, ["a"], {"a": "a"}])
def test_a_glob_is_met_by_text_alone(value: JSON) -> None:
    assert not meets(value, Matcher(glob="*"))


def test_absent_is_met_by_a_claim_that_is_not_there_alone() -> None:
    rule = Matcher(absent=True)
    assert is_met({}, "x", rule)
    assert is_met({"y": "a"}, "x", rule)
    values: list[JSON] = ["", "a", None, False, 0, [], {}]
    for value in values:
        assert not is_met({"x": value}, "x", rule)


@pytest.mark.parametrize("rule", ["a", Matcher(any_of=("a",)), Matcher(glob="*"), Matcher(regex=".*", reason="r"),
                                  Matcher(contains_all=("a",))])  # fmt: skip
def test_a_claim_that_is_not_there_meets_no_other_requirement(rule: Requirement) -> None:
    assert not is_met({}, "x", rule)
    assert not is_met({"x": None}, "x", rule)


@pytest.mark.parametrize(
    ("words", "claim", "contained"),
    [
        (["read"], "read", True),
        (["read", "write"], "write openid read", True),
        (["read"], "read  write", True),
        (["read"], " read ", True),
        (["read", "read"], "read", True),
        (["read", "write"], "read", False),
        (["read"], "readall", False),
        (["read"], "already", False),
        (["read"], "READ", False),
        (["read"], "read\twrite", False),
        (["read"], "read\nwrite", False),
        (["read"], "read,write", False),
        (["read"], "read\u00a0write", False),
        (["read"], "rеad", False),  # Cyrillic ie
        (["read"], "", False),
    ],
)
def test_contains_all_compares_the_words_between_spaces(words: list[str], claim: str, *, contained: bool) -> None:
    assert meets(claim, Matcher(contains_all=tuple(words))) is contained


@pytest.mark.parametrize("value", [["read"], {"read": True}, None, 1])
def test_contains_all_is_met_by_text_alone(value: JSON) -> None:
    assert not meets(value, Matcher(contains_all=("read",)))


# -- regular expressions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("refs/(heads|tags)/[a-z]+", "refs/tags/v"),
        ("a|b", "b"),
        ("[^/]+/[^/]+", "org/evals"),
        ("v[0-9]{1,3}", "v12"),
        (r"\.github/[a-z.]*", ".github/a.yml"),
        (".*", ""),
    ],
)
def test_a_regex_matches_a_whole_value(pattern: str, value: str) -> None:
    assert patterns.find_fault(pattern) == ""
    assert meets(value, Matcher(regex=pattern, reason="r"))


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("a|b", "ax"), ("a|b", "xb"), ("a|b", "a\n"), ("(a)|b", "ab"), ("refs/heads/main|x", "refs/heads/main/evil"),
        ("main", "main\n"), ("main", "\nmain"), ("main", "Main"), ("main", "mаin"), ("main", "ｍain"),
        ("main", "ma\u200bin"), (".*", "a\nb"), (".*", "a\rb"), (".*", "a\x00"), (".*", "a\u2028b"), ("[^x]*", "a\x1b"),
        ("[0-9]", "１"), ("[a-z]*", "ı"), ("a*", "a" * 257),
    ],
)  # fmt: skip
def test_a_near_miss_of_a_regex_is_refused(pattern: str, value: str) -> None:
    assert patterns.find_fault(pattern) == ""
    assert not meets(value, Matcher(regex=pattern, reason="r"))


@pytest.mark.parametrize(
    "pattern", ["(a|a)*b", "(a+)+b", "(a*)*b", "(?:a?b?)*c", "(a|ab)+c", ".*.*.*.*x", "a?" * 100 + "b"]
)
def test_no_value_stalls_a_regex(pattern: str) -> None:
    """Each of them keeps a backtracking matcher busy for longer than anyone waits: this test would not end."""
    assert patterns.find_fault(pattern) == ""
    for value in ("a" * 256, "ab" * 128 + "d", "a" * 200 + "d" * 56):
        assert not patterns.matches(pattern, value[:256])


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1", "(?i)a", "(?=a)a", "(?<=a)a", "(?!a)b", "(?P<n>a)", "(?>a)", "(a", "a)", "*a", "a**", "[", "[]", "[^]",
        "[z-a]", "a{3,2}", "mаin", "a\n", "a{1001}", "((a{100}){100}){100}", "a" * 257,
    ],
)  # fmt: skip
def test_a_regex_that_re2_does_not_know_or_that_has_flags_is_refused(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert patterns.find_fault(pattern) != ""
    assert capfd.readouterr() == ("", "")


def test_the_bounds_of_a_regex_are_exact() -> None:
    assert patterns.find_fault("a" * 256) == ""
    assert patterns.matches("a*", "a" * 256)


@pytest.mark.parametrize(("pattern", "value"), [(r"\d+", "١"), (r"\w", "é"), ("k", "\u212a"), (".", "\ud800")])
def test_the_classes_of_a_regex_mean_ascii_and_no_letter_is_folded(pattern: str, value: str) -> None:
    assert patterns.find_fault(pattern) == ""
    assert not patterns.matches(pattern, value)


def test_a_sound_regex_means_what_re_means() -> None:
    assert patterns.matches("a|bc", "bc")
    assert [patterns.matches("(?:ab){2,3}", "ab" * n) for n in range(5)] == [False, False, True, True, False]
    assert patterns.matches("[a-c.+-]+", "a.b+c-")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("a", "a"),
        (1, "the number 1"),
        (Matcher(any_of=("a", True)), "one of a, the boolean true"),
        (Matcher(glob="a*"), "text of the form a*"),
        (Matcher(regex="a|b", reason="because"), "text that matches the expression a|b"),
        (Matcher(contains_all=("a", "b")), "the words a, b"),
        (Matcher(absent=True), "no such claim"),
    ],
)
def test_every_requirement_can_be_said(rule: Requirement, told: str) -> None:
    assert describe(rule) == told


def test_an_absent_claim_matches_nothing() -> None:
    identity = Identity(id="main", provider="acme", pins={"sub": "robot", "team": "None"})
    assert pins_match(identity, {"sub": "robot", "team": "None"})
    assert not pins_match(identity, {"sub": "robot"})
    assert not pins_match(identity, {"sub": "robot", "team": None})
    assert not pins_match(identity, {})


def test_identities_are_are_disjoint_by_disjoint_exact_values_of_one_claim() -> None:
    def identity(**require: Requirement) -> Identity:
        return Identity(id="x", provider="acme", pins={"sub": "robot"}, require=require)

    assert are_disjoint(identity(ref="a"), identity(ref=Matcher(any_of=("b", "c"))))
    assert are_disjoint(identity(n=1), identity(n=True))
    assert not are_disjoint(identity(ref="a"), identity(ref=Matcher(any_of=("a", "b"))))
    assert not are_disjoint(identity(ref="a"), identity(sha="b"))
    assert not are_disjoint(identity(ref=Matcher(glob="a*")), identity(ref=Matcher(glob="b*")))
    assert not are_disjoint(identity(ref=Matcher(regex="a", reason="r")), identity(ref="b"))
    assert not are_disjoint(identity(scope=Matcher(contains_all=("a",))), identity(scope=Matcher(contains_all=("b",))))
    assert are_disjoint(identity(ref=Matcher(absent=True)), identity(ref="a"))
    assert are_disjoint(identity(ref=Matcher(absent=True)), identity(ref=Matcher(any_of=("a", True))))
    assert not are_disjoint(identity(ref=Matcher(absent=True)), identity(ref=Matcher(absent=True)))
    assert not are_disjoint(identity(ref=Matcher(absent=True)), identity(ref=Matcher(glob="a")))


def test_identities_that_are_are_disjoint_never_share_a_token() -> None:
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


# -- resolve -----------------------------------------------------------------------------------------------------------


def unresolved(folder: Path, text: str = POLICY, /, **changes: JSON) -> Refused:
    policies = load(folder, inspect_ai=text)
    with pytest.raises(Refused) as refused:
        resolve(policies, caller(policies, **changes))
    return refused.value


def test_a_caller_whose_pins_match_is_that_identity(tmp_path: Path) -> None:
    found = registration(load(tmp_path, inspect_ai=POLICY))
    assert (found.policy.integration, found.identity.id) == ("inspect-ai", "main")


def test_a_caller_with_the_only_pins_is_resolved_whatever_its_other_claims(tmp_path: Path) -> None:
    """Its requirements are judged by `decide`, which can then say what failed."""
    assert registration(load(tmp_path, inspect_ai=POLICY), ref="refs/heads/other").identity.id == "main"


@pytest.mark.parametrize(
    "near_miss",
    ["70", "07", "7\n", " 7", "7 ", "７", "7\u200b", "-7", "7.0", "", None, 7, True, 7.0, ["7"], {"7": "7"}],
)
@pytest.mark.parametrize("pin", ["repository_id", "repository_owner_id"])
def test_an_id_that_is_not_the_pin_resolves_to_nobody(tmp_path: Path, pin: str, near_miss: JSON) -> None:
    pinned = changed(POLICY, 'repository_owner_id: "6"', 'repository_owner_id: "7"')
    claims = {"repository_id": "7", "repository_owner_id": "7", pin: near_miss}
    assert unresolved(tmp_path, pinned, **claims).code is Code.INTEGRATION_UNKNOWN


def test_github_s_names_and_subject_decide_nothing(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    taken_over = {"repository": "evil/evals", "repository_owner": "evil", "sub": "repo:evil@1/evals@2:ref:x"}
    assert registration(policies, **taken_over).identity.id == "main"
    with pytest.raises(Refused):
        registration(policies, repository_id="8")


def test_the_same_ids_at_another_provider_are_somebody_else(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    with pytest.raises(Refused) as refused:
        resolve(policies, caller(policies, iss="https://gitlab.com", sub="s", project_id="7", namespace_id="6"))
    assert refused.value.code is Code.INTEGRATION_UNKNOWN


def test_an_unknown_caller_sees_its_own_allow_listed_claims_and_nothing_else(tmp_path: Path) -> None:
    secretive = changed(
        changed(POLICY, "evals@example.org", "tell-no-one"), "main\n    provider", "hidden\n    provider"
    )
    refusal = unresolved(tmp_path, secretive, repository_id="8", email="a@b.example", actor="mallory")
    (fault,) = refusal.faults
    assert fault.pointer == ""
    assert fault.detail == refusal.detail == (
        "The token is genuine, but this identity is not registered for any integration. The token says: repository_id=8, "
        "repository_owner_id=6, repository=org/evals, repository_owner=org."
    )  # fmt: skip


def test_an_unknown_caller_learns_the_same_whatever_the_policies_are(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    near = unresolved(tmp_path / "one", changed(POLICY, 'owner_id: "6"', 'owner_id: "5"'))
    far = unresolved(tmp_path / "two", changed(POLICY, 'repository_id: "7"', 'repository_id: "1234"'))
    assert (near.code, near.detail, near.faults) == (far.code, far.detail, far.faults)


def test_an_unknown_caller_s_odd_claims_are_not_shown(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(("ref", "name"), [("refs/heads/main", "main"), ("refs/heads/release", "release")])
def test_identities_with_the_same_pins_are_are_disjoint_by_their_requirements(
    tmp_path: Path, ref: str, name: str
) -> None:
    assert registration(load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", SECOND)), ref=ref).identity.id == name


@pytest.mark.parametrize("ref", ["refs/heads/other", "refs/heads/main\n", None, True])
def test_a_caller_that_is_none_of_several_of_one_integration_is_judged_as_the_nearest(
    tmp_path: Path, ref: JSON
) -> None:
    """`main` lacks one requirement of two, `release` its only one: equally near, and `main` comes first."""
    policies = load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", SECOND))
    near = registration(policies, ref=ref)
    verdict = decide(near, caller(policies, ref=ref), (), NOW)
    assert near.identity.id == "main"
    assert isinstance(verdict, Denial)
    assert verdict.code in {Code.IDENTITY_CLAIM_MISMATCH, Code.IDENTITY_CLAIM_MISSING}
    assert [check.rule for check in verdict.checks if not check.passed] == ["identities.main.require.ref"]


def test_the_nearest_identity_is_the_one_with_the_fewest_requirements_unmet(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=changed(POLICY, "grants:\n", SECOND))
    assert registration(policies, ref="refs/heads/x", runner_environment="self-hosted").identity.id == "release"


def test_a_caller_that_is_none_of_several_of_two_integrations_is_unknown(tmp_path: Path) -> None:
    """It could mean either of the two; naming one would reveal the other's policy to it."""
    other = changed(changed(POLICY, "integration: inspect-ai", "integration: other"), "refs/heads/main", "refs/heads/x")
    policies = load(tmp_path, inspect_ai=POLICY, other=other)
    assert registration(policies, ref="refs/heads/x").policy.integration == "other"
    with pytest.raises(Refused) as refused:
        registration(policies, ref="refs/heads/y")
    assert refused.value.code is Code.INTEGRATION_UNKNOWN
    assert "refs/heads" not in refused.value.detail


def test_a_caller_that_is_two_identities_is_ambiguous(tmp_path: Path) -> None:
    """The loader refuses such a pair, so it is put together here: the second lock on the same door."""
    policies = load(tmp_path, inspect_ai=POLICY)
    one = registration(policies)
    key = next(iter(policies.registrations))
    doubled = msgspec.structs.replace(policies, registrations={key: (one, one)})
    with pytest.raises(Refused) as refused:
        resolve(doubled, caller(policies))
    assert refused.value.code is Code.INTEGRATION_AMBIGUOUS
    assert refused.value.faults == ()


def test_resolving_reads_only_the_claims_that_it_is_given(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    before = dict(GITHUB)
    resolve(policies, caller(policies))
    assert before == GITHUB
