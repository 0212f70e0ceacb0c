"""The generator of a first policy from one identity token: pinned by its ids, strict, with passing tests. Pure.

The token is not trusted: its claims are checked and quoted as text, and choose no rule, pattern or member. The author
and `issuer policy check` must judge the policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats.display import show_value
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.strict_yaml import quoted
from issuer.identity.profiles import PROFILES, Profile, derive
from issuer.identity.table import ProvidersFile
from issuer.policy.patterns import Globs

MAX_TEXT = 512
LOOPBACK = "127.0.0.1"
# The claim that has a job's ref or branch. Jobs of other branches have the same ids.
_BRANCH = {
    "github-actions": "ref",
    "gitlab-ci": "ref_path",
    "buildkite": "build_branch",
    "circleci": "oidc.circleci.com/vcs-ref",
    "bitbucket": "branchName",
    "codefresh": "scm_ref",
}
# Other claims that the policy requires as in the token, if the token has them.
_ALSO = {
    "github-actions": ("workflow_ref", "environment", "runner_environment"),
    "gitlab-ci": ("ref_protected", "ci_config_ref_uri"),
    "codefresh": ("scm_repo_url",),
    "azure": ("azp",),
    "aws": ("https://sts.amazonaws.com/aws_account",),
    "kubernetes": ("kubernetes.io/namespace",),
}
_BY_A_STRANGER = {"github-actions": "pull_request", "gitlab-ci": "merge_request_event", "buildkite": "webhook"}
_OTHER_DIGIT = str.maketrans("0123456789abcdef", "1234567890bcdefa")
_BARE = re.compile("[a-z][a-z_]*")
_ELSE = "somebody/else"


class TokenProvider(Struct, frozen=True):
    """The provider of the token: its id and profile, and the events that may start a job."""

    id: str
    profile: str
    events: tuple[str, ...]

    @property
    def rules(self) -> Profile:
        """The profile of its tokens."""
        return PROFILES[self.profile]


class Choices(Struct, frozen=True):
    """The author's choices: the integration's id, a contact, and grants. `benchmarks` are globs of repositories."""

    integration: str
    contact: str
    framework: str
    benchmarks: tuple[str, ...]


def find_provider(claims: Mapping[str, JSON], table: ProvidersFile | None) -> TokenProvider:
    """Find the provider of a token by its `iss`, in the table or, without a table, among the known profiles.

    A token of `issuer dev` counts as a token of the provider that it plays. Raises FormatError (`policy.new`).
    """
    issuer = _text(claims, "iss")
    url = urlsplit(issuer)
    sandbox_id = url.path.strip("/") if url.scheme == "http" and url.hostname == LOOPBACK else ""
    for known, provider in _known_providers(table):
        if issuer == known or provider.id == sandbox_id:
            return provider
    where = "the issuer of a known provider such as github.com or gitlab.com" if table is None else "in providers.yaml"
    detail = f"the token's issuer {show_value(issuer)} is not {where}: add the provider to providers.yaml first"
    raise FormatError(Code.POLICY_NEW, detail, "/iss")


def _known_providers(table: ProvidersFile | None) -> Iterator[tuple[str | None, TokenProvider]]:
    """Yield each provider with its issuer, from the table or, without a table, from the profiles with one issuer."""
    if table is None:
        known = ((name, rules) for name, rules in PROFILES.items() if rules.issuer)
        yield from ((rules.issuer, TokenProvider(name, name, rules.events)) for name, rules in known)
        return
    for id, entry in table.providers.items():
        if rules := PROFILES.get(entry.profile):
            events = rules.events if entry.events is UNSET else tuple(entry.events)
            yield entry.issuer or rules.issuer, TokenProvider(id, entry.profile, events)


class NewPolicy(Struct, frozen=True):
    """A generated policy: its text, and the caller's ids and names in it."""

    text: str
    pins: Mapping[str, str]
    names: Mapping[str, str]


def make_policy(choices: Choices, provider: TokenProvider, token_claims: Mapping[str, JSON]) -> NewPolicy:
    """Return a policy for the job of this token that grants to as few other jobs as possible.

    Raises FormatError (`policy.new`) for a token that lacks a required claim, or whose job must not be trusted.
    """
    rules = provider.rules
    claims = derive(rules, token_claims)
    _demand_trusted(provider, claims)
    pins = {name: _text(claims, name) for name in rules.pins}
    names = {name: _text(claims, name) for name, of in rules.names.items() if of in pins and name in claims}
    required = {name: _text(claims, name) for name in _required(provider, claims)}
    read = [*pins, *required, *_read_anyway(rules, claims)]
    lines = [
        "version: 1",
        f"integration: {choices.integration}",
        "mode: active",
        f"contacts: [{quoted(choices.contact)}]",
        "",
        "identities:",
        "  - id: main",
        f"    provider: {provider.id}",
        *_map("pins", pins),
        *(_map("names", names) if names else ()),
        *(_map("require", required) if required else ()),
        "",
        "grants:",
        f"  frameworks: [{{name: {quoted(choices.framework)}}}]",
        f"  benchmarks: [{', '.join(map(quoted, choices.benchmarks))}]",
        '  models: ["*/*"]',
        '  tasks: ["*"]',
        '  metrics: ["*", "*@*"]',
        "",
        "token:",
        '  audiences: ["https://huggingface.co"]',
        "",
        "tests:",
        *_tests(choices, provider, claims, read, required),
    ]
    return NewPolicy("\n".join(lines) + "\n", pins, names)


# -- claims of the token -----------------------------------------------------------------------------------------------


