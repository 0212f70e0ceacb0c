"""One rule's outcome, in words that are made when somebody reads them. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from issuer.codes import Code
from issuer.formats.display import show_value
from issuer.results.secret import secret_in

# What a policy may disclose of its expected values.
Disclosable = Literal["identity", "frameworks", "benchmarks", "models", "tasks", "metrics"]


class Rule(Struct, frozen=True, gc=False):
    """What a check asks, put into words once for each policy.

    `place` leads into the policy file. `says` is what a caller did, with `{}` for each value that was read. `expected`
    is what would have passed, or the words before a list of that (`Check.wanted`). `topic` is what `disclose` must name
    for a caller to see it; None where nothing is hidden. `remedy` is the next step, where it is another than the
    code's own. `reads` are the caller's claims that the outcome depends on.
    """

    code: Code
    place: str
    says: str
    expected: str = ""
    topic: Disclosable | None = None
    remedy: str = ""
    reads: tuple[str, ...] = ()


class Check(Struct, frozen=True, gc=False):
    """One rule's outcome, with everything that an operator may see; `issuer.policy.disclose` reduces it for callers.

    `values` are what was read, `pointer` is their place in the request body ("" for the identity token's claims);
    `wanted` is the policy's list of what passes, or of what does not. Most checks pass and are never shown, so their
    words are made only on demand.
    """

    of: Rule
    passed: bool
    values: tuple[object, ...] = ()
    pointer: str = ""
    wanted: tuple[str, ...] = ()

    def at(self, place: str) -> Check:
        """Return the check as one of a rule at another place."""
        return msgspec.structs.replace(self, of=msgspec.structs.replace(self.of, place=place))

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
        """What was read, in words."""
        return self.of.says.format(*map(show_value, self.values))

    @property
    def expected(self) -> str:
        """What would have passed, in words; may be ""."""
        return self.of.expected + ", ".join(self.wanted)

    @property
    def hint(self) -> str:
        """The next step, "" where the check passed."""
        return "" if self.passed else self.of.remedy or self.code.meaning.remedy

    @property
    def topic(self) -> Disclosable | None:
        """What a policy must disclose for a caller to see `expected`."""
        return self.of.topic


def make_check(code: Code, place: str, passed: bool, actual: str, expected: str = "") -> Check:
    """Make a check whose words are ready."""
    return Check(Rule(code, place, escape_braces(actual), expected), passed)


def escape_braces(text: str) -> str:
    """Escape a text that becomes part of `Rule.says`, so that its braces stay as they are."""
    return text.replace("{", "{{").replace("}", "}}")


def show_name(name: str) -> str:
    """Show a wrong name of a request's, shortened; never a credential that was put there by mistake.

    The answer goes to the caller, whose job prints it into a log that others read.
    """
    return "what looks like a credential" if secret_in(name) else show_value(name)
