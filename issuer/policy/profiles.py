"""Built-in profiles of identity providers: one table of data, no code per provider.

A profile says what is true of every token of such a provider; `providers.yaml` may narrow or fill in each value.
Sources: the providers' public documentation of their OIDC tokens.
"""

from __future__ import annotations

from msgspec import Struct

HOUR = 3600


class Profile(Struct, frozen=True):
    """What is known of a kind of provider.

    `issuer` is set where every customer shares one. `uses` is how many different requests one token may make: 1 where a
    job can mint a fresh token for each. `pins` are the immutable ids that every registered identity must pin, the most
    telling first; `names` are the readable twins of ids, which only ever warn; `matchable` is what `require` may name
    (None: any claim but `never`). `event_claim` says what started the job, `events` which of them strangers cannot
    cause. `provenance` are the claims that are public and immutable enough for the token's `caller`.
    """

    issuer: str | None
    algorithms: tuple[str, ...]
    max_lifetime_s: int
    max_age_s: int
    uses: int
    types: tuple[str, ...]
    pins: tuple[str, ...]
    names: tuple[str, ...]
    never: tuple[str, ...]
    matchable: frozenset[str] | None
    event_claim: str | None
    events: tuple[str, ...]
    provenance: tuple[str, ...]


PROFILES: dict[str, Profile] = {
    "github-actions": Profile(
        issuer="https://token.actions.githubusercontent.com",
        algorithms=("RS256",),
        max_lifetime_s=HOUR,
        max_age_s=900,
        uses=1,
        types=("JWT",),
        pins=("repository_id", "repository_owner_id"),
        names=("repository", "repository_owner"),
        # Its format changed on 2026-07-15 and repositories can customize it: two identities can share one `sub`.
        never=("sub",),
        matchable=frozenset({
            "base_ref", "enterprise_id", "environment", "event_name", "head_ref", "job_workflow_ref",
            "job_workflow_sha", "ref", "ref_protected", "ref_type", "repository_visibility", "run_attempt",
            "runner_environment", "sha", "workflow", "workflow_ref", "workflow_sha",
        }),
        event_claim="event_name",
        events=("push", "workflow_dispatch", "schedule", "release"),
        provenance=(
            "repository_id", "repository_owner_id", "run_id", "run_attempt", "sha", "ref", "job_workflow_ref",
            "job_workflow_sha", "workflow_sha", "event_name", "runner_environment",
        ),
    ),
    "gitlab-ci": Profile(
        issuer="https://gitlab.com",
        algorithms=("RS256",),
        max_lifetime_s=2 * HOUR,
        max_age_s=2 * HOUR,
        # GitLab hands a job one fixed token; a job may have a handful of runs to sign.
        uses=10,
        types=("JWT",),
        pins=("project_id", "namespace_id"),
        names=("project_path", "namespace_path"),
        never=("sub", "user_email", "user_login", "user_identities"),
        matchable=frozenset({
            "ci_config_ref_uri", "ci_config_sha", "deployment_tier", "environment", "environment_protected",
            "pipeline_source", "project_visibility", "ref", "ref_path", "ref_protected", "ref_type",
            "runner_environment", "runner_id", "sha",
        }),
        event_claim="pipeline_source",
        events=("push", "schedule", "web"),
        provenance=(
            "project_id", "namespace_id", "pipeline_id", "job_id", "sha", "ref_path", "ci_config_ref_uri",
            "ci_config_sha", "pipeline_source", "runner_environment",
        ),
    ),
    "oidc": Profile(
        issuer=None,
        algorithms=("RS256", "ES256"),
        max_lifetime_s=HOUR,
        max_age_s=HOUR,
        uses=1,
        types=("JWT",),
        pins=("sub",),
        names=(),
        never=("email", "name", "preferred_username"),
        matchable=None,
        event_claim=None,
        events=(),
        provenance=(),  # a generic `sub` may be a person's address
    ),
}  # fmt: skip
