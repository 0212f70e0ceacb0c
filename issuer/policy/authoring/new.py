"""A first policy, made of one identity token: pinned by its ids, as strict as it allows, with tests that pass. Pure.

Nothing of the token is believed. Its claims are text, checked and quoted: they choose no rule, pattern or member.
Whether the policy is right is for whoever reads it, and for `issuer policy check`.
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
# What says which ref or branch a job is of: what else could ask with the same ids.
_BRANCH = {
    "github-actions": "ref",
    "gitlab-ci": "ref_path",
    "buildkite": "build_branch",
    "circleci": "oidc.circleci.com/vcs-ref",
    "bitbucket": "branchName",
    "codefresh": "scm_ref",
}
# What else is required as the token says it, where it says it.
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


class Whose(Struct, frozen=True):
    """A provider, as far as a policy depends on it: its id and profile, and what may have started a job."""

    id: str
    profile: str
    events: tuple[str, ...]

    @property
    def rules(self) -> Profile:
        """What is known of its tokens."""
        return PROFILES[self.profile]


class Wish(Struct, frozen=True):
    """What the author says himself: the integration's id, whom to write to, and what it may have signed.

    `benchmarks` are globs of repositories.
    """

    integration: str
    contact: str
    framework: str
    benchmarks: tuple[str, ...]


def whose(claims: Mapping[str, JSON], table: ProvidersFile | None) -> Whose:
    """Find the provider of a token by its `iss`: in the table, or, where there is none yet, by what is known of it.

    A token of `issuer dev` is of the provider that it stands in for. Raises FormatError (`policy.new`).
    """
    issuer = _text(claims, "iss")
    known: dict[str, tuple[str, str | None, tuple[str, ...]]]
    if table is None:
        known = {name: (name, rules.issuer, rules.events) for name, rules in PROFILES.items() if rules.issuer}
    else:
        entries = {id: (entry, PROFILES.get(entry.profile)) for id, entry in table.providers.items()}
        known = {
            id: (entry.profile, rules.issuer if entry.issuer is UNSET else entry.issuer,
                 rules.events if entry.events is UNSET else tuple(entry.events))
            for id, (entry, rules) in entries.items() if rules is not None
        }  # fmt: skip
    stood_for = _stood_for(issuer)
    for id, (profile, own, events) in known.items():
        if issuer == own or stood_for == id:
            return Whose(id, profile, events)
    where = "among the providers of github.com, gitlab.com and the like" if table is None else "in providers.yaml"
    detail = f"its issuer {show_value(issuer)} is not {where}: name the provider in providers.yaml first"
    raise FormatError(Code.POLICY_NEW, detail, "/iss")


def _stood_for(issuer: str) -> str:
    """Return for which provider an issuer of `issuer dev` stands in; "" for any other issuer."""
    url = urlsplit(issuer)
    return url.path.strip("/") if url.scheme == "http" and url.hostname == LOOPBACK else ""


class NewPolicy(Struct, frozen=True):
    """A policy that was made: its text, and by what it knows the caller."""

    text: str
    pins: Mapping[str, str]
    names: Mapping[str, str]


def make_policy(wish: Wish, provider: Whose, token_claims: Mapping[str, JSON]) -> NewPolicy:
    """Write the policy under which the job that has this token may ask, and as few others as can be.

    Raises FormatError (`policy.new`) for a token that lacks what must be pinned, or whose job nobody should trust.
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
        f"integration: {wish.integration}",
        "mode: active",
        f"contacts: [{quoted(wish.contact)}]",
        "",
        "identities:",
        "  - id: main",
        f"    provider: {provider.id}",
        *_map("pins", pins),
        *(_map("names", names) if names else ()),
        *(_map("require", required) if required else ()),
        "",
        "grants:",
        f"  frameworks: [{{name: {quoted(wish.framework)}}}]",
        f"  benchmarks: [{', '.join(map(quoted, wish.benchmarks))}]",
        '  models: ["*/*"]',
        '  tasks: ["*"]',
        '  metrics: ["*", "*@*"]',
        "",
        "token:",
        '  audiences: ["https://huggingface.co"]',
        "",
        "tests:",
        *_tests(wish, provider, claims, read, required),
    ]
    return NewPolicy("\n".join(lines) + "\n", pins, names)


# -- what is read of the token -----------------------------------------------------------------------------------------


