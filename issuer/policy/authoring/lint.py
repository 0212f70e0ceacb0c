"""The lint of identities, rates and `abuse`: errors keep a policy from loading, warnings mark likely mistakes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.formats.findings import Findings
from issuer.formats.strict_json import pointer_to
from issuer.formats.strict_yaml import Document
from issuer.identity.profiles import Profile
from issuer.identity.table import Provider
from issuer.limits.abuse import SPREADS, THENS
from issuer.limits.rate import Ceilings
from issuer.policy import patterns
from issuer.policy.model import Grants, Identity, Matcher, Policy, Requirement, exact_values, meets
from issuer.policy.patterns import glob_matches
from issuer.policy.registration import has_expired, names_commit

_KINDS = ("any_of", "glob", "regex", "contains_all", "absent")
_ONE_KIND = "give exactly one of " + ", ".join(f"`{kind}`" for kind in _KINDS)


class _IdentityEntry(Struct, frozen=True):
    """An identity at its place in a file, with the list for its findings. Parts are pointers below the identity."""

    findings: Findings
    document: Document
    at: str
    identity: Identity
    provider: Provider

    @property
    def rules(self) -> Profile:
        return self.provider.rules

    def demand(self, part: str, condition: object, rule: str) -> None:
        self.findings.demand(self.document, self.at + part, condition, rule)

    def warn(self, part: str, code: Code, detail: str) -> None:
        self.findings.warn(self.document, self.at + part, code, detail)

    def part_of(self, name: str) -> str:
        """Return the pointer to a pinned or required claim."""
        return pointer_to("/pins" if name in self.identity.pins else "/require", name)

    def requirements(self) -> Iterator[tuple[str, Requirement]]:
        """Yield each claim with its rule, from pins and requirements."""
        yield from self.identity.pins.items()
        yield from self.identity.require.items()


def lint_identity(
    findings: Findings, document: Document, at: str, identity: Identity, provider: Provider, now: int
) -> None:
    """Record every rule that an identity breaks under its provider's profile, and every warning.

    `at` is the pointer to the identity. `now` (Unix seconds) decides whether it has expired.
    """
    entry = _IdentityEntry(findings, document, at, identity, provider)
    _check_required_claims(entry)
    for name, _ in entry.requirements():
        _check_name(entry, name)
    for name in identity.names:
        known = name in provider.rules.names
        entry.demand(pointer_to("/names", name), known, f"not a name claim of {provider.profile}")
    for name, requirement in identity.require.items():
        _check_requirement(entry, name, requirement)
    _check_foreign(entry)
    if identity.expires is not UNSET:
        good = is_date(identity.expires)
        entry.demand("/expires", good, "must be a date such as 2027-06-30")
        if good and has_expired(identity, now):
            entry.warn("/expires", Code.LINT_IDENTITY_EXPIRED, "refused since that day: renew or remove it")
    _warn_of_names(entry)
    for name, requirement in entry.requirements():
        _warn_of_pattern(entry, name, requirement)
        _warn_of_case(entry, name, requirement)


def _check_required_claims(entry: _IdentityEntry) -> None:
    identity, profile = entry.identity, entry.provider.profile
    for pin in entry.rules.pins:
        entry.demand("/pins", pin in identity.pins, f"{profile} identities must pin {pin}")
    for name, why in entry.rules.must_require.items():
        rule = f"{profile} identities must require {name}, because {why}; write `{{absent: true}}` if tokens lack it"
        entry.demand("", name in identity.require or name in identity.pins, rule)
    _check_narrowed(entry)


def _check_narrowed(entry: _IdentityEntry) -> None:
    """Demand a requirement on the ref or workflow, or `any_ref` with a reason."""
    identity, ways, profile = entry.identity, entry.rules.narrowed_by, entry.provider.profile
    narrowed = any(all(_narrows(entry, claim, value) for claim, value in way.items()) for way in ways)
    reasoned = (identity.any_ref is UNSET) == (identity.reason is UNSET)
    entry.demand("/any_ref" if identity.reason is UNSET else "/reason", reasoned, _REASONED)
    if identity.any_ref is UNSET:
        rule = (
            f"{profile} identities must say which ref or workflow may ask, because anyone who may push a "
            f"branch gets tokens with these pins: require {_describe(ways)}, by exact values or a glob that admits no "
            "other branch, or write `any_ref: true` with a `reason`"
        )
        entry.demand("/require", narrowed or not ways, rule)
    else:
        entry.demand("/any_ref", ways, f"{profile} identities do not need `any_ref`: remove it")


_REASONED = "`any_ref` and `reason` go together: say why any ref may ask"


def _narrows(entry: _IdentityEntry, claim: str, value: str | None) -> bool:
    """Return whether the identity demands a claim, with `value` if given. A pattern that admits a made-up ref or commit
    does not count, nor do words or absence."""
    rule = entry.identity.pins.get(claim, entry.identity.require.get(claim))
    if rule is None:
        return False
    if exact := exact_values(rule):
        return exact == (value,) if value is not None else None not in exact
    if value is not None or not isinstance(rule, Matcher):
        return False
    if not claim.endswith("workflow_ref"):
        return _excludes(rule, _made_up(claim))
    # `path@ref`. The star of a glob crosses no `@`. A dot of an expression does: for a branch `x@refs/heads/main`.
    ref = "" if rule.glob is UNSET else rule.glob.partition("@")[2]
    return ref != "" and _excludes(Matcher(glob=ref), _made_up("ref"))


def _excludes(rule: Matcher, texts: Iterable[str]) -> bool:
    """Return whether a sound glob or expression matches none of these texts."""
    if rule.regex is not UNSET and patterns.find_fault(rule.regex):
        return False
    is_pattern = rule.glob is not UNSET or rule.regex is not UNSET
    return is_pattern and not any(meets(text, rule) for text in texts)


# Everyone who may push can make such branches and tags, and commits that begin with any digit.
_NAMES = ("zq", "zq-7.1_zq", "zq/zq", "zq/zq/zq", "ZQ", "7", "71zq")


def _made_up(claim: str) -> list[str]:
    """Return values of a claim that a person who may push can cause: commits, branches, tags and pull requests."""
    if claim.endswith("sha"):
        return [digit + "0123456789abcdef" * 2 + "0123456" for digit in "0123456789abcdef"]
    # GitLab's `ref_path` only counts with a protected ref, and tags may be protected by a pattern.
    kinds = ("heads",) if claim == "ref_path" else ("heads", "tags")
    requests = ["refs/pull/71/merge", "refs/merge-requests/71/head"]
    return [*_NAMES, *requests, *(f"refs/{kind}/{name}" for kind in kinds for name in _NAMES)]


def _describe(ways: tuple[Mapping[str, str | None], ...]) -> str:
    shown = [[f"`{name}`" if v is None else f'`{name}: "{v}"`' for name, v in way.items()] for way in ways]
    return "one of " + ", ".join(" with ".join(claims) for claims in shown)


def _check_name(entry: _IdentityEntry, name: str) -> None:
    """Demand a claim that the profile lets policies match, pinned or required but not both."""
    rules, profile, part = entry.rules, entry.provider.profile, entry.part_of(name)
    entry.demand(part, name not in rules.names, f"{name} is a name, which can be taken over: put it under `names`")
    why = f"{name} is never matched for {profile}: {rules.never.get(name)}"
    entry.demand(part, name not in rules.never, why)
    known = rules.matchable is None or name in {*rules.matchable, *rules.pins, *rules.names, *rules.never}
    entry.demand(part, known, f"{profile} tokens have no claim of this name that a policy can match")
    twice = name in entry.identity.pins and name in entry.identity.require
    entry.demand(part, not twice, f"{name} is both pinned and required: keep one")


def _check_requirement(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    part = pointer_to("/require", name)
    rules = entry.rules
    # A pattern would admit events that strangers can cause and that the author did not list.
    listed = name != rules.event_claim or any(value is not None for value in exact_values(requirement))
    entry.demand(part, listed, f"list each {name}: an exact value or `any_of`")
    if not isinstance(requirement, Matcher):
        return
    loose = requirement.glob is not UNSET or requirement.regex is not UNSET
    kept = not loose or name not in {*rules.must_require, *rules.demands}
    entry.demand(part, kept, f"{name} keeps strangers out, so a pattern is refused: list its exact values")
    given = [kind for kind in _KINDS if getattr(requirement, kind) is not UNSET]
    entry.demand(part, len(given) == 1, _ONE_KIND)
    reasoned = (requirement.regex is UNSET) == (requirement.reason is UNSET)
    entry.demand(part, reasoned, "`regex` and `reason` go together: say why nothing simpler will do")
    if requirement.regex is not UNSET:
        fault = patterns.find_fault(requirement.regex)
        entry.demand(f"{part}/regex", not fault, fault)
    for index, word in enumerate(() if requirement.contains_all is UNSET else requirement.contains_all):
        entry.demand(f"{part}/contains_all/{index}", " " not in word, "must be one word: spaces separate words")


def _check_foreign(entry: _IdentityEntry) -> None:
    """Demand the commit of a workflow that may come from another repository. Each token is checked for it again."""
    foreign = entry.rules.foreign
    if foreign is None or names_commit(entry.identity, foreign.commit):
        return
    home = entry.identity.names.get(foreign.home)
    why = f"may be code of a repository other than `names.{foreign.home}`, whose owner can move its branches and tags"
    for name, requirement in entry.requirements():
        for text in _texts(requirement) if name in foreign.claims else ():
            inside = home is not None and text.partition("*")[0].startswith(f"{home}/")
            entry.demand(entry.part_of(name), inside, f"{why}: also require an exact {foreign.commit}")


def _texts(requirement: Requirement) -> Iterator[str]:
    """Yield the texts that a requirement allows: a glob unexpanded, "" for a rule that allows any beginning."""
    if isinstance(requirement, str):
        yield requirement
    elif isinstance(requirement, Matcher) and requirement.absent is UNSET:
        yield from (str(value) for value in exact_values(requirement))
        if requirement.any_of is UNSET:
            yield requirement.glob if requirement.glob is not UNSET else ""


def is_date(text: str) -> bool:
    """Return whether a text is a calendar date such as 2027-06-30."""
    try:
        return bool(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) and datetime.fromisoformat(text))
    except ValueError:
        return False


# -- warnings ---------------------------------------------------------------------------------------------------------


def _warn_of_names(entry: _IdentityEntry) -> None:
    identity = entry.identity
    for name, pin in entry.rules.names.items():
        if name in identity.names and pin not in identity.pins:
            detail = f"{name} only warns, and {pin} is not pinned: anyone may take over the name"
            entry.warn(pointer_to("/names", name), Code.LINT_NAME_UNPINNED, detail)
        if name not in identity.names and pin in identity.pins:
            detail = f"people cannot tell what {pin} is: give its {name} under `names`, which also shows a renaming"
            entry.warn(pointer_to("/pins", pin), Code.LINT_PIN_UNNAMED, detail)


def _warn_of_pattern(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    if not isinstance(requirement, Matcher):
        return
    if requirement.glob is not UNSET and not requirement.glob.strip("*"):
        detail = "matches every text without `/`, `@` and `:`, even the empty one: be more specific"
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_ANY, detail)
    pattern = requirement.regex
    if pattern is not UNSET and not patterns.find_fault(pattern) and patterns.matches(pattern, ""):
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_EMPTY, "matches the empty text: is that intended?")


def _warn_of_case(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    for text in _texts(requirement):
        if name in entry.rules.lowercase and text != text.lower():
            entry.warn(entry.part_of(name), Code.LINT_CASE, f"{name} never has a capital letter, so this never matches")
        for twin, spelled in entry.identity.names.items():
            whole, part = f"/{text}/", f"/{spelled}/"
            if part.lower() in whole.lower() and part not in whole:
                detail = f"spelled differently from `names.{twin}`: values are compared byte for byte"
                entry.warn(entry.part_of(name), Code.LINT_CASE, detail)


# -- the operator's ceilings ------------------------------------------------------------------------------------------


def lint_ceilings(findings: Findings, document: Document, policy: Policy, ceilings: Ceilings) -> None:
    """Record each rate, and the life of a token, that is above the operator's ceilings. Defaults count, too."""
    limits, life = policy.limits, policy.token.ttl_s
    rates = {"identity": limits.identity, "integration": limits.integration, "refusals": limits.refusals}
    for name, rate in rates.items():
        findings.demand(document, f"/limits/{name}", not (why := ceilings.excess(rate)), why)
    rule = f"{life} s: more than the operator's `ceilings.ttl_s`, {ceilings.ttl_s}"
    findings.demand(document, "/token/ttl_s", life <= ceilings.ttl_s, rule)


