"""The outcome of one rule, with the words that explain it. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from issuer.codes import Code
from issuer.formats.display import show_value
from issuer.results.secret import secret_in

# The rules whose expected values a policy may disclose.
Disclosable = Literal["identity", "frameworks", "benchmarks", "models", "tasks", "metrics"]


class Rule(Struct, frozen=True, gc=False):
    """The words of one rule, made once for each policy.

    `place` is the rule's place in the policy file. `says` states what the request has, with `{}` for each value of the
    check. `expected` states what passes, or is the text before the list `Check.wanted`. A caller sees `expected` if the
    policy discloses `topic`, or if `topic` is None. `remedy` replaces the remedy of the code. `reads` are the caller's
    claims that the outcome depends on.
    """

    code: Code
    place: str
    says: str
    expected: str = ""
    topic: Disclosable | None = None
    remedy: str = ""
    reads: tuple[str, ...] = ()


class Check(Struct, frozen=True, gc=False):
    """The outcome of one rule, with everything that an operator may see.

    `issuer.policy.disclose` reduces it for callers. `values` are the values that the rule read, and `pointer` is their
    place in the request body ("" for claims of the identity token). `wanted` is the policy's list of values that pass,
    or of denied ones. Most checks pass and are never shown, so the words are made on demand.
    """

    of: Rule
    passed: bool
    values: tuple[object, ...] = ()
    pointer: str = ""
    wanted: tuple[str, ...] = ()

    @property
    def code(self) -> Code:
        """The code of a refusal by this rule."""
        return self.of.code

    @property
    def rule(self) -> str:
        """The rule's place in the policy file."""
        return self.of.place

    @property
    def actual(self) -> str:
        """A statement of the values that the rule read."""
        return self.of.says.format(*map(show_value, self.values))

    @property
    def expected(self) -> str:
        """A statement of what passes; may be ""."""
        return self.of.expected + ", ".join(self.wanted)

    @property
    def hint(self) -> str:
        """The next step, "" if the check passed."""
        return "" if self.passed else self.of.remedy or self.code.meaning.remedy


def make_check(code: Code, place: str, passed: bool, actual: str, expected: str = "") -> Check:
    """Return a check with ready words."""
    return Check(Rule(code, place, escape_braces(actual), expected), passed)


def escape_braces(text: str) -> str:
    """Escape the braces of a text for `Rule.says`."""
    return text.replace("{", "{{").replace("}", "}}")


def show_name(name: str) -> str:
    """Return a wrong name from a request, shortened for display, without a credential that was put there by mistake.

    The caller's job prints the answer into a log that others read.
    """
    return "what looks like a credential" if secret_in(name) else show_value(name)
