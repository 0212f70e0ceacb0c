"""The rules of a registered identity: refusals and warnings of a file, and the claims that the checks of a token read."""

from pathlib import Path
from typing import Any

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
    return GITHUB.identity(any_ref=True, reason="another rule is tested", **changes)


def errors(folder: Path, identity: dict[str, Any], profile: str = "github-actions") -> list[tuple[str, str]]:
    """Return pointer and rule of every error."""
    found = findings(folder, identity, profile)
    assert all(finding.code is Code.FILE_RULE for finding in found if finding.severity == "error"), found
    return [(finding.pointer, finding.detail) for finding in found if finding.severity == "error"]


def warnings(
    folder: Path, identity: dict[str, Any], profile: str = "github-actions", now: int = 0
) -> list[tuple[str, str]]:
    """Return code and pointer of every warning; other findings fail the test."""
    found = findings(folder, identity, profile, now)
    assert all(finding.severity == "warning" for finding in found), found
    return [(str(finding.code), finding.pointer) for finding in found]


MATCHERS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "", "give exactly one of"),
    ({"reason": "r"}, "", "give exactly one of"),
    ({"glob": "a", "any_of": ["a"]}, "", "give exactly one of"),
    ({"contains_all": ["a"], "any_of": ["a"]}, "", "give exactly one of"),
    ({"regex": "a"}, "", "`regex` and `reason` go together"),
    ({"glob": "a", "reason": "r"}, "", "`regex` and `reason` go together"),
    ({"regex": "(a", "reason": "r"}, "/regex", "not a regular expression of RE2: missing )"),
    ({"regex": "(?i)main", "reason": "r"}, "/regex", "no flags"),
    ({"regex": "mаin", "reason": "r"}, "/regex", "printable ASCII only"),
    ({"regex": "a" * 257, "reason": "r"}, "/regex", "longer than 256 characters"),
    ({"contains_all": ["read", "read write"]}, "/contains_all/1", "must be one word"),
    ({"contains_all": [" "]}, "/contains_all/0", "must be one word"),
]
OTHER_TYPES: list[dict[str, Any]] = [
    {"absent": False}, {"any_of": []}, {"contains_all": []}, {"contains_all": [""]}, {"glob": ""}, {"regex": "", "reason": "r"},
    {"any_of": [1.5]}, {"any_of": [None]}, {"prefix": "a"},
]  # fmt: skip


def test_a_matcher_that_makes_no_sense_is_refused_at_its_place(tmp_path: Path) -> None:
    for matcher, at, rule in MATCHERS:
        pointer, detail = errors(tmp_path, anywhere(require={"environment": matcher}))[0]
        assert (pointer, rule in detail) == (f"/identities/0/require/environment{at}", True), matcher
    for matcher in OTHER_TYPES:
        found = findings(tmp_path, anywhere(require={"environment": matcher}))
        code = Code.FILE_UNKNOWN_MEMBER if "prefix" in matcher else Code.FILE_SCHEMA
        assert {finding.code for finding in found} == {code}, matcher


