"""The rules of a registered identity: what does not load, what is doubted, and what the checks of a token read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from issuer.codes import Code
from issuer.errors import Finding
from issuer.identity.profiles import PROFILES
from issuer.identity.token import ClaimNames
from issuer.policy.authoring.load import check_policies
from issuer.policy.decide import Denial, decide
from issuer.policy.match import resolve
from tests.support.policies import NOW, POLICY, caller, changed, load, registration, write
from tests.support.samples import AUDIENCE, BY_NAME, COMMIT, policy_of, text_of

GITHUB = BY_NAME["github-actions"]
NAMES = {"repository": "example-org/evals", "repository_owner": "example-org"}
FOREIGN = "octo-org/shared/.github/workflows/evaluate.yml@refs/heads/main"
HOME = "example-org/evals/.github/workflows/evaluate.yml@refs/heads/main"


def findings(folder: Path, identity: dict[str, Any], profile: str = "github-actions", now: int = 0) -> list[Finding]:
    """Check one identity of a profile's sample; of the warnings those about identities."""
    write(folder, text_of(BY_NAME[profile].providers()), inspect_ai=policy_of(identity))
    _, found = check_policies(folder, AUDIENCE, now)
    return [finding for finding in found if finding.severity == "error" or finding.pointer.startswith("/identities")]


def anywhere(**changes: Any) -> dict[str, Any]:
    """Return GitHub's identity with changed members, and without the need of a ref."""
    return GITHUB.identity(any_ref=True, reason="what is tested is something else", **changes)


def errors(folder: Path, identity: dict[str, Any], profile: str = "github-actions") -> list[tuple[str, str]]:
    """Return pointer and rule of every error."""
    found = findings(folder, identity, profile)
    assert all(finding.code is Code.FILE_RULE for finding in found if finding.severity == "error"), found
    return [(finding.pointer, finding.detail) for finding in found if finding.severity == "error"]


def doubts(
    folder: Path, identity: dict[str, Any], profile: str = "github-actions", now: int = 0
) -> list[tuple[str, str]]:
    """Return code and pointer of every warning; nothing else may be found."""
    found = findings(folder, identity, profile, now)
    assert all(finding.severity == "warning" for finding in found), found
    return [(str(finding.code), finding.pointer) for finding in found]


# -- what does not load ------------------------------------------------------------------------------------------------

MATCHERS = [
    ({}, "", "give exactly one of"),
    ({"reason": "r"}, "", "give exactly one of"),
    ({"glob": "a", "any_of": ["a"]}, "", "give exactly one of"),
    ({"glob": "a", "absent": True}, "", "give exactly one of"),
    ({"regex": "a", "glob": "a", "reason": "r"}, "", "give exactly one of"),
    ({"contains_all": ["a"], "any_of": ["a"]}, "", "give exactly one of"),
    ({"regex": "a"}, "", "`regex` and `reason` go together"),
    ({"glob": "a", "reason": "r"}, "", "`regex` and `reason` go together"),
    ({"regex": "(a", "reason": "r"}, "/regex", "not a regular expression of RE2: missing )"),
    ({"regex": r"(a)\1", "reason": "r"}, "/regex", "invalid escape sequence"),
    ({"regex": "(?i)main", "reason": "r"}, "/regex", "no flags"),
    ({"regex": "mаin", "reason": "r"}, "/regex", "printable ASCII only"),
    ({"regex": "a" * 257, "reason": "r"}, "/regex", "longer than 256 characters"),
    ({"contains_all": ["read", "read write"]}, "/contains_all/1", "must be one word"),
    ({"contains_all": [" "]}, "/contains_all/0", "must be one word"),
]


@pytest.mark.parametrize(("matcher", "at", "rule"), MATCHERS, ids=[str(row[0])[:40] for row in MATCHERS])
def test_a_matcher_that_cannot_be_meant_is_refused_at_its_place(
    tmp_path: Path, matcher: dict[str, Any], at: str, rule: str
) -> None:
    found = errors(tmp_path, anywhere(require={"environment": matcher}))
    assert found
    pointer, said = found[0]
    assert pointer == f"/identities/0/require/environment{at}"
    assert rule in said


