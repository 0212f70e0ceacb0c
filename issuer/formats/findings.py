"""The results of checks: findings in policy files, each with its place, and the lines of a diagnosis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Literal, TypeVar

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import Finding, InputError, IssuerError, SetupError
from issuer.formats.strict_yaml import Document

Verdict = Literal["pass", "warning", "FAIL"]


class Line(Struct, frozen=True):
    """One line of a diagnosis. A warning and a FAIL have the `next` step for the reader; a FAIL also has its error."""

    name: str
    verdict: Verdict
    detail: str
    next: str = ""
    error: IssuerError | None = None

    @property
    def code(self) -> str:
        """The code of the error, or "" without an error."""
        return "" if self.error is None else str(self.error.code)


def failed(name: str, error: IssuerError, *, detail: str = "", step: str = "") -> Line:
    """Return the line for an error. Without a `step`, the next step is the remedy of the error's code."""
    return Line(name, "FAIL", detail or error.detail, step or error.code.meaning.remedy, error)


def looked(name: str, look: Callable[[], str], *, step: str = "") -> Line:
    """Return the line for one check. `look` returns a detail, or raises IssuerError or OSError if the check fails."""
    try:
        return Line(name, "pass", look())
    except InputError as error:
        return failed(name, error, detail=f"{error.place}: {error.detail}", step=step)
    except IssuerError as error:
        return failed(name, error, step=step)
    except OSError as error:
        return failed(name, _of_machine(error), step=step)


def surviving(name: str, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines of a check. An exception becomes its last line, so that later checks still run. The line for an
    unexpected exception has only the type: the text may contain a secret."""
    try:
        yield from lines
    except IssuerError as error:
        yield failed(name, error)
    except OSError as error:
        yield failed(name, _of_machine(error))
    except Exception as error:  # noqa: BLE001 (a check that fails is a finding)
        detail = f"this check failed because of a bug in the issuer: {type(error).__name__}"
        step = "Report the bug, with the output of `issuer --version`."
        yield failed(name, SetupError(Code.INTERNAL, detail), step=step)


def _of_machine(error: OSError) -> SetupError:
    where = f"{error.filename}: " if error.filename else ""
    return SetupError(Code.MACHINE_FAILED, f"{where}{error.strerror or error}")


T = TypeVar("T")


class Findings:
    """A collector of findings in policy files. One error makes the directory unusable; a warning does not."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._broken: set[str] = set()

    def demand(
        self, document: Document, pointer: str, condition: object, rule: str, code: Code = Code.FILE_RULE
    ) -> bool:
        """Record an error at `pointer` unless the condition holds; return whether it holds."""
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
        """Convert a whole document to a typed value. If it does not fit, record every misfit and return None."""
        try:
            return document.convert(kind)
        except InputError:
            for misfit in document.misfits(kind):
                self._add(misfit)
            return None

    def _add(self, finding: Finding) -> None:
        self._findings.append(finding)
        if finding.severity == "error":
            self._broken.add(finding.place.file)

    @property
    def broken(self) -> Set[str]:
        """The names of the files that have an error."""
        return self._broken

    def in_order(self) -> tuple[Finding, ...]:
        """Return all findings, by file, line and column."""
        return tuple(sorted(self._findings, key=lambda f: (f.place.file, f.place.line, f.place.column)))