def _demand_trusted(provider: TokenProvider, claims: Mapping[str, JSON]) -> None:
    """Refuse the token of a job that strangers can start, or whose branch is open to pushes."""
    event = provider.rules.event_claim
    if event is not None and claims.get(event) not in provider.events:
        actual = show_value(claims.get(event))
        detail = f"the token's {event} is {actual}, which strangers can cause: use the token of a push"
        raise FormatError(Code.POLICY_NEW, detail, pointer_to("", event))
    if provider.profile == "gitlab-ci" and claims.get("ref_protected") != "true":
        raise FormatError(Code.POLICY_NEW, "the job's branch is not protected: protect it in GitLab", "/ref_protected")
    for name, value in provider.rules.demands.items():
        if claims.get(name) != value:
            detail = f"the token's {name} is {show_value(claims.get(name))}, and must be {show_value(value)}"
            raise FormatError(Code.POLICY_NEW, detail, pointer_to("", name))


def _required(provider: TokenProvider, claims: Mapping[str, JSON]) -> Iterator[str]:
    """Yield the claims that the policy requires as they are in the token."""
    rules = provider.rules
    if provider.profile in _BRANCH:
        yield _BRANCH[provider.profile]
    yield from (name for name in _ALSO.get(provider.profile, ()) if name in claims)
    yield from (name for name in rules.must_require if name not in _BRANCH.values())
    # A workflow of another repository: the policy must name its commit.
    if rules.foreign and not str(claims.get("job_workflow_ref", "")).startswith(f"{claims.get('repository')}/"):
        yield rules.foreign.commit


def _read_anyway(rules: Profile, claims: Mapping[str, JSON]) -> Iterator[str]:
    """Yield the claims that are checked in every token of this kind, whatever a policy requires."""
    if rules.event_claim is not None:
        yield rules.event_claim
    yield from (name for name, value in rules.demands.items() if value is not None)
    if rules.scope and _text(claims, "scope"):
        yield "scope"


def _text(claims: Mapping[str, JSON], name: str) -> str:
    """Return a claim as text for a policy. Raises FormatError."""
    value = claims.get(name)
    if value is None:
        raise FormatError(Code.POLICY_NEW, f"the token has no {name}, which the policy needs", pointer_to("", name))
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        rule = f"which is not text of at most {MAX_TEXT} printable characters"
        detail = f"the token's {name} is {show_value(value)}, {rule}"
        raise FormatError(Code.POLICY_NEW, detail, pointer_to("", name))
    return value


# -- text of the policy ------------------------------------------------------------------------------------------------


def _map(name: str, values: Mapping[str, str]) -> list[str]:
    return [f"    {name}:", *(f"      {_key(key)}: {quoted(value)}" for key, value in values.items())]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else quoted(name)


def _tests(
    choices: Choices, provider: TokenProvider, claims: Mapping[str, JSON], read: list[str], required: dict[str, str]
) -> Iterator[str]:
    """Yield a test that grants this job, and tests that refuse jobs which differ from it."""
    granted = "this job"
    yield from (
        f"  - name: {granted}",
        "    expect: granted",
        f"    provider: {provider.id}",
        "    identity:",
        *(f"      {_key(name)}: {_flow(value)}" for name, value in _in_a_token(provider.rules, claims, read).items()),
        "    run:",
        f"      framework: {{name: {quoted(choices.framework)}, version: {quoted('1.0')}}}",
        f"      benchmark_repo: {quoted(choices.benchmarks[0].replace('*', 'x'))}",
    )
    pin, event = provider.rules.pins[0], provider.rules.event_claim
    others: list[tuple[str, str, str, Mapping[str, JSON]]] = []
    if (branch := _BRANCH.get(provider.profile)) in required and branch is not None:
        others.append(("another branch", "identity.claim_mismatch", "identity", {branch: f"{required[branch]}-2"}))
    if provider.profile in _BY_A_STRANGER and event is not None:
        started = {event: _BY_A_STRANGER[provider.profile]}
        others.append(("a pull request", "identity.event_forbidden", "identity", started))
    copy = _in_a_token(provider.rules, {**claims, pin: _other(str(claims[pin]))}, [pin])
    others += [
        ("a copy of the repository, or another account", "integration.unknown", "identity", copy),
        ("another framework", "policy.framework", "run", {"framework": {"name": f"{choices.framework}-2"}}),
    ]
    if not Globs(choices.benchmarks).match(_ELSE):
        others.append(("another benchmark", "policy.benchmark", "run", {"benchmark_repo": _ELSE}))
    for name, expected, part, changed in others:
        yield f"  - name: {name}"
        yield f"    claims_from: {granted}"
        yield f"    override: {{{part}: {_flow(changed)}}}"
        yield f"    expect: {expected}"


def _in_a_token(rules: Profile, claims: Mapping[str, JSON], names: Sequence[str]) -> dict[str, JSON]:
    """Return claims in the form of a token: derived claims at their place inside other claims."""
    token: dict[str, Any] = {}
    for name in names:
        how = rules.derived.get(name)
        *outer, last = (name,) if how is None else how.path
        inside = token
        for member in outer:
            inside = inside.setdefault(member, {})
        inside[last] = claims[name]
    return token


def _other(value: str) -> str:
    changed = value.translate(_OTHER_DIGIT)
    return changed if changed != value else f"{value}-2"


def _flow(value: JSON) -> str:
    """Write a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)}: {_flow(item)}" for name, item in value.items()) + "}"
    return quoted(value) if isinstance(value, str) else "true" if value else "false"