def _demand_trusted(provider: Whose, claims: Mapping[str, JSON]) -> None:
    """Refuse the token of a job that strangers can start, or whose branch anybody may push to."""
    event = provider.rules.event_claim
    if event is not None and claims.get(event) not in provider.events:
        detail = f"its {event} is {show_value(claims.get(event))}, which strangers can cause: take a job of a push"
        raise FormatError(Code.POLICY_NEW, detail, pointer_to("", event))
    if provider.profile == "gitlab-ci" and claims.get("ref_protected") != "true":
        raise FormatError(Code.POLICY_NEW, "its branch is not protected: protect it in GitLab", "/ref_protected")
    for name, value in provider.rules.demands.items():
        if claims.get(name) != value:
            detail = f"its {name} is {show_value(claims.get(name))}, and must be {show_value(value)}"
            raise FormatError(Code.POLICY_NEW, detail, pointer_to("", name))


def _required(provider: Whose, claims: Mapping[str, JSON]) -> Iterator[str]:
    """Name what the policy requires as this token says it."""
    rules = provider.rules
    if provider.profile in _BRANCH:
        yield _BRANCH[provider.profile]
    yield from (name for name in _ALSO.get(provider.profile, ()) if name in claims)
    yield from (name for name in rules.must_require if name not in _BRANCH.values())
    if rules.foreign is not None and _is_foreign(claims):
        yield rules.foreign.commit


def _read_anyway(rules: Profile, claims: Mapping[str, JSON]) -> Iterator[str]:
    """Name what is judged of every token of this kind, whatever a policy says."""
    if rules.event_claim is not None:
        yield rules.event_claim
    yield from (name for name, value in rules.demands.items() if value is not None)
    if rules.scope and _text(claims, "scope"):
        yield "scope"


def _is_foreign(claims: Mapping[str, JSON]) -> bool:
    """Say whether the job runs a workflow of another repository, which then needs its commit."""
    return not str(claims.get("job_workflow_ref", "")).startswith(f"{claims.get('repository')}/")


def _text(claims: Mapping[str, JSON], name: str) -> str:
    """Return a claim as text that can stand in a policy. Raises FormatError."""
    value = claims.get(name)
    if value is None:
        raise FormatError(Code.POLICY_NEW, f"it has no {name}, which the policy needs", pointer_to("", name))
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        detail = f"its {name} is {show_value(value)}: not text of at most {MAX_TEXT} printable characters"
        raise FormatError(Code.POLICY_NEW, detail, pointer_to("", name))
    return value


# -- what is written ---------------------------------------------------------------------------------------------------


def _map(name: str, values: Mapping[str, str]) -> list[str]:
    return [f"    {name}:", *(f"      {_key(key)}: {quoted(value)}" for key, value in values.items())]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else quoted(name)


def _tests(
    wish: Wish, provider: Whose, claims: Mapping[str, JSON], read: Sequence[str], required: Mapping[str, str]
) -> Iterator[str]:
    """Write the granted test, of this very job, and one for each way to be another one."""
    granted = "this job"
    yield from (
        f"  - name: {granted}",
        "    expect: granted",
        f"    provider: {provider.id}",
        "    identity:",
        *(f"      {_key(name)}: {_flow(value)}" for name, value in _in_a_token(provider.rules, claims, read).items()),
        "    run:",
        f"      framework: {{name: {quoted(wish.framework)}, version: {quoted('1.0')}}}",
        f"      benchmark_repo: {quoted(wish.benchmarks[0].replace('*', 'x'))}",
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
        ("another framework", "policy.framework", "run", {"framework": {"name": f"{wish.framework}-2"}}),
    ]
    if not Globs(wish.benchmarks).match(_ELSE):
        others.append(("another benchmark", "policy.benchmark", "run", {"benchmark_repo": _ELSE}))
    for name, expected, part, changed in others:
        yield f"  - name: {name}"
        yield f"    claims_from: {granted}"
        yield f"    override: {{{part}: {_flow(changed)}}}"
        yield f"    expect: {expected}"


def _in_a_token(rules: Profile, claims: Mapping[str, JSON], names: Sequence[str]) -> dict[str, JSON]:
    """Return claims as a token has them: those that are derived at their place inside of others."""
    found: dict[str, Any] = {}
    for name in names:
        how = rules.derived.get(name)
        *outer, last = (name,) if how is None else how.path
        inside = found
        for member in outer:
            inside = inside.setdefault(member, {})
        inside[last] = claims[name]
    return found


def _other(value: str) -> str:
    changed = value.translate(_OTHER_DIGIT)
    return changed if changed != value else f"{value}-2"


def _flow(value: JSON) -> str:
    """Write a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)}: {_flow(item)}" for name, item in value.items()) + "}"
    return quoted(value) if isinstance(value, str) else "true" if value else "false"