@pytest.mark.parametrize("matcher", [{"absent": False}, {"absent": "true"}, {"any_of": []}, {"contains_all": []},
                                     {"contains_all": [""]}, {"glob": ""}, {"regex": "", "reason": "r"},
                                     {"any_of": [1.5]}, {"any_of": [None]}, {"prefix": "a"}])  # fmt: skip
def test_a_matcher_of_another_type_is_refused(tmp_path: Path, matcher: dict[str, Any]) -> None:
    found = findings(tmp_path, anywhere(require={"environment": matcher}))
    code = Code.FILE_UNKNOWN_MEMBER if "prefix" in matcher else Code.FILE_SCHEMA
    assert {finding.code for finding in found} == {code}


def test_every_broken_rule_of_an_identity_is_found_at_once(tmp_path: Path) -> None:
    identity = anywhere(
        pins={"repository_id": "7", "sub": "s", "repository": "r", "actor": "a"},
        require={"event_name": {"glob": "*"}, "repository_id": "7", "ref": {}},
        names={"ref": "x"},
        expires="2027-02-29",
    )
    assert {pointer for pointer, _ in errors(tmp_path, identity)} == {
        "/identities/0/pins", "/identities/0/pins/sub", "/identities/0/pins/repository", "/identities/0/pins/actor",
        "/identities/0/pins/repository_id", "/identities/0/require/event_name", "/identities/0/require/ref",
        "/identities/0/names/ref", "/identities/0/expires",
    }  # fmt: skip


def test_github_s_subject_is_never_matched_and_the_error_says_why(tmp_path: Path) -> None:
    for identity in (
        anywhere(require={"sub": "repo:o/r:ref:x"}),
        anywhere(pins={**GITHUB.pins, "sub": "s"}),
    ):
        ((_, said),) = errors(tmp_path, identity)
        assert "its form changed on 2026-07-15" in said


@pytest.mark.parametrize("rule", [{"glob": "push*"}, {"regex": "push", "reason": "r"}, {"absent": True},
                                  {"contains_all": ["push"]}])  # fmt: skip
def test_events_are_named_one_by_one(tmp_path: Path, rule: dict[str, Any]) -> None:
    ((pointer, said),) = errors(tmp_path, anywhere(require={"event_name": rule}))
    assert (pointer, said) == ("/identities/0/require/event_name", "list each event_name: an exact value or `any_of`")


def test_a_circleci_identity_must_say_whose_code_it_runs(tmp_path: Path) -> None:
    sample = BY_NAME["circleci"]
    ((pointer, said),) = errors(tmp_path, sample.identity(require={}), "circleci")
    assert pointer == "/identities/0"
    assert "must require oidc.circleci.com/vcs-origin" in said
    assert not errors(tmp_path, sample.identity(require={"oidc.circleci.com/vcs-origin": {"absent": True}}), "circleci")


