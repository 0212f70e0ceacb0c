"""Lint of a registered identity: an error keeps the policy from loading, a warning says what looks wrong. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.formats.findings import Findings
from issuer.formats.strict_json import pointer_to
from issuer.formats.strict_yaml import Document
from issuer.identity.profiles import Profile
from issuer.identity.table import Provider
from issuer.limits.abuse import SPREADS, THENS, Throttle
from issuer.limits.rate import Limits, Rate
from issuer.policy import patterns
from issuer.policy.model import Grants, Identity, Policy
from issuer.policy.patterns import glob_matches
from issuer.policy.registration import has_expired, names_commit
from issuer.policy.requirement import Matcher, Requirement, exact_values

_KINDS = ("any_of", "glob", "regex", "contains_all", "absent")
_ONE_KIND = "give exactly one of " + ", ".join(f"`{kind}`" for kind in _KINDS)


class _IdentityEntry(Struct, frozen=True):
    """An identity at its place in a file, and where its findings go. Parts are pointers from the identity on."""

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
        """Return the pointer to where a claim is pinned or required."""
        return pointer_to("/pins" if name in self.identity.pins else "/require", name)

    def requirements(self) -> Iterator[tuple[str, Requirement]]:
        """Yield each claim and its rule, of pins and requirements alike."""
        yield from self.identity.pins.items()
        yield from self.identity.require.items()


def lint_identity(
    findings: Findings, document: Document, at: str, identity: Identity, provider: Provider, now: int
) -> None:
    """Record every rule that an identity breaks under its provider's profile, and every doubt.

    `at` points at the identity. `now`, in Unix seconds, is for the warning that it has expired.
    """
    entry = _IdentityEntry(findings, document, at, identity, provider)
    _check_what_must_be_there(entry)
    for name, _ in entry.requirements():
        _check_name(entry, name)
    for name in identity.names:
        known = name in provider.rules.names
        entry.demand(pointer_to("/names", name), known, f"not a name claim of {provider.profile}")
    for name, requirement in identity.require.items():
        _check_requirement(entry, name, requirement)
    _check_foreign(entry)
    if identity.expires is not UNSET:
        entry.demand("/expires", is_date(identity.expires), "must be a date, as 2027-06-30")
    _doubt_names(entry)
    _doubt_expiry(entry, now)
    for name, requirement in entry.requirements():
        _doubt_pattern(entry, name, requirement)
        _doubt_case(entry, name, requirement)


def _check_what_must_be_there(entry: _IdentityEntry) -> None:
    identity, profile = entry.identity, entry.provider.profile
    for pin in entry.rules.pins:
        entry.demand("/pins", pin in identity.pins, f"{profile} identities must pin {pin}")
    for name, why in entry.rules.must_require.items():
        rule = f"{profile} identities must require {name}, for {why}; `{{absent: true}}` where tokens have none"
        entry.demand("", name in identity.require or name in identity.pins, rule)
    _check_narrowed(entry)


def _check_narrowed(entry: _IdentityEntry) -> None:
    """Demand that one way to narrow is taken, or that `any_ref` says why none is."""
    identity, ways, profile = entry.identity, entry.rules.narrowed_by, entry.provider.profile
    narrowed = any(all(_narrows(entry, claim, value) for claim, value in way.items()) for way in ways)
    reasoned = (identity.any_ref is UNSET) == (identity.reason is UNSET)
    entry.demand("/any_ref" if identity.reason is UNSET else "/reason", reasoned, _REASONED)
    if identity.any_ref is UNSET:
        rule = (
            f"{profile} identities must say which ref, environment or workflow may ask, for whoever may push a branch "
            f"has tokens with these pins: require {_describe(ways)}; where any may, `any_ref: true` with a `reason`"
        )
        entry.demand("/require", narrowed or not ways, rule)
    else:
        entry.demand("/any_ref", ways, f"{profile} identities need no `any_ref`: leave it out")


_REASONED = "`any_ref` needs a `reason` why any ref may ask, and it alone"


def _narrows(entry: _IdentityEntry, claim: str, value: str | None) -> bool:
    """Say whether a claim is demanded, of that value if there is one; neither absent nor by a glob of every branch."""
    rule = entry.identity.pins.get(claim, entry.identity.require.get(claim))
    if rule is None:
        return False
    if exact := exact_values(rule):
        return exact == (value,) if value is not None else None not in exact
    glob = rule.glob if isinstance(rule, Matcher) else UNSET
    return value is None and (glob is UNSET or not _EVERY_BRANCH.fullmatch(glob))


_EVERY_BRANCH = re.compile(r"\*+|.*refs/heads/\*+")


def _describe(ways: tuple[Mapping[str, str | None], ...]) -> str:
    shown = [[f"`{name}`" if v is None else f'`{name}: "{v}"`' for name, v in way.items()] for way in ways]
    return "one of " + ", ".join(" with ".join(claims) for claims in shown)


def _check_name(entry: _IdentityEntry, name: str) -> None:
    """Demand a claim that may be matched, once."""
    rules, profile, part = entry.rules, entry.provider.profile, entry.part_of(name)
    entry.demand(part, name not in rules.names, f"{name} is a name and can be taken over: put it under `names`")
    why = f"{name} is never matched for {profile}: {rules.never.get(name)}"
    entry.demand(part, name not in rules.never, why)
    known = rules.matchable is None or name in {*rules.matchable, *rules.pins, *rules.names, *rules.never}
    entry.demand(part, known, f"{profile} tokens have no claim of this name to match")
    twice = name in entry.identity.pins and name in entry.identity.require
    entry.demand(part, not twice, f"{name} is both pinned and required: keep one")


def _check_requirement(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    part = pointer_to("/require", name)
    rules = entry.rules
    # A pattern would admit events that strangers can cause, and that no one has named.
    listed = name != rules.event_claim or any(value is not None for value in exact_values(requirement))
    entry.demand(part, listed, f"name each {name}: an exact value or `any_of`")
    if not isinstance(requirement, Matcher):
        return
    loose = requirement.glob is not UNSET or requirement.regex is not UNSET
    kept = not loose or name not in {*rules.must_require, *rules.demands}
    entry.demand(part, kept, f"no pattern for {name}: it keeps strangers out; name what it may be")
    given = [kind for kind in _KINDS if getattr(requirement, kind) is not UNSET]
    entry.demand(part, len(given) == 1, _ONE_KIND)
    reasoned = (requirement.regex is UNSET) == (requirement.reason is UNSET)
    entry.demand(part, reasoned, "`regex` needs a `reason` why nothing simpler will do, and it alone")
    if requirement.regex is not UNSET:
        fault = patterns.find_fault(requirement.regex)
        entry.demand(f"{part}/regex", not fault, fault)
    for index, word in enumerate(() if requirement.contains_all is UNSET else requirement.contains_all):
        entry.demand(f"{part}/contains_all/{index}", " " not in word, "one word each: a space parts the claim's words")


def _check_foreign(entry: _IdentityEntry) -> None:
    """Demand the commit of borrowed code that may come from another repository; tokens are checked for it again."""
    foreign = entry.rules.foreign
    if foreign is None or names_commit(entry.identity, foreign.commit):
        return
    home = entry.identity.names.get(foreign.home)
    whose = f"may be another repository's code than `names.{foreign.home}`, whose owner moves its branches and tags"
    for name, requirement in entry.requirements():
        for text in _texts(requirement) if name in foreign.claims else ():
            inside = home is not None and text.partition("*")[0].startswith(f"{home}/")
            entry.demand(entry.part_of(name), inside, f"{whose}: require an exact {foreign.commit}, too")


def _texts(requirement: Requirement) -> Iterator[str]:
    """Yield the texts that a requirement allows: a glob as it is, "" for a rule that leaves their beginning open."""
    if isinstance(requirement, str):
        yield requirement
    elif isinstance(requirement, Matcher) and requirement.absent is UNSET:
        yield from (str(value) for value in exact_values(requirement))
        if requirement.any_of is UNSET:
            yield requirement.glob if requirement.glob is not UNSET else ""


def is_date(text: str) -> bool:
    """Say whether a text is a date of the calendar, as 2027-06-30."""
    try:
        return bool(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) and datetime.fromisoformat(text))
    except ValueError:
        return False


# -- doubts -----------------------------------------------------------------------------------------------------------


def _doubt_names(entry: _IdentityEntry) -> None:
    identity = entry.identity
    for name, pin in entry.rules.names.items():
        if name in identity.names and pin not in identity.pins:
            detail = f"{name} only warns, and {pin} is not pinned: anyone may take the name over"
            entry.warn(pointer_to("/names", name), Code.LINT_NAME_UNPINNED, detail)
        if name not in identity.names and pin in identity.pins:
            detail = f"nobody can tell what {pin} is: give its {name} under `names`, which also shows a renaming"
            entry.warn(pointer_to("/pins", pin), Code.LINT_PIN_UNNAMED, detail)


def _doubt_expiry(entry: _IdentityEntry, now: int) -> None:
    expires = entry.identity.expires
    if expires is not UNSET and is_date(expires) and has_expired(entry.identity, now):
        entry.warn("/expires", Code.LINT_IDENTITY_EXPIRED, "refused since that day: renew it or take it away")


def _doubt_pattern(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    if not isinstance(requirement, Matcher):
        return
    if requirement.glob is not UNSET and not requirement.glob.strip("*"):
        detail = "met by every text without `/`, `@` and `:`, and by the empty one: say what it may be"
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_ANY, detail)
    pattern = requirement.regex
    if pattern is not UNSET and not patterns.find_fault(pattern) and patterns.matches(pattern, ""):
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_EMPTY, "met by the empty text: is that meant?")


def _doubt_case(entry: _IdentityEntry, name: str, requirement: Requirement) -> None:
    for text in _texts(requirement):
        if name in entry.rules.lowercase and text != text.lower():
            entry.warn(entry.part_of(name), Code.LINT_CASE, f"{name} never has a capital letter: this is never met")
        for twin, spelled in entry.identity.names.items():
            whole, part = f"/{text}/", f"/{spelled}/"
            if part.lower() in whole.lower() and part not in whole:
                detail = f"not spelled as `names.{twin}`: values are compared byte for byte"
                entry.warn(entry.part_of(name), Code.LINT_CASE, detail)


# -- lint abuse --------------------------------------------------------------------------------------------------------

# Rules of `abuse` that can never say anything, or say it of everybody. Pure.
#
# Only what the file itself says is warned of: a default that a narrow policy never meets does no harm.

_DAY_US = 86_400_000_000
_RULES = ("attempts", "artifact", "spread")  # twins are never more than observed


def lint_abuse(findings: Findings, document: Document, policy: Policy) -> None:
    """Warn of rules without an effect (`lint.no_effect`), at the member that is written."""
    entry = _AbuseEntry(findings, document, policy)
    for name in SPREADS:
        if why := entry.written(f"/abuse/spread/{name}") and _why_never(policy, name):
            entry.warn(f"/abuse/spread/{name}", why)
    _doubt_artifact(entry)
    _doubt_throttle(entry)
    if entry.written("/abuse/quarantine_s") and not entry.rules_that("quarantine"):
        entry.warn("/abuse/quarantine_s", "no rule says `then: quarantine`")
    _doubt_ignored(entry)


class _AbuseEntry(Struct, frozen=True):
    findings: Findings
    document: Document
    policy: Policy

    def written(self, pointer: str) -> bool:
        """Say whether the file has this member; the others have their defaults."""
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


# -- spread -----------------------------------------------------------------------------------------------------------


def _why_never(policy: Policy, name: str) -> str:
    """Say why a limit of `spread` is never crossed before another one is, "" where it may be."""
    value, most = getattr(policy.abuse.spread, name), _most_tokens(policy.limits)
    if value >= most:
        return f"`limits` let at most {most} tokens through in a day: more than {value} are never counted"
    owners = _owners(policy.grants)
    if name.startswith("owners") and owners and value >= len(owners):
        return f"the grants name no more than {len(owners)} model owners: more than {value} are never counted"
    for other in _sooner(name):
        if value > (limit := getattr(policy.abuse.spread, other)):
            return f"`{other}` is {limit}, and is always crossed before"
    return ""


def _most_tokens(limits: Limits) -> int:
    return min(_most_in_a_day(limits.identity), _most_in_a_day(limits.integration))


def _most_in_a_day(rate: Rate) -> int:
    return rate.burst + _DAY_US // rate.interval_us


def _owners(grants: Grants) -> set[str]:
    """Return the model owners that the grants name; empty where they name any."""
    owners = {glob.partition("/")[0].lower() for glob in grants.models}
    return set() if any("*" in owner for owner in owners) else owners


def _sooner(name: str) -> Iterator[str]:
    """Yield the limits whose count is never below that of `name`: of the day that a run is in, of an owner's tokens."""
    what, _, when = name.partition("_a_")
    if when == "run":
        yield f"{what}_a_day"
    if what == "owners":
        yield f"tokens_a_{when}"