def test_events_are_named_one_by_one(tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [
        {"glob": "push*"},
        {"regex": "push", "reason": "r"},
        {"absent": True},
        {"contains_all": ["push"]},
    ]
    for rule in rules:
        ((pointer, detail),) = errors(tmp_path, anywhere(require={"event_name": rule}))
        assert pointer == "/identities/0/require/event_name"
        assert detail == "list each event_name: an exact value or `any_of`"


def test_a_circleci_identity_must_say_whose_code_it_runs(tmp_path: Path) -> None:
    sample = BY_NAME["circleci"]
    ((pointer, said),) = errors(tmp_path, sample.identity(require={}), "circleci")
    assert pointer == "/identities/0"
    assert "must require oidc.circleci.com/vcs-origin" in said
    assert not errors(tmp_path, sample.identity(require={"oidc.circleci.com/vcs-origin": {"absent": True}}), "circleci")


NARROW: list[tuple[str, dict[str, Any]]] = [
    ("github-actions", {"ref": "refs/heads/main"}),
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
OPEN: list[tuple[str, dict[str, Any]]] = [
    ("github-actions", {}),
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


def test_an_identity_that_names_a_ref_an_environment_or_a_workflow_loads(tmp_path: Path) -> None:
    for profile, require in NARROW:
        names = NAMES if profile == "github-actions" else {}
        assert not errors(tmp_path, BY_NAME[profile].identity(require=require, names=names), profile), require
    assert not errors(tmp_path, GITHUB.identity(pins={**GITHUB.pins, "ref": "refs/heads/main"}, require={}))


def test_j17_an_identity_of_any_branch_loads_only_with_any_ref(tmp_path: Path) -> None:
    for profile, require in OPEN:
        ((pointer, detail),) = errors(tmp_path, BY_NAME[profile].identity(require=require), profile)
        assert pointer == "/identities/0/require"
        assert detail.startswith(f"{profile} identities must say which ref, environment or workflow may ask")
        assert "require one of `" in detail
        assert "or write `any_ref: true` with a `reason`" in detail
        stated = BY_NAME[profile].identity(require=require, any_ref=True, reason="only maintainers may push")
        assert not errors(tmp_path, stated, profile), require


def test_any_ref_has_a_reason_and_a_profile_that_it_is_about(tmp_path: Path) -> None:
    at = "/identities/0"
    ((pointer, said),) = errors(tmp_path, GITHUB.identity(any_ref=True))
    assert (pointer, said) == (f"{at}/any_ref", "`any_ref` and `reason` go together: say why any ref may ask")
    assert (f"{at}/reason", said) in errors(tmp_path, GITHUB.identity(reason="r"))
    sample = BY_NAME["oidc"]
    ((pointer, said),) = errors(tmp_path, sample.identity(any_ref=True, reason="r"), "oidc")
    assert (pointer, said) == (f"{at}/any_ref", "oidc identities do not need `any_ref`: remove it")


def test_what_keeps_other_holders_of_the_ids_out_must_be_required(tmp_path: Path) -> None:
    for profile, claim in (("oauth", "sub"), ("oauth-introspection", "sub"), ("huggingface", "token_role")):
        why, sample = PROFILES[profile].must_require[claim], BY_NAME[profile]
        ((pointer, detail),) = errors(tmp_path, sample.identity(require={}), profile)
        assert pointer == "/identities/0"
        assert detail.startswith(f"{profile} identities must require {claim}, because {why}")
        ((pointer, detail),) = errors(tmp_path, sample.identity(require={claim: {"glob": "*"}}), profile)
        assert "a pattern is refused" in detail
        assert not errors(tmp_path, sample.identity(require={}, pins={**sample.pins, claim: "x"}), profile)


BORROWED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"job_workflow_ref": FOREIGN}, NAMES),
    ({"job_workflow_path": FOREIGN.partition("@")[0]}, NAMES),
    ({"job_workflow_ref": HOME}, {}),  # without a name, its owner is unknown
    ({"job_workflow_ref": {"any_of": [HOME, FOREIGN]}}, NAMES),
    ({"job_workflow_ref": {"glob": "*/evals/.github/workflows/a.yml@refs/heads/main"}}, NAMES),
    ({"job_workflow_ref": {"glob": "example-org/evals*/.github/workflows/a.yml@refs/heads/main"}}, NAMES),
    ({"job_workflow_ref": {"regex": "example-org/evals/.*", "reason": "r"}}, NAMES),
    ({"job_workflow_ref": HOME.replace("example-org", "Example-Org")}, NAMES),
    ({"job_workflow_ref": HOME.replace("evals/", "evals-evil/")}, NAMES),
    ({"job_workflow_ref": FOREIGN, "job_workflow_sha": {"glob": "*"}}, NAMES),
    ({"job_workflow_ref": FOREIGN, "job_workflow_sha": {"absent": True}}, NAMES),
]


def test_code_that_may_be_another_repository_s_needs_its_commit(tmp_path: Path) -> None:
    for require, names in BORROWED:
        found = errors(tmp_path, anywhere(require=require, names=names))
        assert {pointer for pointer, _ in found} == {f"/identities/0/require/{next(iter(require))}"}, require
        assert all("also require an exact job_workflow_sha" in detail for _, detail in found)
    own: list[dict[str, Any]] = [
        {"job_workflow_ref": HOME},
        {"job_workflow_path": HOME.partition("@")[0]},
        {"job_workflow_ref": {"glob": "example-org/evals/.github/workflows/*.yml@refs/heads/*"}},
        {"job_workflow_ref": FOREIGN, "job_workflow_sha": COMMIT},
        {"job_workflow_path": {"regex": "[a-z-]+/shared/.*", "reason": "r"}, "job_workflow_sha": {"any_of": [COMMIT]}},
        {"job_workflow_ref": {"absent": True}},
        {"job_workflow_git_ref": "refs/heads/main"},
    ]
    assert [require for require in own if errors(tmp_path, anywhere(require=require, names=NAMES))] == []
    pins = {**GITHUB.pins, "job_workflow_sha": COMMIT}
    assert not errors(tmp_path, anywhere(pins=pins, require={"job_workflow_ref": FOREIGN}, names=NAMES))


def good(**changes: Any) -> dict[str, Any]:
    return anywhere(**{"names": NAMES, "require": {"ref": "refs/heads/main"}, **changes})


def test_patterns_that_match_anything_or_nothing_are_warned_of(tmp_path: Path) -> None:
    at = "/identities/0/require/environment"
    rules: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
        ({"glob": "release-*"}, []),
        ({"regex": "x.*", "reason": "r"}, []),
        *[({"glob": pattern}, [("lint.pattern_any", at)]) for pattern in ("*", "**")],
        *[({"regex": pattern, "reason": "r"}, [("lint.pattern_empty", at)])
          for pattern in (".*", "[a-z]*", "a?", "a|", "(?:ab)*", "[^/]*")],
    ]  # fmt: skip
    for rule, expected in rules:
        assert warnings(tmp_path, good(require={"environment": rule})) == expected, rule
    assert warnings(tmp_path, good()) == []


