"""The error tree, sorted by the party that must act.

    IssuerError
    ├── Refused         the caller must act: 4xx, the request is refused (408 and 429: try again)
    ├── Undecided       the caller must send the request again: 503, the service could not decide
    │   └── Charged     and it counts as a refusal against the address of the caller
    ├── FormatError     bytes or a value break the rules of their format; callers turn it into another error
    │   └── Misfit      a member does not fit its type (formats/strict_json.py)
    ├── InputError      the author of a file must act: it has a place (line, column, pointer)
    ├── VerificationError   the answer of a server does not verify: do not use it
    └── SetupError      the operator must act: a key, a setting or the store is not fit for a start

`codes.py` has the registry of codes. Only the standard library is used. A message names the field, the rule and the
next step. It never has a secret, a pattern or the body of another server's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from issuer.codes import Code


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `pointer` is a JSON pointer (RFC 6901) into the request body or file, "" for the whole."""

    code: Code
    pointer: str
    detail: str


class IssuerError(Exception):
    """The root of the tree. `code` is stable, `detail` is for people, and `faults` have the places. Some callers add
    `compared` (actual and expected values with labels) and `page` (the URL of the issuer's page about the code)."""

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
    """A refusal: the same request will be refused again. If waiting helps (429), `retry_after_s` is set."""

    def __init__(
        self, code: Code, detail: str = "", faults: tuple[Fault, ...] = (), *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(code, detail, faults)
        self.retry_after_s = retry_after_s
        self.warnings: tuple[str, ...] = ()

    def warned(self, *warnings: str) -> Self:
        """Add warnings for the caller, and return the error itself."""
        self.warnings = warnings
        return self

    @classmethod
    def of(cls, faults: list[Fault] | tuple[Fault, ...]) -> Refused:
        """Return a refusal for several faults, with the code of the first one."""
        return cls(faults[0].code, faults[0].detail, tuple(faults))

    @classmethod
    def at(cls, code: Code, pointer: str, detail: str = "") -> Refused:
        """Return a refusal for one fault at one place."""
        return cls.of([Fault(code, pointer, detail or code.meaning.title)])


class Undecided(IssuerError):
    """An error without a decision. The caller may send the same request again after `retry_after_s`."""

    def __init__(self, code: Code, detail: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(code, detail)
        self.retry_after_s = retry_after_s


class Charged(Undecided):
    """An error because a provider did not answer about a credential. It counts as a refusal against the caller's
    address, because otherwise invented credentials would be free."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: line and column, both from 1. `file` is the file's name for people. `source` is the text of
    the line, if it is useful to show; it may contain a secret."""

    file: str
    line: int = 0
    column: int = 0
    source: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check, with its place in the file. An error makes the file unusable, a warning does not."""

    code: Code
    place: Place
    detail: str
    pointer: str = ""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.detail}"


class FormatError(IssuerError):
    """An error in bytes or a value that break the rules of their format, from a reader that does not know the file.
    `pointer` is the place in the value. Text that could not be parsed has `line` and `column` (from 1, otherwise 0)."""

    def __init__(self, code: Code, detail: str, pointer: str = "", *, line: int = 0, column: int = 0) -> None:
        super().__init__(code, detail, (Fault(code, pointer, detail),))
        self.line = line
        self.column = column

    @property
    def pointer(self) -> str:
        """The JSON pointer of the fault in the value, "" for the whole."""
        return self.faults[0].pointer

    def within(self, pointer: str) -> Self:
        """Prepend the pointer of the value in a larger value, and return the error itself."""
        self.faults = tuple(replace(fault, pointer=pointer + fault.pointer) for fault in self.faults)
        return self

    def located(self, place: Place) -> InputError:
        """Return the error for the author of the file of `place`, at the error's own line if it has one."""
        own = Place(place.file, self.line, self.column) if self.line else place
        return InputError(self.code, self.detail, own, self.pointer)


class InputError(IssuerError):
    """An error in a person's file. It prints as `file:line:col: code: detail`. `also` has the file's other errors."""

    def __init__(
        self, code: Code, detail: str, place: Place, pointer: str = "", *, also: tuple[InputError, ...] = ()
    ) -> None:
        super().__init__(code, detail, (Fault(code, pointer, detail),))
        self.place = place
        self.pointer = pointer
        self.also = also

    @classmethod
    def of(cls, errors: Sequence[InputError]) -> InputError:
        """Return the first of several errors, with the others in `also`."""
        first, *others = (each for error in errors for each in (error, *error.also))
        return cls(first.code, first.detail, first.place, first.pointer, also=tuple(others))

    @property
    def finding(self) -> Finding:
        """The error as a finding, without `also`."""
        return Finding(self.code, self.place, self.detail, self.pointer)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The error and those in `also`, as findings."""
        return (self.finding, *(error.finding for error in self.also))

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.detail}"


class VerificationError(IssuerError):
    """A server's answer does not match the request, or does not verify. The client must not use it."""


class SetupError(IssuerError):
    """A key, a setting or the store is not fit for a start. Only the operator can mend it."""


@contextmanager
def gathering(into: list[InputError]) -> Iterator[None]:
    """Add an InputError of this block to a list, so the caller can continue to collect errors."""
    try:
        yield
    except InputError as error:
        into.append(error)


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn a FormatError of this block into an InputError with a place in this file."""
    try:
        yield
    except FormatError as error:
        raise error.located(Place(file)) from None
