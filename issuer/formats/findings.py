"""The findings of a check of policy files: every error and every warning, each at its place. Pure."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

from issuer.codes import Code
from issuer.errors import Finding, InputError
from issuer.formats.strict_yaml import Document

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
