"""How a relying party verifies files, one or many, and the basis of its judgement, which heads its tables."""

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
from issuer.results.entry import entries_of, open_results
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import ReceiptSubject, objection, read_receipt, write_receipt
from issuer.verify.report import Report
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.trust import Trust

TABLE_VERSION: Final = "2"
_AGAIN = "make it with `issuer verify DIR --to FILE.parquet` of this release"


class IssuerKeys(Struct, frozen=True):
    """A trusted issuer, and when its keys were last confirmed (Unix seconds; None: they are from a file)."""

    issuer: str
    keys_fetched_at: int | None


class Basis(Struct, frozen=True):
    """By what it was judged, and when (Unix seconds). `trust` is the digest of the trust file, `absent` what of that
    was not at hand and why, `release` the one that judged."""

    trust: str
    audience: str
    judged_at: int
    issuers: tuple[IssuerKeys, ...] = ()
    absent: tuple[str, ...] = ()
    release: str = ""

    @classmethod
    def of(cls, trust: Trust, now: int) -> Basis:
        """Say by what is judged with this trust at `now` (Unix seconds)."""
        issuers = tuple(IssuerKeys(name, issuer.keys_fetched_at) for name, issuer in trust.issuers.items())
        absent = tuple(f"{absence.pointer}: {absence.reason}" for absence in trust.absent)
        return cls(trust.digest, trust.audience, now, issuers, absent, version("eval-token-issuer"))


class TableHead(Struct, frozen=True):
    """What a table says of itself: by what it was judged, the `tolerance` of the trust file, and how many files."""

    basis: Basis
    tolerance: Tolerance = EXACTLY
    files: int = 0

    def as_text(self) -> dict[str, str]:
        """Return the key-value metadata of a Parquet file (TABLE.md)."""
        basis = self.basis
        return {
            "table_version": TABLE_VERSION, "trust_digest": basis.trust, "audience": basis.audience,
            "judged_at": show_time(basis.judged_at), "release": basis.release, "issuers": _json(basis.issuers),
            "absent": _json(basis.absent), "tolerance": _json(self.tolerance.absolute), "files": _json(self.files),
        }  # fmt: skip


def read_head(text: Mapping[str, str]) -> TableHead:
    """Read the metadata of a table. Raises FormatError (`file.rule`) where it has none, or another version."""
    made_as = text.get("table_version")
    if made_as is None:
        raise FormatError(Code.FILE_RULE, f"is no table of results: {_AGAIN}")
    if made_as != TABLE_VERSION:
        rule = f"is a table of another version than {TABLE_VERSION}, which is what this release reads: {_AGAIN}"
        raise FormatError(Code.FILE_RULE, rule)
    try:
        basis = Basis(
            text["trust_digest"], text["audience"], _read_time(text["judged_at"]),
            _read(text["issuers"], tuple[IssuerKeys, ...]), _read(text["absent"], tuple[str, ...]), text["release"],
        )  # fmt: skip
        tolerance = Tolerance(_read(text["tolerance"], dict[str, float]))
        return TableHead(basis, tolerance, _read(text["files"], int))
    except (KeyError, ValueError):  # msgspec's errors are such
        raise FormatError(Code.FILE_RULE, f"has metadata that no table has: {_AGAIN}") from None


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
    """Return the path that a file has in its repository if that ends above its folder; receipts name it by this."""
    return "/".join(file.split("/")[-2:])


class JudgedFile(Struct, frozen=True):
    """What one file gave: the reports of its entries, and what could not be read."""

    file: str
    reports: tuple[Report, ...]
    faults: tuple[InputError, ...] = ()


class Writer(Struct, frozen=True):
    """How to render the reports of a file, and the error of one that cannot be read. Of a folder, called in the
    workers, as is `rows`, which makes the rows of a table of some files; without it there is no table."""

    reports: Callable[[str, tuple[Report, ...]], str]
    finding: Callable[[InputError], str]
    rows: Callable[[Sequence[JudgedFile]], bytes] = lambda _judged: b""


class Verifier(Struct):
    """Verifies files as received at `at` (Unix seconds), or for a reader, who cannot know when (None).

    With a `receipt_key`, a verified entry gets a receipt. With `lines`, reports that are not verified say in which line
    of the file their entry stands. `renew` asks once more for the keys of the issuers that it is
    given, where a token's could be newer than those at hand; `trust` is then what it returns.

    May hold a private key: never serialise or print it.
    """

    trust: Trust
    at: int | None
    context: Context
    receipts: ReceiptFolder | None = None
    receipt_key: Ed25519PrivateKey | None = None
    renew: Callable[[Iterable[str]], Trust] | None = None
    lines: bool = False

    def verify(self, raw: bytes, file: str, repo: str, path: str = "") -> tuple[Report, ...]:
        """Verify every entry of a file. `file` is its name here, beside which proofs may lie; `path` is its place in
        the repository `repo`. Without `path` that is the file's own folder and name. Raises InputError, and SetupError
        for a full disk."""
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
        """Ask for newer keys of these issuers; say whether there are any."""
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
            rule = "is no receipt that this trust believes of this entry, and is never replaced"
            detail = f"{path} {rule}. Move it away, and run this again while the token lives"
            raise SetupError(Code.RECEIPT_FOLDER, detail)

    def _served(self, report: Report, receipts: ReceiptFolder) -> bool:
        """Say whether the receipt that is there will serve this entry when its token has ended."""
        if not self.trust.receipt_keys:
            return False
        try:
            kept = read_receipt(receipts[report.token_digest], self.trust.receipt_keys)
        except FormatError:
            return False
        members = report.repo, report.path, report.token_digest, report.jti, report.content_digest, report.kid
        return not objection(kept, ReceiptSubject(*members), self.context.now)

    def forget(self, report: Report) -> None:
        """Remove the receipt that this run wrote for a report, which is not verified after all."""
        if self.receipts is None or not self.trust.receipt_keys:
            return
        with contextlib.suppress(FormatError, KeyError):
            written = read_receipt(self.receipts[report.token_digest], self.trust.receipt_keys)
            if written.iat >= self.context.now:
                self.receipts.drop(report.token_digest)

    def take_faults(self) -> list[InputError]:
        """Return what was wrong with `eval.yaml` files since the last call."""
        return take_faults(self.context.benchmarks)


def _with_line(report: Report, document: Document) -> Report:
    if report.verdict == "verified":  # finding its line would cost as much as all the rest
        return report
    return replace(report, line=document.place(report.pointer).line)
