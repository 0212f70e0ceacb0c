"""Verification of result files by a relying party, and the basis of a judgement, which is a table's metadata."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats.strict_yaml import Document
from issuer.formats.times import show_time
from issuer.relying.folders import ReceiptFolder, Sidecars, take_faults
from issuer.results.benchmark import AcceptedDefinitions
from issuer.results.entry import entries_of, open_results
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import ReceiptSubject, objection, read_receipt, write_receipt
from issuer.verify.report import Report
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.trust import Trust

TABLE_VERSION: Final = "2"
_AGAIN = "make it with `issuer verify DIR --to FILE.parquet` of this release"


class IssuerKeys(Struct, frozen=True):
    """A trusted issuer, and when its keys were last confirmed (Unix seconds; None for keys from a file)."""

    issuer: str
    keys_fetched_at: int | None


class Basis(Struct, frozen=True):
    """The basis of a judgement and its time (Unix seconds). `trust` is the digest of the trust file, `absent` its
    unavailable parts with reasons, `release` the release of this program."""

    trust: str
    audience: str
    judged_at: int
    issuers: tuple[IssuerKeys, ...] = ()
    absent: tuple[str, ...] = ()
    release: str = ""

    @classmethod
    def of(cls, trust: Trust, now: int) -> Basis:
        """Return the basis of a judgement by this trust at `now` (Unix seconds)."""
        issuers = tuple(IssuerKeys(name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items())
        absent = tuple(f"{absence.pointer}: {absence.reason}" for absence in trust.absent)
        return cls(trust.digest, trust.audience, now, issuers, absent, version("eval-token-issuer"))


class TableHead(Struct, frozen=True):
    """A table's metadata: the basis of its judgement, the `tolerance` and the `definitions` of the trust file, and the
    number and bytes of the files."""

    basis: Basis
    tolerance: Tolerance = EXACTLY
    files: int = 0
    bytes: int = 0
    definitions: AcceptedDefinitions = AcceptedDefinitions()

    def as_text(self) -> dict[str, str]:
        """Return the key-value metadata of a Parquet file (TABLE.md)."""
        basis = self.basis
        return {
            "table_version": TABLE_VERSION, "trust_digest": basis.trust, "audience": basis.audience,
            "judged_at": show_time(basis.judged_at), "release": basis.release, "issuers": _json(basis.issuers),
            "absent": _json(basis.absent), "tolerance": _json(self.tolerance.absolute), "files": _json(self.files),
            "bytes": _json(self.bytes), "definitions": _json(self.definitions.commits),
        }  # fmt: skip


def read_head(text: Mapping[str, str]) -> TableHead:
    """Read the metadata of a table. Raises FormatError (`file.rule`) if they are missing or of another version."""
    made_as = text.get("table_version")
    if made_as is None:
        raise FormatError(Code.FILE_RULE, f"is not a table of results: {_AGAIN}")
    if made_as != TABLE_VERSION:
        raise FormatError(Code.FILE_RULE, f"is a table of a version that this release cannot read: {_AGAIN}")
    try:
        basis = Basis(
            text["trust_digest"], text["audience"], _read_time(text["judged_at"]),
            _read(text["issuers"], tuple[IssuerKeys, ...]), _read(text["absent"], tuple[str, ...]), text["release"],
        )  # fmt: skip
        tolerance = Tolerance(_read(text["tolerance"], dict[str, float]))
        # Absent in tables from before this member of the trust file, when every definition counted.
        definitions = AcceptedDefinitions(_read(text.get("definitions", "{}"), dict[str, tuple[str, ...]]))
        return TableHead(basis, tolerance, _read(text["files"], int), _read(text["bytes"], int), definitions)
    except (KeyError, ValueError):  # msgspec's errors are ValueErrors
        raise FormatError(Code.FILE_RULE, f"has invalid metadata: {_AGAIN}") from None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _read(text: str, kind: Any) -> Any:
    return msgspec.json.decode(text, type=kind)


def _read_time(text: str) -> int:
    moment = int(datetime.datetime.fromisoformat(text).timestamp())
    if show_time(moment) != text:
        raise ValueError
    return moment


FOLDER = ".eval_results"


def path_in_repo(file: str) -> str:
    """Return a file's path in its repository, if the repository is the parent of its folder. Receipts have this
    path."""
    return "/".join(file.split("/")[-2:])


class JudgedFile(Struct, frozen=True):
    """The reports of a file's entries, and the errors of unreadable parts."""

    file: str
    reports: tuple[Report, ...]
    faults: tuple[InputError, ...] = ()