# -- what follows -----------------------------------------------------------------------------------------------------


def _doubt_artifact(entry: _AbuseEntry) -> None:
    attempts, artifact = entry.policy.abuse.attempts, entry.policy.abuse.artifact
    later = artifact.distinct >= attempts.distinct and THENS.index(artifact.then) <= THENS.index(attempts.then)
    if later and entry.written("/abuse/artifact/distinct"):
        why = f"`attempts.distinct` is {attempts.distinct}, and says as much before: it counts every file together"
        entry.warn("/abuse/artifact/distinct", why)


def _doubt_throttle(entry: _AbuseEntry) -> None:
    at = "/abuse/throttle"
    rules, throttle, identity = entry.rules_that("throttle"), entry.policy.abuse.throttle, entry.policy.limits.identity
    if entry.written(at) and not rules:
        entry.warn(at, "no rule says `then: throttle`")
    elif rules and not _slows(throttle, identity):
        place = at if entry.written(at) else f"/abuse/{rules[0]}/then"
        rate = f"{throttle.count} per {throttle.per_s} s, burst {throttle.burst}"
        entry.warn(place, f"the throttle ({rate}) is no slower than `limits.identity`: it slows nobody")


def _slows(throttle: Throttle, identity: Rate) -> bool:
    slower = throttle.count * identity.per_s < identity.count * throttle.per_s
    return slower or throttle.burst < identity.burst


def _doubt_ignored(entry: _AbuseEntry) -> None:
    """Where no metric is left all count, and those of the machine differ in every run."""
    grants, ignore = entry.policy.grants, entry.policy.abuse.attempts.ignore
    metrics = [grant if isinstance(grant, str) else grant.id for grant in grants.metrics]
    covered = all(any(glob_matches(glob, metric) for glob in ignore) for metric in metrics)
    if covered and not grants.registered_only:  # else the benchmark says what counts
        at = "/abuse/attempts/ignore"
        rule = "`abuse.attempts.ignore` matches every granted metric: where none is left, all of them count"
        entry.warn(at if entry.written(at) else "/grants/metrics", rule)
