"""A folder that does not load takes away what its files take away, and gives nothing."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, Refused
from issuer.policy.authoring.load import load_policies, read_each
from issuer.policy.decide import Denial, decide
from issuer.policy.match import PolicySet, resolve
from issuer.policy.restriction import narrow, narrowed_names
from tests.support.policies import ISSUER_URL, NOW, POLICY, caller, changed, runs_of, submission, write

OTHER = POLICY.replace("integration: inspect-ai", "integration: other").replace('"7"', '"8"')
BROKEN = OTHER.replace("mode: active", "mode: actve")


def narrowed_by(folder: Path, *changes: tuple[str, str], gone: bool = False) -> tuple[PolicySet, PolicySet]:
    """Load two good files; then break one, change the other, and return what decided before and decides now."""
    before = load_policies(write(folder, inspect_ai=POLICY, other=OTHER), ISSUER_URL)
    text = POLICY
    for old, new in changes:
        text = changed(text, old, new)
    write(folder, inspect_ai=text, other=BROKEN)
    if gone:
        (folder / "inspect-ai.yaml").unlink()
    with pytest.raises(InputError):
        load_policies(folder, ISSUER_URL)
    found = read_each(folder)
    assert found is not None
    return before, narrow(before, found)


def verdict(policies: PolicySet, repository_id: str = "7") -> str:
    try:
        registration = resolve(policies, who := caller(policies, repository_id=repository_id))
    except Refused as error:
        return str(error.code)
    decision = decide(registration, who, runs_of(submission()), NOW)
    return str(decision.code) if isinstance(decision, Denial) else "granted"


def test_what_a_file_takes_away_is_taken_although_another_one_is_broken(tmp_path: Path) -> None:
    failing = 'tests: [{name: "x", expect: granted, provider: github-actions, identity: {repository_id: "1"}}]\n'
    suspended = ("mode: active", "mode: suspended")
    cases: list[tuple[tuple[tuple[str, str], ...], Code]] = [
        ((suspended,), Code.INTEGRATION_SUSPENDED),
        ((suspended, ("limits:", f"{failing}limits:")), Code.INTEGRATION_SUSPENDED),  # its own test fails
        ((("mode: active", "mode: staged"),), Code.INTEGRATION_STAGED),
        ((("  - id: main", "  - id: another"),), Code.INTEGRATION_UNKNOWN),
        ((('"7"', '"70"'),), Code.INTEGRATION_UNKNOWN),
        ((("    names:", '    expires: "2026-11-21"\n    names:'),), Code.IDENTITY_REGISTRATION_EXPIRED),
        ((), Code.INTEGRATION_UNKNOWN),  # the file is gone
    ]
    for changes, code in cases:
        before, after = narrowed_by(tmp_path, *changes, gone=not changes)
        assert (verdict(before), verdict(after)) == ("granted", str(code)), changes
        assert verdict(after, "8") == "granted", "the broken file keeps its effect"
        assert narrowed_names(before, after) == ["inspect-ai"]
        assert after.policies.keys() == ({"inspect-ai", "other"} if changes else {"other"})
        assert replace(before, registrations=after.registrations, policies=after.policies, named=after.named) == after


def test_a_narrowed_policy_keeps_the_digest_and_all_else_of_the_one_that_grants(tmp_path: Path) -> None:
    before, after = narrowed_by(tmp_path, ("    names:", '    expires: "2027-01-01"\n    names:'))
    assert verdict(after) == "granted"
    digests = {resolve(policies, caller(policies)).digest for policies in (before, after)}
    assert (len(digests), before.digest, before.digests) == (1, after.digest, after.digests)
    for old, new in {
        'benchmarks: ["openai/gsm8k", "cais/*"]': 'benchmarks: ["*/*"]', "ttl_s: 3600": "ttl_s: 86400",
        'ref: "refs/heads/main"': 'ref: "refs/heads/other"', "count: 600": "count: 6000",
    }.items():  # fmt: skip
        before, after = narrowed_by(tmp_path, (old, new))
        assert after is before, new


def test_a_folder_that_does_not_load_never_gives_back_what_was_taken(tmp_path: Path) -> None:
    before, after = narrowed_by(
        tmp_path, ("mode: active", "mode: suspended"), ("    names:", '    expires: "2026-11-30"\n    names:')
    )
    write(tmp_path, inspect_ai=changed(POLICY, "    names:", '    expires: "2027-11-30"\n    names:'))
    found = read_each(tmp_path)
    assert found is not None
    again = narrow(after, found)
    assert again is after
    assert verdict(again) == "integration.suspended"
    assert resolve(again, caller(again)).identity.expires == "2026-11-30"
    assert narrow(before, {"inspect-ai": None, "other": None}) is before


def test_a_file_or_folder_that_cannot_be_read_takes_nothing_away(tmp_path: Path) -> None:
    """A volume that is not mounted is an empty folder."""
    assert (read_each(tmp_path / "nowhere"), read_each(tmp_path)) == (None, None)
    other = POLICY.replace("integration: inspect-ai", "integration: other")
    for text in ["", "nothing good", other, POLICY + "more: 1\n"]:
        before = load_policies(write(tmp_path, inspect_ai=POLICY), ISSUER_URL)
        write(tmp_path, inspect_ai=text)
        found = read_each(tmp_path)
        assert found == {"inspect-ai": None}
        assert narrow(before, found) is before
