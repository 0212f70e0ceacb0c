"""One rule's outcome, and how values are shown in it. Pure."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec import UNSET, Struct

from issuer.errors import Code
from issuer.policy.model import Disclosable, Matcher, Requirement
from issuer.results.secret import secret_in


class Check(Struct, frozen=True, gc=False):
    """One rule's outcome, with everything that an operator may see; what a caller may is `issuer.policy.disclose`.

    `pointer` leads into the request body ("" for what the identity token says), `rule` into the policy file. `topic`
    is what `disclose` must name for a caller to see `expected`; None where there is nothing to hide.
    """

    code: Code
    pointer: str
    rule: str
    passed: bool
    actual: str
    expected: str = ""
    topic: Disclosable | None = None


def shown(value: object) -> str:
    """Show a claim's value to the caller whose claim it is, shortened."""
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else written(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def misnamed(name: str) -> str:
    """Show what a request calls something wrongly, shortened; a credential that was put there by mistake is not shown.

    The answer goes to the caller, whose job prints it into a log that others read.
    """
    return "what looks like a credential" if secret_in(name) else shown(name)


def written(value: object) -> str:
    """Write a value so that the number 1 and the text "1", which never match, do not look alike."""
    if isinstance(value, str):
        return value
    kind = "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "structure"
    return f"the {kind} {msgspec.json.encode(value).decode()}"


# Once a list, not once a request: a caller that sends ever new names must not have each kept with a long list.
@lru_cache(maxsize=4096)
def listed(said: str, names: tuple[str, ...]) -> str:
    """Say a list of a policy or provider, as `one of a, b`."""
    return said + ", ".join(names)


def said(rule: Requirement) -> str:
    """Say what a requirement demands."""
    if not isinstance(rule, Matcher):
        return written(rule)
    if rule.any_of is not UNSET:
        return "one of " + ", ".join(written(value) for value in rule.any_of)
    if rule.contains_all is not UNSET:
        return "the words " + ", ".join(rule.contains_all)
    if rule.regex is not UNSET:
        return f"the expression {rule.regex}"
    return "no such claim" if rule.absent is not UNSET else f"the form {rule.glob}"