NARROW = [
    ("github-actions", {"ref": "refs/heads/main"}),
    ("github-actions", {"ref": {"any_of": ["refs/heads/main", "refs/heads/next"]}}),
    ("github-actions", {"ref": {"glob": "refs/heads/release-*"}}),
    ("github-actions", {"ref": {"regex": "refs/tags/v[0-9]+", "reason": "r"}}),
    ("github-actions", {"environment": "evals"}),
    ("github-actions", {"workflow_ref": {"glob": "example-org/evals/.github/workflows/*.yml@refs/heads/main"}}),
    ("github-actions", {"job_workflow_ref": "example-org/evals/.github/workflows/a.yml@refs/heads/main"}),
    ("github-actions", {"workflow_git_ref": "refs/heads/main"}),
    ("github-actions", {"workflow_sha": COMMIT}),
    ("gitlab-ci", {"ref_protected": "true", "ref_path": "refs/heads/main"}),
    ("gitlab-ci", {"ref_protected": "true", "ref_path": {"glob": "refs/tags/*"}}),
    ("gitlab-ci", {"environment_protected": "true"}),
    ("buildkite", {"build_branch": "main"}),
]
OPEN = [
    ("github-actions", {}),
    ("github-actions", {"runner_environment": "github-hosted"}),
    ("github-actions", {"workflow_path": "example-org/evals/.github/workflows/a.yml"}),
    ("github-actions", {"ref": {"glob": "refs/heads/*"}}),
    ("github-actions", {"workflow_ref": {"glob": "example-org/evals/.github/workflows/*.yml@refs/heads/*"}}),
    ("github-actions", {"environment": {"absent": True}}),
    ("github-actions", {"environment": {"glob": "*"}}),
    ("gitlab-ci", {"ref_protected": "true"}),
    ("gitlab-ci", {"ref_protected": "false", "ref_path": "refs/heads/main"}),
    ("gitlab-ci", {"ref_path": "refs/heads/main"}),
    ("gitlab-ci", {"ref_protected": {"any_of": ["true", "false"]}, "ref_path": "refs/heads/main"}),
    ("gitlab-ci", {"environment": "evals"}),
    ("buildkite", {"runner_environment": "buildkite-hosted"}),
]


@pytest.mark.parametrize(("profile", "require"), NARROW, ids=str)
def test_an_identity_that_says_which_ref_environment_or_workflow_may_ask_loads(
    tmp_path: Path, profile: str, require: dict[str, Any]
) -> None:
    names = NAMES if profile == "github-actions" else {}
    assert not errors(tmp_path, BY_NAME[profile].identity(require=require, names=names), profile)


def test_a_ref_may_be_pinned_as_well(tmp_path: Path) -> None:
    assert not errors(tmp_path, GITHUB.identity(pins={**GITHUB.pins, "ref": "refs/heads/main"}, require={}))


@pytest.mark.parametrize(("profile", "require"), OPEN, ids=str)
def test_j17_an_identity_that_any_branch_could_be_does_not_load_unless_it_says_so(
    tmp_path: Path, profile: str, require: dict[str, Any]
) -> None:
    ((pointer, said),) = errors(tmp_path, BY_NAME[profile].identity(require=require), profile)
    assert pointer == "/identities/0/require"
    assert said.startswith(f"{profile} identities must say which ref, environment or workflow may ask")
    assert "require one of `" in said
    assert "or write `any_ref: true` with a `reason`" in said
    stated = BY_NAME[profile].identity(require=require, any_ref=True, reason="only maintainers may push")
    (tmp_path / "stated").mkdir()
    assert not errors(tmp_path / "stated", stated, profile)


def test_any_ref_has_a_reason_and_a_profile_that_it_is_about(tmp_path: Path) -> None:
    at = "/identities/0"
    ((pointer, said),) = errors(tmp_path, GITHUB.identity(any_ref=True))
    assert (pointer, said) == (f"{at}/any_ref", "`any_ref` and `reason` go together: say why any ref may ask")
    assert (f"{at}/reason", said) in errors(tmp_path, GITHUB.identity(reason="r"))
    sample = BY_NAME["oidc"]
    ((pointer, said),) = errors(tmp_path, sample.identity(any_ref=True, reason="r"), "oidc")
    assert (pointer, said) == (f"{at}/any_ref", "oidc identities do not need `any_ref`: remove it")


@pytest.mark.parametrize(
    ("profile", "claim"), [("oauth", "sub"), ("oauth-introspection", "sub"), ("huggingface", "token_role")]
)
def test_what_keeps_other_holders_of_the_ids_out_must_be_required(tmp_path: Path, profile: str, claim: str) -> None:
    why = PROFILES[profile].must_require[claim]
    sample = BY_NAME[profile]
    ((pointer, said),) = errors(tmp_path, sample.identity(require={}), profile)
    assert pointer == "/identities/0"
    assert said.startswith(f"{profile} identities must require {claim}, because {why}")
    ((pointer, said),) = errors(tmp_path, sample.identity(require={claim: {"glob": "*"}}), profile)
    assert "a pattern is refused" in said
    assert not errors(tmp_path, sample.identity(require={}, pins={**sample.pins, claim: "x"}), profile)


