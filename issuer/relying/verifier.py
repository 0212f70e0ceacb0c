"""How a relying party verifies files, one or many: with its trust, its clock and the folders that it keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats.strict_yaml import Document
from issuer.relying.folders import ReceiptFolder, Sidecars, take_faults
from issuer.results.entry import entries_of, open_results
from issuer.verify import Context, verify_entries
from issuer.verify.receipts import Subject, objection, read_receipt, write_receipt
from issuer.verify.report import Report
from issuer.verify.trust import Trust

FOLDER = ".eval_results"


def path_in_repo(file: str) -> str:
    """Return the path that a file has in its repository if that ends above its folder; receipts name it by this."""
    return "/".join(file.split("/")[-2:])


class Judged(Struct, frozen=True):
    """What one file gave: the reports of its entries, and what could not be read."""

    file: str
    reports: tuple[Report, ...]
    faults: tuple[InputError, ...] = ()


class Writer(Struct, frozen=True):
    """How to render the reports of a file, and the error of one that cannot be read. Of a folder, called in the
    workers, as is `rows`, which makes the rows of a table of some files; without it there is no table."""

    reports: Callable[[str, tuple[Report, ...]], str]
    finding: Callable[[InputError], str]
    rows: Callable[[Sequence[Judged]], bytes] = lambda _judged: b""


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
        the repository `repo`.

        Without `path` that is the file's own folder and name. Raises InputError, and SetupError for a full disk.
        """
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
        return not objection(kept, Subject(*members), self.context.now)

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