# -- abuse -------------------------------------------------------------------------------------------------------------

# Warnings are only about members that the file writes: a default without an effect does no harm.

_DAY_US = 86_400_000_000
_RULES = ("attempts", "artifact", "spread")  # twins are only observed


def lint_abuse(findings: Findings, document: Document, policy: Policy) -> None:
    """Warn of `abuse` rules without an effect (`lint.no_effect`), at the member that the file writes."""
    entry = _AbuseEntry(findings, document, policy)
    for name in SPREADS:
        if why := entry.written(f"/abuse/spread/{name}") and _why_never(policy, name):
            entry.warn(f"/abuse/spread/{name}", why)
    _warn_of_artifact(entry)
    _warn_of_throttle(entry)
    if entry.written("/abuse/quarantine_s") and not entry.rules_that("quarantine"):
        entry.warn("/abuse/quarantine_s", "no rule says `then: quarantine`")
    _warn_of_ignored(entry)


class _AbuseEntry(Struct, frozen=True):
    findings: Findings
    document: Document
    policy: Policy

    def written(self, pointer: str) -> bool:
        """Return whether the file has this member. Absent members have their defaults."""
        value = self.document.value
        for name in pointer.split("/")[1:]:
            if not isinstance(value, dict) or name not in value:
                return False
            value = value[name]
        return True

    def rules_that(self, then: str) -> list[str]:
        return [name for name in _RULES if getattr(self.policy.abuse, name).then == then]

    def warn(self, pointer: str, detail: str) -> None:
        self.findings.warn(self.document, pointer, Code.LINT_NO_EFFECT, detail)