BORROWED = [
    ({"job_workflow_ref": FOREIGN}, NAMES),
    ({"job_workflow_path": FOREIGN.partition("@")[0]}, NAMES),
    ({"job_workflow_ref": HOME}, {}),  # nobody can tell whose it is
    ({"job_workflow_ref": {"any_of": [HOME, FOREIGN]}}, NAMES),
    ({"job_workflow_ref": {"glob": "*/evals/.github/workflows/a.yml@refs/heads/main"}}, NAMES),
    ({"job_workflow_ref": {"glob": "example-org/evals*/.github/workflows/a.yml@refs/heads/main"}}, NAMES),
    ({"job_workflow_ref": {"regex": "example-org/evals/.*", "reason": "r"}}, NAMES),
    ({"job_workflow_ref": HOME.replace("example-org", "Example-Org")}, NAMES),
    ({"job_workflow_ref": HOME.replace("evals/", "evals-evil/")}, NAMES),
    ({"job_workflow_ref": FOREIGN, "job_workflow_sha": {"glob": "*"}}, NAMES),
    ({"job_workflow_ref": FOREIGN, "job_workflow_sha": {"absent": True}}, NAMES),
]


@pytest.mark.parametrize(("require", "names"), BORROWED, ids=[str(row[0]) for row in BORROWED])
def test_code_that_may_be_another_repository_s_needs_its_commit(
    tmp_path: Path, require: dict[str, Any], names: dict[str, str]
) -> None:
    found = errors(tmp_path, anywhere(require=require, names=names))
    assert found
    assert all(pointer == f"/identities/0/require/{next(iter(require))}" for pointer, _ in found)
    assert all("also require an exact job_workflow_sha" in said for _, said in found)


@pytest.mark.parametrize(
    "require",
    [
        {"job_workflow_ref": HOME},
        {"job_workflow_path": HOME.partition("@")[0]},
        {"job_workflow_ref": {"glob": "example-org/evals/.github/workflows/*.yml@refs/heads/*"}},
        {"job_workflow_ref": FOREIGN, "job_workflow_sha": COMMIT},
        {"job_workflow_path": {"regex": "[a-z-]+/shared/.*", "reason": "r"}, "job_workflow_sha": {"any_of": [COMMIT]}},
        {"job_workflow_ref": {"absent": True}},
        {"job_workflow_git_ref": "refs/heads/main"},
    ],
)
def test_one_s_own_code_or_a_named_commit_loads(tmp_path: Path, require: dict[str, Any]) -> None:
    assert not errors(tmp_path, anywhere(require=require, names=NAMES))


def test_a_commit_may_be_pinned_as_well(tmp_path: Path) -> None:
    pins = {**GITHUB.pins, "job_workflow_sha": COMMIT}
    assert not errors(tmp_path, anywhere(pins=pins, require={"job_workflow_ref": FOREIGN}, names=NAMES))


# -- what is doubted -----------------------------------------------------------------------------------------------------


def doubtless(**changes: Any) -> dict[str, Any]:
    return anywhere(**{"names": NAMES, "require": {"ref": "refs/heads/main"}, **changes})


def test_a_good_identity_is_not_doubted(tmp_path: Path) -> None:
    assert doubts(tmp_path, doubtless()) == []


@pytest.mark.parametrize("pattern", ["*", "**"])
def test_a_lone_star_is_doubted(tmp_path: Path, pattern: str) -> None:
    found = doubts(tmp_path, doubtless(require={"environment": {"glob": pattern}}))
    assert found == [("lint.pattern_any", "/identities/0/require/environment")]
    assert doubts(tmp_path, doubtless(require={"environment": {"glob": "release-*"}})) == []


