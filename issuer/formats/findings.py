"""The findings of checks: of policy files, each at its place, and of a diagnosis, a line each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Literal, TypeVar

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Finding, InputError, IssuerError, SetupError
from issuer.formats.strict_yaml import Document

Verdict = Literal["pass", "warning", "FAIL"]


class Line(Struct, frozen=True):
    """One thing that was looked at. What did not pass has the `next` step; a FAIL has its error, and that its code."""

    name: str
    verdict: Verdict
    detail: str
    next: str = ""
    error: IssuerError | None = None

    @property
    def code(self) -> str:
        """The code of what failed; "" where nothing did."""
        return "" if self.error is None else str(self.error.code)


def failed(name: str, error: IssuerError, *, detail: str = "", step: str = "") -> Line:
    """Return the line of an error; without a `step` of its own the remedy of its code is the next one."""
    return Line(name, "FAIL", detail or error.detail, step or error.code.meaning.remedy, error)


def looked(name: str, look: Callable[[], str], *, step: str = "") -> Line:
    """Return the line of a look, which returns what is well, or raises what is not: an IssuerError or OSError."""
    try:
        return Line(name, "pass", look())
    except InputError as error:
        return failed(name, error, detail=f"{error.place}: {error.detail}", step=step)
    except IssuerError as error:
        return failed(name, error, step=step)
    except OSError as error:
        return failed(name, _of_machine(error), step=step)


def surviving(name: str, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines of a look. What ends it is its last line, whatever that is, and hides no look after it: of what
    nobody foresaw the kind alone is said, for its text may show a secret."""
    try:
        yield from lines
    except IssuerError as error:
        yield failed(name, error)
    except OSError as error:
        yield failed(name, _of_machine(error))
    except Exception as error:  # noqa: BLE001 (a look that fails is a finding)
        detail = f"this look ended by a fault of ours: {type(error).__name__}"
        yield failed(name, SetupError(Code.INTERNAL, detail), step="Report it, with `issuer --version`.")


def _of_machine(error: OSError) -> SetupError:
    where = f"{error.filename}: " if error.filename else ""
    return SetupError(Code.MACHINE_FAILED, f"{where}{error.strerror or error}")


T = TypeVar("T")


class Findings:
    """Collects what the rules of policy files find. An error makes the directory unusable, a warning only doubtful."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._broken: set[str] = set()

    def demand(
        self, document: Document, pointer: str, condition: object, rule: str, code: Code = Code.FILE_RULE
    ) -> bool:
        """Record an error at `pointer` unless the condition holds; return whether it does."""
        if not condition:
            self._add(Finding(code, document.place(pointer), rule, pointer))
        return bool(condition)

    def warn(self, document: Document, pointer: str, code: Code, detail: str) -> None:
        """Record a warning at `pointer`."""
        self._add(Finding(code, document.place(pointer), detail, pointer, "warning"))

    def refuse(self, error: InputError) -> None:
        """Record the error that a reader raised."""
        self._add(error.finding)

    def convert(self, document: Document, kind: type[T]) -> T | None:
        """Turn a whole document into a typed value; None after recording every misfit."""
        try:
            return document.convert(kind)
        except InputError:
            for misfit in document.misfits(kind):
                self._add(misfit)
            return None

    def _add(self, finding: Finding) -> None:
        self._found.append(finding)
        if finding.severity == "error":
            self._broken.add(finding.place.file)

    @property
    def broken(self) -> Set[str]:
        """The names of the files with an error."""
        return self._broken

    def in_order(self) -> tuple[Finding, ...]:
        """Return all findings, by file, line and column."""
        return tuple(sorted(self._found, key=lambda f: (f.place.file, f.place.line, f.place.column)))
