"""A relying party's receipts, and the time at which a file counts as received (contract section 6). Pure.

A receipt is a JWS with `typ` `eval-receipt+jwt`, signed by a key that `receipt_keys` lists and that never signs tokens.
With it this party confirms to itself that it saw a verified entry in time. It counts only for freshness and the key's
window of that entry. Three sources give the time: a clock, a receipt and a witnessed inclusion in the issuer's log. The
last shows only that the token existed, but neither this party nor the issuer can fake it.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, SetupError
from issuer.formats import jose
from issuer.formats.strict_json import convert
from issuer.formats.times import UnixTime
from issuer.verify.report import ALWAYS_DUE, NAMES, AtFrom, Report, Status
from issuer.verify.signed_statement import read_statement, write_statement
from issuer.verify.trust import Trust

RECEIPT_TYPE: Final = "eval-receipt+jwt"
MAX_BYTES = 16 * 1024
# How far apart the clocks of writers and readers of receipts may be.
LEEWAY_S = 60


class Receipt(Struct, frozen=True, forbid_unknown_fields=True):
    """The payload; other members are refused. `kid` is the token's key; `iat` is the writer's clock, `at` when it
    received the file. `trust` is the digest of the trust file then, for information; `checks` are the outcomes by
    number."""

    ver: Literal[1]
    repo: str
    path: str
    token: str
    jti: str
    content_digest: str
    at: UnixTime
    kid: str
    trust: str
    checks: dict[str, Status]
    iat: UnixTime


class ReceiptSubject(Struct, frozen=True):
    """The members that a receipt and an entry must have in common."""

    repo: str
    path: str
    token: str
    jti: str
    content_digest: str
    kid: str


_NAMED = {
    "repo": "another repository", "path": "another file", "token": "another token", "jti": "another jti",
    "content_digest": "another entry", "kid": "another key",
}  # fmt: skip


def token_digest(token: str) -> str:
    """Return the SHA-256 of a token's text, by which receipts name the token."""
    return f"sha256:{hashlib.sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}"


def file_name(digest: str) -> str:
    """Return the file name of a token's receipt in a folder of receipts."""
    return f"{digest.removeprefix('sha256:')}.jwt"


def write_receipt(report: Report, trust: Trust, key: Ed25519PrivateKey, iat: int) -> bytes | None:
    """Sign the receipt of a report at `iat` (the writer's clock, Unix seconds). Returns None if the report allows no
    receipt.

    It must be verified, and its time must not come from a receipt or a claim (`--at`, a request), because the thief of
    a key could claim one. A reader's report (`unknown`) may get a receipt: its token has not expired now, so the file
    came in time. A report with a time from the log gets none: the file of an expired token may have come later. Raises
    SetupError(`key.unusable`) if `receipt_keys` does not list the key, or the key also signs tokens.
    """
    if report.verdict != "verified" or report.at_from not in {"clock", "unknown"}:
        return None
    check_key(trust, key)
    checks = {str(check.number): check.status for check in report.checks}
    receipt = Receipt(
        1, report.repo, report.path, report.token_digest, report.jti, report.content_digest, report.at, report.kid,
        trust.digest, checks, iat,
    )  # fmt: skip
    return write_statement(RECEIPT_TYPE, msgspec.to_builtins(receipt), key)


def check_key(trust: Trust, key: Ed25519PrivateKey) -> None:
    """Raise SetupError(`key.unusable`) for a key whose receipts this trust file would not accept."""
    public = key.public_key()
    if any(public == other.public for other in trust.token_keys()):
        raise SetupError(Code.KEY_UNUSABLE, "the receipt key also signs tokens; make another key for receipts")
    listed = trust.receipt_keys.get(jose.public_jwk(public)["kid"]) if trust.receipt_keys else None
    if listed is None or listed.public != public:
        detail = "the receipt key is not listed under `receipt_keys` of the trust file, under its RFC 7638 thumbprint"
        raise SetupError(Code.KEY_UNUSABLE, detail)


def read_receipt(text: str, keys: jose.KeySet) -> Receipt:
    """Read a receipt that one of the keys has signed. Raises FormatError. `objection` judges whether it fits an
    entry."""
    receipt = convert(read_statement(text.strip("\r\n"), RECEIPT_TYPE, keys, MAX_BYTES), Receipt)
    if receipt.checks.keys() != {str(number) for number in NAMES}:
        raise FormatError(Code.FILE_RULE, "it does not have every check", "/checks")
    return receipt


def objection(receipt: Receipt, subject: ReceiptSubject, now: int) -> str:
    """Return why a valid receipt does not count for this entry, or ""."""
    for name, other in _NAMED.items():
        if getattr(receipt, name) != getattr(subject, name):
            return f"it is for {other}"
    if any(receipt.checks[str(number)] is not Status.PASS for number in ALWAYS_DUE):
        return "it is of an entry that was not verified"
    if receipt.at > receipt.iat + LEEWAY_S:
        return "its time of receipt is later than its time of writing"
    return "it was written in the future" if receipt.iat > now + LEEWAY_S else ""


class Moment(Struct, frozen=True):
    """The time at which the file counts as received. `receipt_iat` is when a good receipt was written, None without
    one. `witnessed` is a time by which the log's witnesses had seen the token, None if they prove none. A reader does
    not know when the file came (`at_from` is `unknown`), so `at` is now. If the token had expired by then and witnesses
    saw it in time, `at` is `witnessed` (`log`). `note` says why a receipt at hand is not usable; `unsure`: that could
    not be decided."""

    at: int
    at_from: AtFrom
    receipt_iat: int | None = None
    witnessed: int | None = None
    note: str = ""
    unsure: bool = False

    @property
    def late(self) -> Status:
        """The status of a token that is too old at this moment: `fail`, unless the file may have come earlier."""
        return Status.UNKNOWN if self.unsure or self.at_from in {"unknown", "log"} else Status.FAIL

    @property
    def existed_at(self) -> int | None:
        """The earliest time at which a receipt or witnesses show that the token existed, or None."""
        return min((time for time in (self.receipt_iat, self.witnessed) if time is not None), default=None)

    @property
    def times(self) -> tuple[int, ...]:
        """Every time at which the token is claimed or shown to have existed."""
        return (self.at,) if self.witnessed is None else (self.at, self.witnessed)

    def with_receipt(self, receipt: str, subject: ReceiptSubject, trust: Trust, now: int) -> Moment:
        """Take the moment from a receipt, if this party wrote it for this very entry."""
        if not trust.receipt_keys:
            unsure = trust.receipt_keys is None
            note = "the receipt keys are unavailable" if unsure else "the trust file lists no receipt keys"
            return replace(self, note=f"; there is a receipt, but {note}", unsure=unsure)
        try:
            read = read_receipt(receipt, trust.receipt_keys)
        except FormatError as error:
            return self._without_receipt(error.detail)
        if reason := objection(read, subject, now):
            return self._without_receipt(reason)
        return replace(self, at=read.at, at_from="receipt", receipt_iat=read.iat)

    def _without_receipt(self, reason: str) -> Moment:
        return replace(self, note=f"; the receipt at hand is not usable: {reason}")

    def with_witnessed(self, time: int | None, exp: int) -> Moment:
        """Add the witnessed time of a token that expires at `exp`. It shows that the token existed, not that the file
        had come. So only a reader is judged by it; a party that knows or claims the time of receipt stays bound by
        `exp`."""
        if time is not None and self.at_from == "unknown" and self.at > exp:
            return replace(self, at=time, at_from="log", witnessed=time)
        return replace(self, witnessed=time)