@pytest.mark.parametrize("pattern", [".*", "[a-z]*", "a?", "a|", "(?:ab)*", "[^/]*"])
def test_a_regex_that_the_empty_text_meets_is_doubted(tmp_path: Path, pattern: str) -> None:
    found = doubts(tmp_path, doubtless(require={"environment": {"regex": pattern, "reason": "r"}}))
    assert found == [("lint.pattern_empty", "/identities/0/require/environment")]
    assert doubts(tmp_path, doubtless(require={"environment": {"regex": f"x{pattern}" if "|" not in pattern else "x",
                                                               "reason": "r"}})) == []  # fmt: skip


def test_a_pin_without_its_name_is_doubted(tmp_path: Path) -> None:
    found = doubts(tmp_path, doubtless(names={"repository": "example-org/evals"}))
    assert found == [("lint.pin_unnamed", "/identities/0/pins/repository_owner_id")]


def test_a_name_without_its_pin_is_doubted(tmp_path: Path) -> None:
    found = doubts(tmp_path, doubtless(names={**NAMES, "enterprise": "acme"}))
    assert found == [("lint.name_unpinned", "/identities/0/names/enterprise")]
    pinned = doubtless(names={**NAMES, "enterprise": "acme"}, pins={**GITHUB.pins, "enterprise_id": "7"})
    assert doubts(tmp_path, pinned) == []


def test_an_expired_identity_is_doubted_from_its_day_on(tmp_path: Path) -> None:
    identity = doubtless(expires="2026-11-21")
    midnight = NOW - NOW % 86_400
    assert doubts(tmp_path, identity, now=midnight - 1) == []
    assert doubts(tmp_path, identity, now=midnight) == [("lint.identity_expired", "/identities/0/expires")]


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        ("runner_environment", "GitHub-Hosted"),
        ("event_name", "Push"),
        ("event_name", {"any_of": ["push", "Schedule"]}),
        ("repository_visibility", {"glob": "P*"}),
        ("job_workflow_sha", COMMIT.upper()),
    ],
)
def test_a_capital_in_a_claim_that_has_none_is_doubted(tmp_path: Path, claim: str, rule: Any) -> None:
    found = doubts(tmp_path, doubtless(require={claim: rule}))
    assert found == [("lint.case", f"/identities/0/require/{claim}")]


def test_a_capital_in_a_uuid_that_is_pinned_is_doubted(tmp_path: Path) -> None:
    sample = BY_NAME["azure"]
    found = doubts(tmp_path, sample.identity(pins={**sample.pins, "oid": sample.pins["oid"].upper()}), "azure")
    assert found == [("lint.case", "/identities/0/pins/oid")]


@pytest.mark.parametrize(
    ("workflow", "doubted"),
    [
        ("Example-Org/evals/.github/workflows/a.yml", True),
        ("example-org/Evals/.github/workflows/a.yml", True),
        ("example-org/evals/.github/workflows/A.yml", False),
        ("example-org/evals-two/.github/workflows/a.yml", False),
        ("other/Evals/.github/workflows/a.yml", False),
    ],
)
def test_a_repository_spelled_otherwise_than_its_name_is_doubted(
    tmp_path: Path, workflow: str, *, doubted: bool
) -> None:
    found = doubts(tmp_path, doubtless(require={"workflow_path": workflow}, names=NAMES))
    assert {code for code, _ in found} == ({"lint.case"} if doubted else set())


# -- what checks say and read --------------------------------------------------------------------------------------------


def test_the_checks_of_an_identity_stand_in_the_order_of_the_reference(tmp_path: Path) -> None:
    text = changed(POLICY, "    require:", "    expires: 2027-06-30\n    require:")
    policies = load(tmp_path, inspect_ai=text)
    who = caller(policies, job_workflow_ref=FOREIGN)
    verdict = decide(resolve(policies, who), who, (), NOW)
    assert isinstance(verdict, Denial)
    assert [check.rule for check in verdict.checks if "/" not in check.pointer] == [
        "mode", "identities.main.expires", "providers.github-actions.events", "identities.main.require.ref",
        "identities.main.require.runner_environment", "identities.main.require.job_workflow_sha",
    ]  # fmt: skip