class Writer(Struct, frozen=True):
    """Functions that render a file's reports, an error, and the rows of a table for some files (by default none). In a
    run over a folder, the workers call them."""

    reports: Callable[[str, tuple[Report, ...]], str]
    finding: Callable[[InputError], str]
    rows: Callable[[Sequence[JudgedFile]], bytes] = lambda _judged: b""


class FileVerifier(Struct):
    """Verifies files as received at `at` (Unix seconds); None for a reader that does not know the time of receipt. With
    a `receipt_key`, each verified entry gets a receipt. With `lines`, other reports have the entry's line in the file.
    If keys newer than those at hand could decide a token, `renew` fetches the keys of the given issuers again; `trust`
    is then its result. May hold a private key: never serialise or print it."""

    trust: Trust
    at: int | None
    context: Context
    receipts: ReceiptFolder | None = None
    receipt_key: Ed25519PrivateKey | None = None
    renew: Callable[[Iterable[str]], Trust] | None = None
    lines: bool = False

    def verify(self, raw: bytes, file: str, repo: str, path: str = "") -> tuple[Report, ...]:
        """Verify every entry of a file. `file` is its local name, beside which proofs may be; `path` is its place in
        the repository `repo`, by default its own folder and name. Raises InputError, and SetupError for a full disk."""
        document, place = open_results(raw, file), path or path_in_repo(file)
        entries = entries_of(document)
        context = replace(self.context, proofs=Sidecars(file))
        reports = verify_entries(entries, repo, place, self.trust, self.at, context)
        if self.renewed({report.wants_keys_of for report in reports if report.wants_keys_of}):
            reports = verify_entries(entries, repo, place, self.trust, self.at, context)
        if self.receipts is not None and self.receipt_key is not None:
            for report in reports:
                self._keep_receipt(report, self.receipts, self.receipt_key)
        return tuple(_with_line(report, document) for report in reports) if self.lines else reports

    def renewed(self, issuers: Iterable[str]) -> bool:
        """Fetch the keys of these issuers again; say whether there are newer ones."""
        before = self.trust
        if issuers and self.renew is not None:
            self.trust = self.renew(issuers)
        return self.trust is not before

    def _keep_receipt(self, report: Report, receipts: ReceiptFolder, key: Ed25519PrivateKey) -> None:
        receipt = write_receipt(report, self.trust, key, self.context.now)
        if receipt is None:
            return
        if report.token_digest not in receipts:
            receipts.keep(report.token_digest, receipt)
        elif not self._served(report, receipts):  # another process may have written it meanwhile
            path = receipts.path_of(report.token_digest)
            rule = "is not a receipt that this trust accepts for this entry, and is never replaced"
            detail = f"{path} {rule}. Move it away, and run this again while the token lives"
            raise SetupError(Code.RECEIPT_FOLDER, detail)

    def _served(self, report: Report, receipts: ReceiptFolder) -> bool:
        """Say whether the stored receipt will help this entry after its token has expired."""
        if not self.trust.receipt_keys:
            return False
        try:
            kept = read_receipt(receipts[report.token_digest], self.trust.receipt_keys)
        except FormatError:
            return False
        members = report.repo, report.path, report.token_digest, report.jti, report.content_digest, report.kid
        return not objection(kept, ReceiptSubject(*members), self.context.now)

    def forget(self, report: Report) -> None:
        """Remove the receipt that this run wrote for a report that later failed."""
        if self.receipts is None or not self.trust.receipt_keys:
            return
        with contextlib.suppress(FormatError, KeyError):
            written = read_receipt(self.receipts[report.token_digest], self.trust.receipt_keys)
            if written.iat >= self.context.now:
                self.receipts.drop(report.token_digest)

    def take_faults(self) -> list[InputError]:
        """Return the faults of `eval.yaml` files since the last call."""
        return take_faults(self.context.benchmarks)


def _with_line(report: Report, document: Document) -> Report:
    if report.verdict == "verified":  # finding the line costs as much as the verification
        return report
    return replace(report, line=document.place(report.pointer).line)