def _why_never(policy: Policy, name: str) -> str:
    """Return why a limit of `spread` is never the first to be crossed, "" if it may be."""
    value, rates = getattr(policy.abuse.spread, name), (policy.limits.identity, policy.limits.integration)
    most = min(rate.burst + _DAY_US // rate.interval_us for rate in rates)
    if value >= most:
        return f"`limits` allow at most {most} tokens in a day, so more than {value} are never counted"
    owners = _owners(policy.grants)
    if name.startswith("owners") and owners and value >= len(owners):
        return f"the grants name only {len(owners)} model owners, so more than {value} are never counted"
    for other in _sooner(name):
        if value > (limit := getattr(policy.abuse.spread, other)):
            return f"`{other}` is {limit}, and is always crossed first"
    return ""


def _owners(grants: Grants) -> set[str]:
    """Return the model owners that the grants name; empty if they allow any owner."""
    owners = {glob.partition("/")[0].lower() for glob in grants.models}
    return set() if any("*" in owner for owner in owners) else owners


def _sooner(name: str) -> Iterator[str]:
    """Yield limits whose counts are never below `name`'s: a day includes its runs, and each owner has a token."""
    what, _, when = name.partition("_a_")
    if when == "run":
        yield f"{what}_a_day"
    if what == "owners":
        yield f"tokens_a_{when}"


def _warn_of_artifact(entry: _AbuseEntry) -> None:
    attempts, artifact = entry.policy.abuse.attempts, entry.policy.abuse.artifact
    later = artifact.distinct >= attempts.distinct and THENS.index(artifact.then) <= THENS.index(attempts.then)
    if later and entry.written("/abuse/artifact/distinct"):
        why = f"`attempts.distinct` is {attempts.distinct} and is crossed first: it counts the sets of all files"
        entry.warn("/abuse/artifact/distinct", why)


def _warn_of_throttle(entry: _AbuseEntry) -> None:
    at = "/abuse/throttle"
    rules, throttle, identity = entry.rules_that("throttle"), entry.policy.abuse.throttle, entry.policy.limits.identity
    if entry.written(at) and not rules:
        entry.warn(at, "no rule says `then: throttle`")
    slower = throttle.count * identity.per_s < identity.count * throttle.per_s or throttle.burst < identity.burst
    if rules and not slower:
        place = at if entry.written(at) else f"/abuse/{rules[0]}/then"
        rate = f"{throttle.count} per {throttle.per_s} s, burst {throttle.burst}"
        entry.warn(place, f"the throttle ({rate}) is no slower than `limits.identity`, so it has no effect")


def _warn_of_ignored(entry: _AbuseEntry) -> None:
    """Warn if `ignore` leaves no metric: then all count, even timings of the machine, which differ in every run."""
    grants, ignore = entry.policy.grants, entry.policy.abuse.attempts.ignore
    metrics = [grant if isinstance(grant, str) else grant.id for grant in grants.metrics]
    covered = all(any(glob_matches(glob, metric) for glob in ignore) for metric in metrics)
    if covered and not grants.registered_only:  # else the benchmark says what counts
        at = "/abuse/attempts/ignore"
        rule = "`abuse.attempts.ignore` matches every granted metric: if no metric is left, all of them count"
        entry.warn(at if entry.written(at) else "/grants/metrics", rule)
