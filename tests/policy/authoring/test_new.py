"""A policy that is made of a token: good for every provider, strict, and never more than text where the token is hostile."""

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats.strict_yaml import load
from issuer.identity.table import ProvidersFile
from issuer.policy.authoring.fmt import format_file
from issuer.policy.authoring.load import check_policies, load_policies
from issuer.policy.authoring.new import Choices, find_provider, make_policy
from issuer.policy.authoring.suite import PolicyTestOutcome
from tests.support.policies import ISSUER_URL, NOW
from tests.support.samples import BY_NAME, SAMPLES, Sample, text_of

CHOICES = Choices("my-framework", "evals@example.org", "my-framework", ("openai/gsm8k",))
GITHUB = BY_NAME["github-actions"]


def table(sample: Sample) -> ProvidersFile:
    return load(text_of(sample.providers()).encode(), "providers.yaml").convert(ProvidersFile)


def claims_of(sample: Sample, **changes: Any) -> dict[str, Any]:
    return {"iss": sample.issuer, **sample.claims, **changes}


def made(sample: Sample, **changes: Any) -> str:
    claims = claims_of(sample, **changes)
    return make_policy(CHOICES, find_provider(claims, table(sample)), claims).text


def refusal(sample: Sample, **changes: Any) -> FormatError:
    with pytest.raises(FormatError) as caught:
        made(sample, **changes)
    assert caught.value.code is Code.POLICY_NEW
    return caught.value


def test_a_policy_of_any_provider_s_token_is_good_and_its_tests_pass(tmp_path: Path) -> None:
    for sample in SAMPLES:
        text = made(sample)
        value: Any = load(text.encode(), "x").value
        assert "any_ref" not in json.dumps(value)
        (tmp_path / "providers.yaml").write_text(text_of(sample.providers()))
        (tmp_path / "my-framework.yaml").write_text(text)
        outcomes: list[PolicyTestOutcome] = []
        policies, findings = check_policies(tmp_path, ISSUER_URL, NOW, tell=outcomes.extend)
        assert policies is not None, findings
        assert {str(finding.code) for finding in findings} <= {"lint.pin_unnamed"}
        (identity,) = policies.policies["my-framework"].identities
        assert identity.pins == sample.pins
        assert {outcome.expected for outcome in outcomes} >= {"granted", "integration.unknown", "policy.benchmark"}
    text = made(GITHUB)
    assert format_file(text.encode(), "x").decode() == text
    foreign, commit = "tools/evals/.github/workflows/x.yml@refs/heads/main", "c" * 40
    borrowed = made(GITHUB, job_workflow_ref=foreign, job_workflow_sha=commit)
    assert (f'job_workflow_sha: "{commit}"' in borrowed, "job_workflow_sha" in text) == (True, False)


def test_without_a_table_the_provider_is_known_by_its_issuer_alone() -> None:
    assert find_provider(claims_of(GITHUB), None).id == "github-actions"
    assert find_provider({"iss": "http://127.0.0.1:8080/gitlab-ci"}, None).profile == "gitlab-ci"
    assert find_provider({"iss": "http://127.0.0.1:8080/gitlab-ci"}, table(BY_NAME["gitlab-ci"])).id == "gitlab-ci"
    for issuer in (
        "https://evil.example", "http://127.0.0.1.evil.example/gitlab-ci", "http://evil.example/gitlab-ci", "http://127.0.0.1:1/",
        "https://127.0.0.1/gitlab-ci",
    ):  # fmt: skip
        with pytest.raises(FormatError, match="is not the issuer of a known provider"):
            find_provider({"iss": issuer}, None)
    with pytest.raises(FormatError, match="is not in providers"):
        find_provider(claims_of(GITHUB), table(BY_NAME["gitlab-ci"]))


def test_no_policy_is_made_of_a_job_that_strangers_can_start() -> None:
    cases: list[tuple[Sample, dict[str, Any], str]] = [
        (GITHUB, {"event_name": "pull_request"}, "which strangers can cause"),
        (GITHUB, {"event_name": "pull_request_target"}, "which strangers can cause"),
        (GITHUB, {"event_name": None}, "which strangers can cause"),
        (BY_NAME["gitlab-ci"], {"ref_protected": "false"}, "not protected"),
        (BY_NAME["circleci"], {"oidc.circleci.com/ssh-rerun": True}, "must be"),
        (BY_NAME["azure"], {"scp": "user"}, "must be absent"),
        (GITHUB, {"repository_id": None}, "the token has no repository_id"),
        (BY_NAME["circleci"], {"oidc.circleci.com/vcs-origin": None}, "the token has no"),
        (BY_NAME["oauth"], {"sub": None}, "the token has no sub"),
        (BY_NAME["oauth"], {"scope": None}, "the token has no scope"),
    ]
    assert [
        (sample, changes, what) for sample, changes, what in cases if what not in refusal(sample, **changes).detail
    ] == []


def test_a_claim_is_an_exact_value_whatever_it_looks_like_or_makes_no_policy(tmp_path: Path) -> None:
    for value in ["*", "**/*", 'a"b', "a\\b", "{glob: '*'}", "no", "1e3", "a: b # c", "&a *b", "!!str x", "- x"]:
        (tmp_path / "providers.yaml").write_text(text_of(GITHUB.providers()))
        (tmp_path / "my-framework.yaml").write_text(made(GITHUB, ref=value, repository=value))
        (identity,) = load_policies(tmp_path, ISSUER_URL).policies["my-framework"].identities
        assert (identity.require["ref"], identity.names["repository"]) == (value, value)
    not_plain = [
        "x\n    any_ref: true", 'x"\nmode: suspended', "\x1b[2Jx", "x\u2028y", "\u202ex", "x" * 513, "", 7, None, ["x"], {"a": "b"},
        "\ud800",
    ]  # fmt: skip
    for name in ("repository_id", "repository", "ref", "workflow_ref", "iss", "repository_owner"):
        for hostile in not_plain:
            if hostile is not None or name in ("repository_id", "ref", "iss"):  # the others may be absent
                assert refusal(GITHUB, **{name: hostile}).pointer == f"/{name}"
