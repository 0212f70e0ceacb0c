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
from issuer.identity.provider import Provider
from issuer.policy import regex
from issuer.policy.check_identity import has_expired, names_commit
from issuer.policy.model import Identity
from issuer.policy.requirement import Matcher, Requirement, exact_values

_KINDS = ("any_of", "glob", "regex", "contains_all", "absent")
_ONE_KIND = "give exactly one of " + ", ".join(f"`{kind}`" for kind in _KINDS)


class _Entry(Struct, frozen=True):
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
    entry = _Entry(findings, document, at, identity, provider)
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


def _check_what_must_be_there(entry: _Entry) -> None:
    identity, profile = entry.identity, entry.provider.profile
    for pin in entry.rules.pins:
        entry.demand("/pins", pin in identity.pins, f"{profile} identities must pin {pin}")
    for name, why in entry.rules.must_require.items():
        rule = f"{profile} identities must require {name}, for {why}; `{{absent: true}}` where tokens have none"
        entry.demand("", name in identity.require or name in identity.pins, rule)
    _check_narrowed(entry)


def _check_narrowed(entry: _Entry) -> None:
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


def _narrows(entry: _Entry, claim: str, value: str | None) -> bool:
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


def _check_name(entry: _Entry, name: str) -> None:
    """Demand a claim that may be matched, once."""
    rules, profile, part = entry.rules, entry.provider.profile, entry.part_of(name)
    entry.demand(part, name not in rules.names, f"{name} is a name and can be taken over: put it under `names`")
    why = f"{name} is never matched for {profile}: {rules.never.get(name)}"
    entry.demand(part, name not in rules.never, why)
    known = rules.matchable is None or name in {*rules.matchable, *rules.pins, *rules.names, *rules.never}
    entry.demand(part, known, f"{profile} tokens have no claim of this name to match")
    twice = name in entry.identity.pins and name in entry.identity.require
    entry.demand(part, not twice, f"{name} is both pinned and required: keep one")


def _check_requirement(entry: _Entry, name: str, requirement: Requirement) -> None:
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
        fault = regex.find_fault(requirement.regex)
        entry.demand(f"{part}/regex", not fault, fault)
    for index, word in enumerate(() if requirement.contains_all is UNSET else requirement.contains_all):
        entry.demand(f"{part}/contains_all/{index}", " " not in word, "one word each: a space parts the claim's words")


def _check_foreign(entry: _Entry) -> None:
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


def _doubt_names(entry: _Entry) -> None:
    identity = entry.identity
    for name, pin in entry.rules.names.items():
        if name in identity.names and pin not in identity.pins:
            detail = f"{name} only warns, and {pin} is not pinned: anyone may take the name over"
            entry.warn(pointer_to("/names", name), Code.LINT_NAME_UNPINNED, detail)
        if name not in identity.names and pin in identity.pins:
            detail = f"nobody can tell what {pin} is: give its {name} under `names`, which also shows a renaming"
            entry.warn(pointer_to("/pins", pin), Code.LINT_PIN_UNNAMED, detail)


def _doubt_expiry(entry: _Entry, now: int) -> None:
    expires = entry.identity.expires
    if expires is not UNSET and is_date(expires) and has_expired(entry.identity, now):
        entry.warn("/expires", Code.LINT_IDENTITY_EXPIRED, "refused since that day: renew it or take it away")


def _doubt_pattern(entry: _Entry, name: str, requirement: Requirement) -> None:
    if not isinstance(requirement, Matcher):
        return
    if requirement.glob is not UNSET and not requirement.glob.strip("*"):
        detail = "met by every text without `/`, `@` and `:`, and by the empty one: say what it may be"
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_ANY, detail)
    pattern = requirement.regex
    if pattern is not UNSET and not regex.find_fault(pattern) and regex.matches(pattern, ""):
        entry.warn(entry.part_of(name), Code.LINT_PATTERN_EMPTY, "met by the empty text: is that meant?")


def _doubt_case(entry: _Entry, name: str, requirement: Requirement) -> None:
    for text in _texts(requirement):
        if name in entry.rules.lowercase and text != text.lower():
            entry.warn(entry.part_of(name), Code.LINT_CASE, f"{name} never has a capital letter: this is never met")
        for twin, spelled in entry.identity.names.items():
            whole, part = f"/{text}/", f"/{spelled}/"
            if part.lower() in whole.lower() and part not in whole:
                detail = f"not spelled as `names.{twin}`: values are compared byte for byte"
                entry.warn(entry.part_of(name), Code.LINT_CASE, detail)
