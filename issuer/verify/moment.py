"""When a file counts as received, and by when its token is known to have existed (contract section 6). Pure.

Three things speak of it: this party's own clock or word, a receipt that it wrote, and a witnessed inclusion in the
issuer's log. The first two say when the file came. The last one says only that the token existed, and is the one that
neither this party nor the issuer can make up. Checks 2 and 5 judge by them, in `check_token`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from issuer.errors import FormatError
from issuer.verify.receipts import Subject, objection, read_receipt
from issuer.verify.report import AtFrom, Status
from issuer.verify.trust import Trust


class Moment(Struct, frozen=True):
    """When the file counts as received. `receipt_iat` is when a good receipt says so, None without one.

    `witnessed` is by when the log's witnesses had seen the token, None where they prove nothing. To a reader, who
    cannot know (`at_from` is `unknown`), `at` is now: by then it had come. Where the token had ended by then and
    `witnessed` stands in (`log`), `at` is that. `note` says why a receipt at hand does not serve, `unsure` that this
    could not be decided.
    """

    at: int
    at_from: AtFrom
    receipt_iat: int | None = None
    witnessed: int | None = None
    note: str = ""
    unsure: bool = False

    @property
    def late(self) -> Status:
        """The status for a token that is too old at this moment: no, unless it may have come earlier."""
        return Status.UNKNOWN if self.unsure or self.at_from in {"unknown", "log"} else Status.FAIL

    @property
    def existed_at(self) -> int | None:
        """When the token existed, by evidence from outside of it: the earliest such time, None where there is none."""
        return min((time for time in (self.receipt_iat, self.witnessed) if time is not None), default=None)

    @property
    def times(self) -> tuple[int, ...]:
        """Every time at which it is said or shown to have been there."""
        return (self.at,) if self.witnessed is None else (self.at, self.witnessed)

    def with_receipt(self, receipt: str, subject: Subject, trust: Trust, now: int) -> Moment:
        """Take the moment from a receipt, where it is one of ours for just this entry."""
        if not trust.receipt_keys:
            unsure = trust.receipt_keys is None
            note = "the receipt keys are not to be had" if unsure else "the trust file lists no receipt keys"
            return replace(self, note=f"; there is a receipt, but {note}", unsure=unsure)
        try:
            read = read_receipt(receipt, trust.receipt_keys)
        except FormatError as error:
            return self._without_receipt(error.detail)
        if reason := objection(read, subject, now):
            return self._without_receipt(reason)
        return replace(self, at=read.at, at_from="receipt", receipt_iat=read.iat)

    def _without_receipt(self, reason: str) -> Moment:
        return replace(self, note=f"; the receipt at hand does not serve: {reason}")

    def with_witnessed(self, time: int | None, exp: int) -> Moment:
        """Add the witnessed time of a token that ends at `exp`.

        It shows that the token existed, not that the file had come: only who cannot know judges by it, and who receives
        the file, or says when it came, stays bound by `exp`.
        """
        if time is not None and self.at_from == "unknown" and self.at > exp:
            return replace(self, at=time, at_from="log", witnessed=time)
        return replace(self, witnessed=time)
