"""The policy reference says what the code does: its examples load, its tables are the profiles' and the limits'."""

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.identity.profiles import PROFILES, Profile
from issuer.identity.table import Introspection, ProviderEntry, judges
from issuer.identity.token import Caller
from issuer.limits.abuse import THENS, Abuse
from issuer.limits.rate import Limits
from issuer.policy.authoring.load import load_policies, try_policies
from issuer.policy.authoring.stops import read_stops
from issuer.policy.decide import Grant, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.model import Grants, Identity, Policy, PolicyTest
from tests.support.policies import GITHUB, ISSUER_URL, NOW, caller, runs_of, submission
from tests.support.shared import ROOT

REFERENCE = (ROOT / "policies" / "REFERENCE.md").read_text(encoding="utf-8")
FIRST_PAGE = (ROOT / "policies" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n# ([a-z0-9/-]+\.yaml)\n(.*?)```", REFERENCE, re.DOTALL)


def examples(folder: Path) -> Path:
    for name, text in EXAMPLES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_examples_load_as_one_directory_and_their_tests_pass(tmp_path: Path) -> None:
    assert [name for name, _ in EXAMPLES] == [
        "providers.yaml", "my-framework.yaml", "widespread-framework.yaml", "automated-framework.yaml",
        "benchmarks/openai/gsm8k/eval.yaml", "careful-framework.yaml", "watched-framework.yaml",
        "stops.yaml",
    ]  # fmt: skip
    assert len(EXAMPLES) == REFERENCE.count("```yaml")
    stops, errors = read_stops(dict(EXAMPLES)["stops.yaml"].encode(), "stops.yaml")
    assert ([stop.what for stop in stops.all], errors) == (["integration:inspect-ai", "account:robots/nightly"], ())
    policies = load_policies(examples(tmp_path), ISSUER_URL)
    assert [provider.id for provider in policies.providers.values()] == [
        "github-actions", "gitlab-ci", "ghes", "acme", "circleci", "cluster", "apps", "opaque-apps", "robots", "hub",
    ]  # fmt: skip
    assert [identity.id for identity in policies.policies["my-framework"].identities] == [
        "main", "merge-queue", "nightly",
    ]  # fmt: skip
    outcomes, findings = try_policies(examples(tmp_path), ISSUER_URL, NOW)
    assert [finding for finding in findings if finding.severity == "error" or finding.code is Code.LINT_UNTESTED] == []
    assert [(outcome.integration, outcome.passed) for outcome in outcomes] == [
        *[("automated-framework", True)] * 9, *[("careful-framework", True)] * 5, *[("my-framework", True)] * 6,
        *[("watched-framework", True)] * 5, *[("widespread-framework", True)] * 11,
    ]  # fmt: skip


def test_the_first_policy_and_the_examples_grant_what_they_say(tmp_path: Path) -> None:
    found = re.findall(r"```yaml\n# ([a-z0-9/-]+\.yaml)\n(.*?)```", FIRST_PAGE, re.DOTALL)
    assert [name for name, _ in found] == ["my-framework.yaml", "providers.yaml"]
    assert len(dict(found)["my-framework.yaml"].splitlines()) <= 10
    (tmp_path / "first").mkdir()
    for name, text in found:
        (tmp_path / "first" / name).write_text(text, "utf-8")
    first, policies = (
        load_policies(tmp_path / "first", ISSUER_URL),
        load_policies(examples(tmp_path / "all"), ISSUER_URL),
    )
    registered = {"repository_id": "700000001", "repository_owner_id": "600000001"}
    claims = {**GITHUB, **registered, "workflow_ref": "example-org/evals/.github/workflows/x.yml@refs/heads/main"}

    def granted(task: str, policies: PolicySet = policies, **changes: str) -> bool:
        run = submission(framework="my-framework", version="1.5", task=task, model="acme/model")
        who = caller(policies, claims, **changes)
        try:
            return isinstance(decide(resolve(policies, who), who, runs_of(run), NOW), Grant)
        except Refused:
            return False

    assert [granted("gsm8k", first, ref=f"refs/heads/{branch}") for branch in ("main", "other")] == [True, False]
    assert [granted(task) for task in ("gsm8k", "mmlu_law", "mmlu/law")] == [True, True, False]
    assert not granted("gsm8k", event_name="merge_group")
    assert granted("gsm8k", event_name="merge_group", ref="refs/heads/queue")
    assert not granted("gsm8k", event_name="push", ref="refs/heads/queue")


def row(name: str) -> list[str]:
    """Return the cells of the row of a table with four columns."""
    lines = [line for line in REFERENCE.splitlines() if line.startswith(f"| {name} |") and line.count("|") == 5]
    (line,) = lines
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_row_and_the_section_of_a_profile_are_the_profile() -> None:
    for name, profile in PROFILES.items():
        check_section(name, profile)
        (line,) = (line for line in REFERENCE.splitlines() if line.startswith(f"| `{name}` |") and line.count("|") == 7)
        issuer, algorithms, times, uses, pins = (cell.strip() for cell in line.split("|")[2:-1])
        lifetime_s, age_s = profile.max_lifetime_s, profile.max_age_s or profile.max_lifetime_s
        own = "must be given" if judges(profile, "issuer") else "this service's URL"
        assert issuer == (f"`{profile.issuer}`" if profile.issuer else own)
        if judges(profile, "algorithms"):
            assert algorithms.split() == (list(profile.algorithms) or ["must", "be", "given"])
            assert times == ("must be given" if lifetime_s is None else f"{lifetime_s} · {age_s}")
        else:
            assert (algorithms, times) == ("-", "-")
        assert uses == ("a nonce" if profile.reusable else str(profile.uses))
        assert re.findall(r"`([^`]+)`", pins) == list(profile.pins)


def check_section(name: str, profile: Profile) -> None:
    section = re.split(r"\n#+ ", REFERENCE.partition(f"#### `{name}`\n")[2])[0]
    items = dict(re.findall(r"^- ([^:]+): ((?:[^\n]|\n  )+)", section, re.MULTILINE))
    listed = {kind: re.findall(r"`([^`]+)`", text) for kind, text in items.items()}
    if profile.matchable is None:
        assert items.pop("may match") == "any other claim"
    else:
        assert listed["may match"] == sorted(profile.matchable)
    assert listed.get("derived", []) == list(profile.derived)
    assert listed.get("names", []) == [word for pair in profile.names.items() for word in pair]
    assert listed.get("never", []) == list(profile.never)
    assert listed.get("must be required", []) == list(profile.must_require)
    narrowed = [claims for kind, claims in listed.items() if kind.endswith("may ask")]
    ways = [[word for way in profile.narrowed_by for item in way.items() for word in item if word]]
    assert [[word.strip('"') for word in claims] for claims in narrowed] == (ways if profile.narrowed_by else [])
    assert listed.get("demanded unless `require` names it", []) == list(profile.demands)
    assert listed.get(f"events, by `{profile.event_claim}`", []) == list(profile.events)
    assert listed["public"] == list(profile.provenance)


def test_every_member_has_a_row() -> None:
    kinds: list[type[Struct]] = [ProviderEntry, Introspection, Identity, Grants, PolicyTest]
    for member in (member for kind in kinds for member in kind.__struct_fields__):
        assert re.search(rf"^\| (?:`[a-z]+`, )?`{member}`(?:, `[a-z]+`)? \|", REFERENCE, re.MULTILINE), member
    for member in Policy.__struct_fields__:
        assert re.search(rf"^\| `{member}[`.]", REFERENCE, re.MULTILINE), member


def test_every_check_has_a_row_in_the_order_of_the_checks(tmp_path: Path) -> None:
    """The staged example asks for everything; a denial of everything is listed as the table lists it."""
    policies = load_policies(examples(tmp_path), ISSUER_URL)
    registration = policies.registrations["gitlab-ci", "41000002"][0]
    strange = Caller(
        registration.provider, {"project_id": "41000002", "namespace_id": "31000002"}, ("use", "x", "x"), NOW, NOW
    )
    verdict = decide(registration, strange, runs_of(submission()), NOW, integration="x", audience="x")
    table = REFERENCE[REFERENCE.index("| code | check |") :]
    listed = [
        code
        for line in table.split("\n\n")[0].splitlines()[2:]
        for code in re.findall(r"`([a-z]+\.[a-z_]+)`", line.split("|")[1])
    ]
    places = [listed.index(str(check.code)) for check in verdict.checks if check.rule != "grants.registered_only"]
    assert places == sorted(places)
    assert {str(check.code) for check in verdict.checks} <= set(listed)


def _members(kind: type[Struct]) -> list[tuple[str, Any, object]]:
    """Return name, type and default of each member, of those inside too."""
    found: list[tuple[str, Any, object]] = []
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, Struct):
            found += [(f"{field.name}.{name}", *rest) for name, *rest in _members(type(field.default))]
        else:
            found.append((field.name, field.type, field.default))
    return found


def _bounds(kind: Any) -> str:
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.LiteralType):
        return "any of the four" if set(info.values) == set(THENS) else " ".join(f"`{each}`" for each in info.values)
    return f"{info.ge} to {info.le}" if isinstance(info, msgspec.inspect.IntType) else "any"


def _default(value: object) -> str:
    texts = [value] if isinstance(value, str) else value
    return " ".join(f"`{text}`" for text in texts) if isinstance(texts, list | tuple) else str(value)


def test_every_limit_and_rule_of_abuse_has_its_default_and_its_bounds() -> None:
    limits = Limits()
    for name in ("identity", "integration", "refusals"):
        rate = getattr(limits, name)
        assert row(f"`{name}`")[1] == f"{rate.count} per {rate.per_s} s, burst {rate.burst}"
    assert f"`quarantine_s` ({limits.quarantine_s})" in REFERENCE
    members = _members(Abuse)
    assert len(members) == 19
    for name, kind, value in members:
        assert row(f"`{name}`")[1:] == [_default(value), _bounds(kind)], name
