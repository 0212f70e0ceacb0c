"""The error tree; `codes.py` has the registry of codes.

Sorted by who must act::

    IssuerError
    ├── Refused         the caller must act: 4xx, decided no (408 and 429: try again)
    ├── Undecided       nobody decided: 503, try again
    │   └── Charged     and its source pays for it as for a refusal
    ├── FormatError     bytes or a value are not what their format demands: their reader makes it one of the others
    │   └── Misfit      a member does not fit its type (formats/strict_json.py)
    ├── InputError      the file's author must act: it has a place (line, column, pointer)
    ├── VerificationError   what a server answered does not verify: nothing of it counts
    └── SetupError      the operator must act: a key, a setting or the store is not fit to start with

Standard library only. A message names the field, the rule and the next step; never a secret, a pattern or an
upstream body. Codes are never renamed, removed or given another meaning (contract section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from issuer.codes import Code


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where: a JSON pointer (RFC 6901) into the request body or file, "" for the whole."""

    code: Code
    pointer: str
    detail: str


class IssuerError(Exception):
    """The root of the tree. `code` is stable, `detail` is for people, `faults` says where. `compared` is what was given
    beside what is wanted, each under its label; `page` is where an issuer says more of the code. Both are set by who
    knows them."""

    compared: tuple[tuple[str, str], ...] = ()
    page: str = ""

    def __init__(self, code: Code, detail: str = "", faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(code, detail, faults)
        self.code = code
        self.detail = detail or code.meaning.title
        self.faults = faults

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class Refused(IssuerError):
    """Decided no. The caller must change the request: the same one will be refused again. `retry_after_s` is set where
    waiting is the remedy (429)."""

    def __init__(
        self, code: Code, detail: str = "", faults: tuple[Fault, ...] = (), *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(code, detail, faults)
        self.retry_after_s = retry_after_s
        self.warnings: tuple[str, ...] = ()

    def warned(self, *warnings: str) -> Self:
        """Say what the caller should know beside the refusal, and return the error itself."""
        self.warnings = warnings
        return self

    @classmethod
    def of(cls, faults: list[Fault] | tuple[Fault, ...]) -> Refused:
        """Refuse for several faults at once; the first one names the code."""
        return cls(faults[0].code, faults[0].detail, tuple(faults))

    @classmethod
    def at(cls, code: Code, pointer: str, detail: str = "") -> Refused:
        """Refuse for one fault at one place."""
        return cls.of([Fault(code, pointer, detail or code.meaning.title)])


class Undecided(IssuerError):
    """Could not decide. The caller sends the same request again after `retry_after_s`."""

    def __init__(self, code: Code, detail: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class Charged(Undecided):
    """Undecided because a provider did not answer about a credential, and counted against its source as a refusal is:
    otherwise made-up credentials would cost their senders nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file: line and column, both from 1; `file` is its name for people. `source` is the text of the line,
    where it helps to show it: it may hold what is secret."""

    file: str
    line: int = 0
    column: int = 0
    source: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of a file found, and where. An error makes the file unusable, a warning only doubtful."""

    code: Code
    place: Place
    detail: str
    pointer: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.detail}"


class FormatError(IssuerError):
    """Bytes or a value are not what their format demands. Readers of formats raise it; they know no files. `pointer`
    leads to the fault in the value. `line` and `column` (from 1, else 0) are in the text that was not read."""

    def __init__(self, code: Code, detail: str, pointer: str = "", *, line: int = 0, column: int = 0) -> None:
        super().__init__(code, detail, (Fault(code, pointer, detail),))
        self.line = line
        self.column = column

    @property
    def pointer(self) -> str:
        """Where in the value: a JSON pointer, "" for the whole."""
        return self.faults[0].pointer

    def within(self, pointer: str) -> Self:
        """Put `pointer` before the error's own, for a value that is a part of another; returns the error itself."""
        self.faults = tuple(replace(fault, pointer=pointer + fault.pointer) for fault in self.faults)
        return self

    def located(self, place: Place) -> InputError:
        """Return the error for who wrote what is at `place`, whose file it names with the line in the text if known."""
        found = Place(place.file, self.line, self.column) if self.line else place
        return InputError(self.code, self.detail, found, self.pointer)


class InputError(IssuerError):
    """A file that a person wrote is not what its kind demands. Prints as `file:line:col: code: what`. `also` is what
    else is wrong with it, where a reader looked for all of it."""

    def __init__(
        self, code: Code, detail: str, place: Place, pointer: str = "", *, also: tuple[InputError, ...] = ()
    ) -> None:
        super().__init__(code, detail, (Fault(code, pointer, detail),))
        self.place = place
        self.pointer = pointer
        self.also = also

    @classmethod
    def of(cls, errors: Sequence[InputError]) -> InputError:
        """Make one error of several: the first one, with the others beside it."""
        first, *others = (one for error in errors for one in (error, *error.also))
        return cls(first.code, first.detail, first.place, first.pointer, also=tuple(others))

    @property
    def finding(self) -> Finding:
        """The same, as one finding among several; without what is wrong beside it."""
        return Finding(self.code, self.place, self.detail, self.pointer)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that is wrong, in the order in which it was found."""
        return (self.finding, *(error.finding for error in self.also))

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.detail}"


class VerificationError(IssuerError):
    """What a server answered is not what it was asked for, or does not verify. Nothing of it may be used."""


class SetupError(IssuerError):
    """The service must not start like this; only the operator can help."""


@contextmanager
def gathering(into: list[InputError]) -> Iterator[None]:
    """Keep the InputError of this block, so that what follows is looked at, too."""
    try:
        yield
    except InputError as error:
        into.append(error)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Name the file that is read in this block: a FormatError becomes an InputError with its place."""
    try:
        yield
    except FormatError as error:
        raise error.located(Place(file)) from None