def test_a_pin_without_its_name_and_a_name_without_its_pin_are_warned_of(tmp_path: Path) -> None:
    found = warnings(tmp_path, good(names={"repository": "example-org/evals"}))
    assert found == [("lint.pin_unnamed", "/identities/0/pins/repository_owner_id")]
    found = warnings(tmp_path, good(names={**NAMES, "enterprise": "acme"}))
    assert found == [("lint.name_unpinned", "/identities/0/names/enterprise")]
    pinned = good(names={**NAMES, "enterprise": "acme"}, pins={**GITHUB.pins, "enterprise_id": "7"})
    assert warnings(tmp_path, pinned) == []


def test_an_expired_identity_is_warned_of_from_its_day_on(tmp_path: Path) -> None:
    identity = good(expires="2026-11-21")
    midnight = NOW - NOW % 86_400
    assert warnings(tmp_path, identity, now=midnight - 1) == []
    assert warnings(tmp_path, identity, now=midnight) == [("lint.identity_expired", "/identities/0/expires")]


def test_a_capital_in_a_claim_that_has_none_is_warned_of(tmp_path: Path) -> None:
    rules: list[tuple[str, Any]] = [
        ("runner_environment", "GitHub-Hosted"), ("event_name", "Push"), ("event_name", {"any_of": ["push", "Schedule"]}),
        ("repository_visibility", {"glob": "P*"}), ("job_workflow_sha", COMMIT.upper()),
    ]  # fmt: skip
    for claim, rule in rules:
        assert warnings(tmp_path, good(require={claim: rule})) == [("lint.case", f"/identities/0/require/{claim}")]
    sample = BY_NAME["azure"]
    found = warnings(tmp_path, sample.identity(pins={**sample.pins, "oid": sample.pins["oid"].upper()}), "azure")
    assert found == [("lint.case", "/identities/0/pins/oid")]
    for workflow, warned in {
        "Example-Org/evals/.github/workflows/a.yml": True, "example-org/Evals/.github/workflows/a.yml": True,
        "example-org/evals/.github/workflows/A.yml": False, "example-org/evals-two/.github/workflows/a.yml": False,
        "other/Evals/.github/workflows/a.yml": False,
    }.items():  # fmt: skip
        found = warnings(tmp_path, good(require={"workflow_path": workflow}, names=NAMES))
        assert {code for code, _ in found} == ({"lint.case"} if warned else set()), workflow


def test_a_claim_that_must_be_absent_refuses_if_it_is_there(tmp_path: Path) -> None:
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


def test_the_claims_that_a_decision_reads_are_listed_once(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    who = caller(policies)
    unknown = ["repository_id", "repository_owner_id", "repository", "repository_owner", "enterprise", "event_name",
               "job_workflow_ref", "job_workflow_sha"]  # fmt: skip
    assert ClaimNames.of(who.provider.rules).read == tuple(unknown)
    assert registration(policies).claim_names.read == (*unknown, "ref", "runner_environment")


YAML_TRAPS = [
    ("repository_id: 0123", "file.scalar"),
    ("repository_id: 0x1F", "file.schema"),
    ("repository_id: no", "file.scalar"),
    ("repository_id: 700000001", "file.schema"),
    ('repository_id: &a "7"', "file.feature"),
    ('repository_id: "7", repository_id: "8"', "file.duplicate_key"),
    ('<<: {repository_id: "7"}', "file.feature"),
    ('repository_id: "7\\0"', "file.encoding"),
    ('repоsitory_id: "7"', "file.rule"),  # Cyrillic o
    ('repository_id\u200b: "7"', "file.rule"),
]


def test_a_pin_that_readers_could_misread_does_not_load(tmp_path: Path) -> None:
    for pin, code in YAML_TRAPS:
        write(tmp_path, inspect_ai=changed(POLICY, 'repository_id: "7"', pin))
        policies, found = check_policies(tmp_path, AUDIENCE, 0)
        assert policies is None
        assert (found[0].code, found[0].place.line) == (code, 8), pin


def test_what_a_profile_demands_is_not_replaced_by_a_pattern(tmp_path: Path) -> None:
    demands = (("circleci", "oidc.circleci.com/vcs-origin"), ("circleci", "oidc.circleci.com/ssh-rerun"), ("azure", "scp"),
               ("codefresh", "scm_pull_request_target_branch"))  # fmt: skip
    for profile, name in demands:
        for rule in ({"glob": "*/*/*"}, {"regex": ".+", "reason": "r"}):
            sample = BY_NAME[profile]
            ((pointer, detail),) = errors(tmp_path, sample.identity(require={**sample.require, name: rule}), profile)
            assert pointer.startswith("/identities/0/require/")
            assert detail == f"{name} keeps strangers out, so a pattern is refused: list its exact values"
