"""A requirement: what a policy asks of one claim of an identity token. Pure.

Values match exactly and type-strictly, globs by `issuer.policy.patterns`, expressions by `issuer.policy.patterns`. An
absent claim meets `absent` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.formats.display import show_typed
from issuer.formats.strict_json import JSON, Text
from issuer.policy import patterns
from issuer.policy.patterns import glob_matches


class Matcher(Struct, frozen=True, forbid_unknown_fields=True):
    """A requirement that is more than one exact value: exactly one of its members, and `reason` with `regex` alone.

    `contains_all` is for claims of space-separated words, as `scope`. `absent` is met by a claim that is not there.
    """

    any_of: Annotated[tuple[str | bool | int, ...], Meta(min_length=1)] | UnsetType = UNSET
    glob: Text | UnsetType = UNSET
    regex: Text | UnsetType = UNSET
    reason: Text | UnsetType = UNSET
    contains_all: Annotated[tuple[Text, ...], Meta(min_length=1)] | UnsetType = UNSET
    absent: Literal[True] | UnsetType = UNSET


Requirement = str | bool | int | Matcher


def is_met(claims: Mapping[str, JSON], name: str, rule: Requirement) -> bool:
    """Say whether the claim `name`, present or absent, meets its requirement."""
    if not isinstance(rule, Matcher):
        return equals(claims.get(name), rule)  # no requirement equals null
    if rule.absent is not UNSET:
        return name not in claims
    return name in claims and meets(claims[name], rule)


def equals(actual: JSON, expected: str | bool | int) -> bool:
    """Compare type-strictly: "1" is not 1, and True is not 1."""
    return type(actual) is type(expected) and actual == expected


def meets(actual: JSON, rule: Requirement) -> bool:
    """Say whether the value of a present claim meets a requirement. Only text meets a pattern."""
    if not isinstance(rule, Matcher):
        return equals(actual, rule)
    if rule.any_of is not UNSET:
        return any([equals(actual, value) for value in rule.any_of])  # noqa: C419 (a list is faster here)
    if not isinstance(actual, str):
        return False
    if rule.contains_all is not UNSET:
        # RFC 6749 section 3.3: words separated by spaces. Other white space is part of a word.
        return set(rule.contains_all) <= set(actual.split(" "))
    if rule.regex is not UNSET:
        return patterns.matches(rule.regex, actual)
    return rule.glob is not UNSET and glob_matches(rule.glob, actual)


def exact_values(rule: Requirement) -> tuple[str | bool | int | None, ...]:
    """Return the exact values that meet a requirement, None for an absent claim; () for a pattern."""
    if not isinstance(rule, Matcher):
        return (rule,)
    if rule.absent is not UNSET:
        return (None,)
    return tuple(rule.any_of) if rule.any_of is not UNSET else ()


def describe(rule: Requirement) -> str:
    """Describe what a requirement demands."""
    if not isinstance(rule, Matcher):
        return show_typed(rule)
    if rule.any_of is not UNSET:
        return "one of " + ", ".join(show_typed(value) for value in rule.any_of)
    if rule.contains_all is not UNSET:
        return "the words " + ", ".join(rule.contains_all)
    if rule.regex is not UNSET:
        return f"the expression {rule.regex}"
    return "no such claim" if rule.absent is not UNSET else f"the form {rule.glob}"
