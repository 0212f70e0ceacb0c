"""What was looked at, a line each: a pass, a warning or a FAIL, with the next step. Of callers and of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from issuer.codes import Code
from issuer.errors import InputError, IssuerError, SetupError

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
