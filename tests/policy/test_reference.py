"""The policy reference says what the code does: its examples load, its tables are the profiles' and the limits'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from issuer.errors import Refused
from issuer.limits import Limits, Rate
from issuer.policy.decide import Grant, decide
from issuer.policy.load import load_policies
from issuer.policy.match import resolve
from issuer.policy.model import Identity, Policy, ProviderEntry
from issuer.policy.profiles import PROFILES
from tests.policy.shared import GITHUB, ISSUER_URL, NOW, caller, submission

REFERENCE = (Path(__file__).parents[2] / "policies" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n# ([a-z-]+\.yaml)\n(.*?)```", REFERENCE, re.DOTALL)


def examples(folder: Path) -> Path:
    for name, text in EXAMPLES:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_examples_load_as_one_directory(tmp_path: Path) -> None:
    assert [name for name, _ in EXAMPLES] == ["providers.yaml", "my-framework.yaml"]
    assert len(EXAMPLES) == REFERENCE.count("```yaml")
    policies = load_policies(examples(tmp_path), ISSUER_URL)
    assert [provider.id for provider in policies.providers.values()] == ["github-actions", "gitlab-ci", "ghes", "acme"]
    assert [identity.id for identity in policies.policies["my-framework"].identities] == [
        "main", "merge-queue", "nightly",
    ]  # fmt: skip


def test_the_examples_grant_what_they_say(tmp_path: Path) -> None:
    policies = load_policies(examples(tmp_path), ISSUER_URL)
    registered = {"repository_id": "700000001", "repository_owner_id": "600000001"}
    claims = {**GITHUB, **registered, "workflow_ref": "example-org/evals/.github/workflows/x.yml@refs/heads/main"}

    def granted(task: str, **changes: str) -> bool:
        run = submission(framework="my-framework", version="1.5", task=task)
        who = caller(policies, claims, **changes)
        try:
            return isinstance(decide(resolve(policies, who), who, (run,), NOW, integration="", audience=""), Grant)
        except Refused:
            return False

    assert granted("gsm8k")
    assert granted("mmlu_law")
    assert not granted("mmlu/law")
    assert not granted("gsm8k", event_name="merge_group")
    assert granted("gsm8k", event_name="merge_group", ref="refs/heads/queue")
    assert not granted("gsm8k", event_name="push", ref="refs/heads/queue")


def row(name: str) -> list[str]:
    """Return the cells of the row of a table with four columns."""
    lines = [line for line in REFERENCE.splitlines() if line.startswith(f"| {name} |") and line.count("|") == 5]
    (line,) = lines
    return [cell.strip() for cell in line.split("|")[2:-1]]


def words(cell: str) -> set[str]:
    return set(re.findall(r"[A-Za-z0-9_:/.]+", cell)) - {"none", "nothing"}


@pytest.mark.parametrize("column", range(3))
def test_the_profile_table_is_the_profiles(column: int) -> None:
    assert row("profile") == [f"`{name}`" for name in PROFILES]
    profile = list(PROFILES.values())[column]
    said = {name: row(name)[column] for name in (
        "`issuer`", "`algorithms`", "`max_lifetime_s` · `max_age_s`", "uses", "must be pinned", "`names` (only warn)",
        "never matched", "event claim", "`events`", "public in the token's `caller`",
    )}  # fmt: skip
    assert said["`issuer`"] == (f"`{profile.issuer}`" if profile.issuer else "must be given")
    assert said["`max_lifetime_s` · `max_age_s`"] == f"{profile.max_lifetime_s} · {profile.max_age_s}"
    assert said["uses"] == str(profile.uses)
    assert words(said["`algorithms`"]) == set(profile.algorithms)
    assert words(said["must be pinned"]) == set(profile.pins)
    assert words(said["`names` (only warn)"]) == set(profile.names)
    assert words(said["never matched"]) == set(profile.never)
    assert words(said["event claim"]) == ({profile.event_claim} if profile.event_claim else set())
    assert words(said["`events`"]) == set(profile.events)
    assert words(said["public in the token's `caller`"]) == set(profile.provenance)


@pytest.mark.parametrize("name", ["github-actions", "gitlab-ci"])
def test_the_claims_that_may_be_matched_are_the_profile_s(name: str) -> None:
    found = re.search(rf"^- `{name}` may match: ((?:[^.]|\.(?=\S))+)\.$", REFERENCE, re.MULTILINE)
    assert found is not None
    assert words(found[1]) == set(PROFILES[name].matchable or ())


@pytest.mark.parametrize("kind", [ProviderEntry, Identity])
def test_every_member_has_a_row(kind: type[ProviderEntry | Identity]) -> None:
    for member in kind.__struct_fields__:
        assert re.search(rf"^\| `{member}` \|", REFERENCE, re.MULTILINE), member


def test_every_member_of_a_policy_has_a_row() -> None:
    for member in Policy.__struct_fields__:
        assert re.search(rf"^\| `{member}[`.]", REFERENCE, re.MULTILINE), member


def test_the_default_limits_are_told() -> None:
    limits = Limits()

    def told(rate: Rate) -> str:
        return f"{rate.count} per {rate.per_s} s, burst {rate.burst}"

    assert (row("`identity`")[1], row("`integration`")[1], row("`refusals`")[1]) == (
        told(limits.identity), told(limits.integration), told(limits.refusals),
    )  # fmt: skip
    assert f"`quarantine_s` ({limits.quarantine_s})" in REFERENCE