def test_what_is_absent_and_what_is_not_absent_are_told_apart(tmp_path: Path) -> None:
    text = changed(
        POLICY, '      ref: "refs/heads/main"', '      ref: "refs/heads/main"\n      environment: {absent: true}'
    )
    policies = load(tmp_path, inspect_ai=text)
    who = caller(policies, environment="release")
    verdict = decide(resolve(policies, who), who, (), NOW)
    assert isinstance(verdict, Denial)
    (check,) = (check for check in verdict.checks if not check.passed)
    assert (check.code, check.actual, check.expected) == (
        Code.IDENTITY_CLAIM_MISMATCH, "the identity token's environment is release", "no such claim",
    )  # fmt: skip
    who = caller(policies)
    assert not isinstance(decide(resolve(policies, who), who, (), NOW), Denial)


def test_what_a_decision_reads_is_named_once(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    who = caller(policies)
    unknown = ["repository_id", "repository_owner_id", "repository", "repository_owner", "enterprise", "event_name",
               "job_workflow_ref", "job_workflow_sha"]  # fmt: skip
    assert ClaimNames.of(who.provider.rules).read == tuple(unknown)
    assert registration(policies).claim_names.read == (*unknown, "ref", "runner_environment")


YAML_TRAPS = [
    ("repository_id: 0123", "file.scalar"),
    ("repository_id: 1_000", "file.scalar"),
    ("repository_id: 1e3", "file.scalar"),
    ("repository_id: 12:30", "file.scalar"),
    ("repository_id: 0x1F", "file.schema"),
    ("repository_id: no", "file.scalar"),
    ("repository_id: ~", "file.scalar"),
    ("repository_id: 700000001", "file.schema"),
    ("repository_id: 7.0", "file.schema"),
    ("repository_id: true", "file.schema"),
    ('repository_id: &a "7"', "file.feature"),
    ("repository_id: !!str 7", "file.feature"),
    ('repository_id: "7", repository_id: "8"', "file.duplicate_key"),
    ('"repository_id": "7", repository_id: "8"', "file.duplicate_key"),
    ('<<: {repository_id: "7"}', "file.feature"),
    ('repository_id: "7\\0"', "file.encoding"),
    ('repоsitory_id: "7"', "file.rule"),  # Cyrillic o
    ('repository_id\u200b: "7"', "file.rule"),
    ('Repository_id: "7"', "file.rule"),
]


@pytest.mark.parametrize(("pin", "code"), YAML_TRAPS, ids=[row[0] for row in YAML_TRAPS])
def test_a_pin_that_readers_could_misread_does_not_load(tmp_path: Path, pin: str, code: str) -> None:
    write(tmp_path, inspect_ai=changed(POLICY, 'repository_id: "7"', pin))
    policies, found = check_policies(tmp_path, AUDIENCE, 0)
    assert policies is None
    assert found[0].code == code, found
    assert found[0].place.line == 8


@pytest.mark.parametrize(("profile", "name"), [("circleci", "oidc.circleci.com/vcs-origin"),
                                               ("circleci", "oidc.circleci.com/ssh-rerun"), ("azure", "scp"),
                                               ("codefresh", "scm_pull_request_target_branch")])  # fmt: skip
@pytest.mark.parametrize("rule", [{"glob": "*/*/*"}, {"regex": ".+", "reason": "r"}])
def test_what_a_profile_asks_for_is_not_replaced_by_a_pattern(
    tmp_path: Path, profile: str, name: str, rule: dict[str, Any]
) -> None:
    sample = BY_NAME[profile]
    ((pointer, said),) = errors(tmp_path, sample.identity(require={**sample.require, name: rule}), profile)
    assert pointer.startswith("/identities/0/require/")
    assert said == f"{name} keeps strangers out, so a pattern is refused: list its exact values"
