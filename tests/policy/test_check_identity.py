"""The rules of a registered identity: refusals and warnings of a file, and the claims that the checks of a token read."""

from pathlib import Path
from typing import Any

from issuer.codes import Code
from issuer.errors import Finding
from issuer.identity.profiles import PROFILES
from issuer.identity.token import ClaimNames
from issuer.policy.authoring.load import check_policies
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


def test_a_matcher_that_makes_no_sense_is_refused_at_its_place(tmp_path: Path) -> None:
    matchers: list[tuple[dict[str, Any], str, str]] = [
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
    for matcher, at, rule in matchers:
        pointer, detail = errors(tmp_path, anywhere(require={"environment": matcher}))[0]
        assert (pointer, rule in detail) == (f"/identities/0/require/environment{at}", True), matcher
    other_types: list[dict[str, Any]] = [
        {"absent": False}, {"any_of": []}, {"contains_all": []}, {"contains_all": [""]}, {"glob": ""},
        {"regex": "", "reason": "r"}, {"any_of": [1.5]}, {"any_of": [None]}, {"prefix": "a"},
    ]  # fmt: skip
    for matcher in other_types:
        found = findings(tmp_path, anywhere(require={"environment": matcher}))
        code = Code.FILE_UNKNOWN_MEMBER if "prefix" in matcher else Code.FILE_SCHEMA
        assert {finding.code for finding in found} == {code}, matcher
    for matcher in ({"glob": "push*"}, {"regex": "push", "reason": "r"}, {"absent": True}, {"contains_all": ["push"]}):
        event = errors(tmp_path, anywhere(require={"event_name": matcher}))
        said = "list each event_name: an exact value or `any_of`"
        assert event == [("/identities/0/require/event_name", said)], matcher


def test_an_identity_that_names_a_ref_an_environment_or_a_workflow_loads(tmp_path: Path) -> None:
    workflows = "example-org/evals/.github/workflows"
    for profile, require in (
        ("github-actions", {"ref": "refs/heads/main"}),
        ("github-actions", {"ref": {"glob": "refs/heads/release-*"}}),
        ("github-actions", {"ref": {"regex": "refs/tags/v[0-9]+", "reason": "r"}}),
        ("github-actions", {"ref": {"regex": "refs/heads/(main|release-.*)", "reason": "r"}}),
        ("github-actions", {"workflow_ref": {"glob": f"{workflows}/*.yml@refs/heads/main"}}),
        ("github-actions", {"job_workflow_ref": f"{workflows}/a.yml@refs/heads/main"}),
        ("github-actions", {"workflow_git_ref": "refs/heads/main"}),
        ("github-actions", {"workflow_sha": COMMIT}),
        ("gitlab-ci", {"ref_protected": "true", "ref_path": "refs/heads/main"}),
        ("gitlab-ci", {"ref_protected": "true", "ref_path": {"glob": "refs/tags/*"}}),
        ("gitlab-ci", {"environment_protected": "true"}),
        ("buildkite", {"build_branch": "main"}),
    ):
        names = NAMES if profile == "github-actions" else {}
        assert not errors(tmp_path, BY_NAME[profile].identity(require=require, names=names), profile), require
    assert not errors(tmp_path, GITHUB.identity(pins={**GITHUB.pins, "ref": "refs/heads/main"}, require={}))


def test_j17_an_identity_of_any_branch_loads_only_with_any_ref(tmp_path: Path) -> None:
    workflows = "example-org/evals/.github/workflows"
    for profile, require in (
        ("github-actions", {}),
        ("github-actions", {"workflow_path": f"{workflows}/a.yml"}),
        ("github-actions", {"ref": {"glob": "refs/heads/*"}}),
        ("github-actions", {"workflow_ref": {"glob": f"{workflows}/*.yml@refs/heads/*"}}),
        ("github-actions", {"environment": "evals"}),
        *(("github-actions", {"ref": {"glob": glob}}) for glob in ("*", "refs/*/*", "refs/*/*/*", "refs/tags/*")),
        *(
            ("github-actions", {"ref": {"regex": regex, "reason": "r"}})
            for regex in ("refs/.*", "refs/(heads|tags)/[^/]+", "refs/pull/[0-9]+/merge", "refs/heads/main|.+/[A-Z]+")
        ),
        ("github-actions", {"ref": {"contains_all": ["refs/heads/main"]}}),
        ("github-actions", {"ref": {"absent": True}}),
        ("github-actions", {"workflow_ref": {"glob": f"{workflows}/*.yml@refs/*/*"}}),
        ("github-actions", {"workflow_ref": {"glob": f"{workflows}/*.yml*"}}),
        # The branch may be called `x@refs/heads/main`.
        ("github-actions", {"workflow_ref": {"regex": f"{workflows}/.*@refs/heads/main", "reason": "r"}}),
        ("github-actions", {"sha": {"regex": "[0-9a-f]{40}", "reason": "r"}}),
        ("github-actions", {"sha": {"glob": "a*"}}),
        ("gitlab-ci", {"ref_protected": "true", "ref_path": {"glob": "refs/*/*"}}),
        ("buildkite", {"build_branch": {"regex": "[a-z/]+", "reason": "r"}}),
        ("gitlab-ci", {"ref_protected": "true"}),
        ("gitlab-ci", {"ref_protected": "false", "ref_path": "refs/heads/main"}),
        ("gitlab-ci", {"ref_path": "refs/heads/main"}),
        ("gitlab-ci", {"ref_protected": {"any_of": ["true", "false"]}, "ref_path": "refs/heads/main"}),
        ("gitlab-ci", {"environment": "evals"}),
        ("buildkite", {"runner_environment": "buildkite-hosted"}),
    ):
        ((pointer, detail),) = errors(tmp_path, BY_NAME[profile].identity(require=require), profile)
        assert pointer == "/identities/0/require"
        assert detail.startswith(f"{profile} identities must say which ref or workflow may ask")
        assert "require one of `" in detail
        assert "or write `any_ref: true` with a `reason`" in detail
        stated = BY_NAME[profile].identity(require=require, any_ref=True, reason="only maintainers may push")
        assert not errors(tmp_path, stated, profile), require


def test_any_ref_has_a_reason_and_a_profile_that_it_is_about(tmp_path: Path) -> None:
    at, oidc = "/identities/0", BY_NAME["oidc"]
    said = "`any_ref` and `reason` go together: say why any ref may ask"
    assert errors(tmp_path, GITHUB.identity(any_ref=True)) == [(f"{at}/any_ref", said)]
    assert (f"{at}/reason", said) in errors(tmp_path, GITHUB.identity(reason="r"))
    needless = (f"{at}/any_ref", "oidc identities do not need `any_ref`: remove it")
    assert errors(tmp_path, oidc.identity(any_ref=True, reason="r"), "oidc") == [needless]


def test_the_claims_that_a_decision_reads_are_listed_once(tmp_path: Path) -> None:
    policies = load(tmp_path, inspect_ai=POLICY)
    unknown = ("repository_id", "repository_owner_id", "repository", "repository_owner", "enterprise", "event_name",
               "job_workflow_ref", "job_workflow_sha")  # fmt: skip
    assert ClaimNames.of(caller(policies).provider.rules).read == unknown
    assert registration(policies).claim_names.read == (*unknown, "ref", "runner_environment")


def test_what_keeps_strangers_out_must_be_required(tmp_path: Path) -> None:
    for profile, claim in (("oauth", "sub"), ("oauth-introspection", "sub"), ("huggingface", "token_role")):
        why, sample = PROFILES[profile].must_require[claim], BY_NAME[profile]
        ((pointer, detail),) = errors(tmp_path, sample.identity(require={}), profile)
        assert pointer == "/identities/0"
        assert detail.startswith(f"{profile} identities must require {claim}, because {why}")
        ((pointer, detail),) = errors(tmp_path, sample.identity(require={claim: {"glob": "*"}}), profile)
        assert "a pattern is refused" in detail
        assert not errors(tmp_path, sample.identity(require={}, pins={**sample.pins, claim: "x"}), profile)
    origin, sample = "oidc.circleci.com/vcs-origin", BY_NAME["circleci"]
    ((pointer, detail),) = errors(tmp_path, sample.identity(require={}), "circleci")
    assert (pointer, f"must require {origin}" in detail) == ("/identities/0", True)
    assert not errors(tmp_path, sample.identity(require={origin: {"absent": True}}), "circleci")
    demands = ((origin, "circleci"), ("oidc.circleci.com/ssh-rerun", "circleci"), ("scp", "azure"),
               ("scm_pull_request_target_branch", "codefresh"))  # fmt: skip
    for name, profile in demands:
        for rule in ({"glob": "*/*/*"}, {"regex": ".+", "reason": "r"}):
            sample = BY_NAME[profile]
            ((pointer, detail),) = errors(tmp_path, sample.identity(require={**sample.require, name: rule}), profile)
            assert pointer.startswith("/identities/0/require/")
            assert detail == f"{name} keeps strangers out, so a pattern is refused: list its exact values"


def test_code_that_may_be_another_repository_s_needs_its_commit(tmp_path: Path) -> None:
    def sourced(require: dict[str, Any], names: dict[str, str] = NAMES) -> list[tuple[str, str]]:
        return errors(tmp_path, anywhere(require=require, names=names))

    shared = FOREIGN.partition("@")[0]
    borrowed: list[dict[str, Any]] = [
        {"job_workflow_ref": FOREIGN},
        {"job_workflow_path": shared},
        {"job_workflow_ref": {"any_of": [HOME, FOREIGN]}},
        {"job_workflow_ref": {"glob": "*/evals/.github/workflows/a.yml@refs/heads/main"}},
        {"job_workflow_ref": {"glob": "example-org/evals*/.github/workflows/a.yml@refs/heads/main"}},
        {"job_workflow_ref": {"regex": "example-org/evals/.*", "reason": "r"}},
        {"job_workflow_ref": HOME.replace("example-org", "Example-Org")},
        {"job_workflow_ref": HOME.replace("evals/", "evals-evil/")},
        {"job_workflow_ref": FOREIGN, "job_workflow_sha": {"glob": "*"}},
        {"job_workflow_ref": FOREIGN, "job_workflow_sha": {"absent": True}},
    ]
    cases = [*((require, NAMES) for require in borrowed), ({"job_workflow_ref": HOME}, {})]  # of an unknown owner
    for require, names in cases:
        found = sourced(require, names)
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
    assert [require for require in own if sourced(require)] == []
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


def test_an_unnamed_pin_an_unpinned_name_and_an_expired_identity_are_warned_of(tmp_path: Path) -> None:
    found = warnings(tmp_path, good(names={"repository": "example-org/evals"}))
    assert found == [("lint.pin_unnamed", "/identities/0/pins/repository_owner_id")]
    found = warnings(tmp_path, good(names={**NAMES, "enterprise": "acme"}))
    assert found == [("lint.name_unpinned", "/identities/0/names/enterprise")]
    pinned = good(names={**NAMES, "enterprise": "acme"}, pins={**GITHUB.pins, "enterprise_id": "7"})
    assert warnings(tmp_path, pinned) == []
    identity, midnight = good(expires="2026-11-21"), NOW - NOW % 86_400
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


def test_a_pin_that_readers_could_misread_does_not_load(tmp_path: Path) -> None:
    for pin, code in (
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
    ):
        write(tmp_path, inspect_ai=changed(POLICY, 'repository_id: "7"', pin))
        policies, found = check_policies(tmp_path, AUDIENCE, 0)
        assert policies is None
        assert (found[0].code, found[0].place.line) == (code, 8), pin
