"""Token requests for many results: batches, an identity for each request, and a folder to resume a killed submission.

The folder has a file for each request, written in one step: the nonce before the request is sent, the tokens after the
answer, but never a secret. Tokens from it are checked like an issuer's answer. Unreadable files are ignored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from issuer.client.answer import SentRequest, check_answer
from issuer.client.credential import Credential, fresh_nonce
from issuer.client.tokens import explain_request, fetch_keys, obtain
from issuer.codes import Code
from issuer.errors import Fault, InputError, Refused, Undecided, VerificationError
from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.io import files
from issuer.io.http_client import PATIENCE_S, check_url
from issuer.results.entry import Submission
from issuer.token.wire import MAX_BYTES, MAX_RESULTS, Denied, Explained, IssuedToken, ShownCheck, is_nonce

FOLDER = ".issuer-submit"
_MAX_BYTES = 8 * 1024 * 1024  # of a batch: a hundred tokens and their entries
_LOCK_S = 60.0


class _Request(Struct, frozen=True):
    """One file: the request's nonce, "" if it has none, and the tokens that were received for it."""

    version: Literal[1]
    nonce: str = ""
    tokens: tuple[IssuedToken, ...] = ()


class ResumeState:
    """The folder of a submission, created on the first write. Raises OSError if it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other submissions until the block ends. Raises OSError after 60 s of waiting."""
        files.make_folder(self.folder, mode=0o777, follow=False)
        if not (ignored := self.folder / ".gitignore").exists():
            files.replace(ignored, b"*\n", mode=None, durable=False, follow=False)
        with files.folder_locked(self.folder, wait_s=_LOCK_S):
            yield

    def nonce(self, key: str) -> str:
        """Return the nonce of a request that was begun and has no answer yet, or "". `key` is the request's digest."""
        request = self._read(self._path(key))
        return request.nonce if is_nonce(request.nonce) and not request.tokens else ""

    def begin(self, key: str, nonce: str) -> None:
        """Record the nonce before the request is sent. A repeat with the same nonce gets the same tokens."""
        self._write(key, _Request(1, nonce))

    def finish(self, key: str, tokens: tuple[IssuedToken, ...]) -> None:
        """Record the tokens of a request."""
        self._write(key, _Request(1, "", tokens))

    def tokens(self) -> Iterator[IssuedToken]:
        """Yield all tokens in the folder; those that live longest are last."""
        tokens = [token for path in sorted(self.folder.glob("*.kept")) for token in self._read(path).tokens]
        yield from sorted(tokens, key=lambda token: token.expires_at)

    def prune(self, now: int) -> None:
        """Remove the requests whose tokens have all expired."""
        for path in self.folder.glob("*.kept"):
            tokens = self._read(path).tokens
            if tokens and all(token.expires_at < now for token in tokens):
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key.removeprefix('sha256:')[:32]}.kept"

    def _write(self, key: str, request: _Request) -> None:
        files.replace(self._path(key), msgspec.json.encode(request), mode=None, durable=True, follow=False)

    def _read(self, path: Path) -> _Request:
        try:
            return msgspec.json.decode(files.read(path, _MAX_BYTES, follow=False), type=_Request)
        except (InputError, msgspec.MsgspecError, UnicodeDecodeError):
            return _Request(1)


Answer = TypeVar("Answer")

# A recorded token is reused if it lives at least this long: relying parties must receive its file before it expires.
LEAST_LEFT_S = 300
# After this many refusals a rehearsal stops, because refusals count against the identity.
MAX_REFUSED = 10
# An identity token lives for minutes. For these codes a fresh one helps.
_ENDED = frozenset({Code.IDENTITY_EXPIRED, Code.IDENTITY_TOO_OLD, Code.DEPENDENCY_STATE_RESET})
# The provider's clock may be this far behind the clock of the issuer's store.
CLOCKS_S = 2
_ROOM = 4096  # bytes of a batch's body that are reserved for the members beside its results


class IssuerAccess(Struct, frozen=True):
    """An issuer's URL and the caller's identity. `identity` is called for every request, so that each request has a
    fresh token if the CI makes them. It raises SetupError and Undecided."""

    issuer: str
    identity: Callable[[], Credential]
    integration: str | None = None
    audience: str | None = None
    patience_s: float = PATIENCE_S

    def body(self, **members: JSON) -> dict[str, JSON]:
        """Return a request body with these members, the integration and the audience."""
        terms = {"integration": self.integration, "audience": self.audience}
        return {**members, **{name: text for name, text in terms.items() if text}}


class ResultRefusal(Struct, frozen=True):
    """A result that the issuer refuses: its index among the requested results, and the checks that failed."""

    index: int
    code: Code
    checks: tuple[ShownCheck, ...]


class ObtainedTokens(Struct, frozen=True):
    """The tokens by the result's index, and the refusals. Tokens of the indexes `again` are from an earlier start."""

    tokens: dict[int, IssuedToken]
    again: frozenset[int]
    refusals: tuple[ResultRefusal, ...]


def obtain_each(
    access: IssuerAccess, submissions: Sequence[Submission], state: ResumeState, *, keep_going: bool = False
) -> ObtainedTokens:
    """Get a token for each result, and record each batch as soon as it is answered. A batch is refused as a whole.
    Without `keep_going` the first refused batch is the last; with it, the batch is sent again without the refused
    results. Raises as `client.tokens.obtain` does for an error that is not about single results, SetupError if there is
    no identity, and OSError for the folder."""
    tokens = _still_good(access, submissions, state)
    again, refusals = frozenset(tokens), list[ResultRefusal]()
    missing = [index for index in range(len(submissions)) if index not in tokens]
    for batch in _batches(missing, submissions):
        while batch:
            try:
                issued = _obtain(access, [submissions[index] for index in batch], state)
            except Refused as refused:
                by_result = _refusals(batch, refused)
                if not by_result:
                    raise
                refusals += by_result
                if not keep_going:
                    return ObtainedTokens(tokens, again, tuple(refusals))
                batch = [index for index in batch if index not in {refusal.index for refusal in by_result}]
                continue
            tokens.update(zip(batch, issued, strict=True))
            break
    return ObtainedTokens(tokens, again, tuple(refusals))


def explain_each(access: IssuerAccess, submissions: Sequence[Submission]) -> Iterator[tuple[int, Explained]]:
    """Yield the issuer's decision on each result, until MAX_REFUSED are refused. Each counts as a request; no token is
    signed and no use is spent. Raises as `explain_request` does."""
    refused, credential = 0, None
    for index, submission in enumerate(submissions):
        body = access.body(**_item(submission))
        ask = partial(explain_request, access.issuer, request=body, patience_s=access.patience_s)
        explained, credential = _renewed(access, ask, credential)
        yield index, explained
        refused += explained.verdict == "refused"
        if refused >= MAX_REFUSED:
            return


# -- batches ----------------------------------------------------------------------------------------------------------


def _item(submission: Submission) -> dict[str, JSON]:
    return {"claims": submission.claims.to_json(), "details": submission.details}


def _batches(indices: Sequence[int], submissions: Sequence[Submission]) -> Iterator[list[int]]:
    """Yield the indexes of each batch, within the issuer's bounds. The same results make the same batches."""
    batch, size = list[int](), 0
    for index in indices:
        more = len(msgspec.json.encode(_item(submissions[index]))) + 1
        if batch and (len(batch) == MAX_RESULTS or size + more > MAX_BYTES["batch"] - _ROOM):
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += more
    if batch:
        yield batch


def _obtain(access: IssuerAccess, submissions: Sequence[Submission], state: ResumeState) -> tuple[IssuedToken, ...]:
    """Request one batch. With the nonce of an earlier start the issuer repeats its answer. If it refuses that nonce,
    send a new one."""
    body = access.body(results=[_item(submission) for submission in submissions])
    key = jcs.digest({"issuer": access.issuer, "request": body})
    before = state.nonce(key)
    try:
        issued = _request(access, body, key, before, state)
    except Refused as refused:
        if not before or refused.code is not Code.NONCE_REUSED:
            raise
        issued = _request(access, body, key, "", state)
    state.finish(key, issued)
    return issued


def _request(
    access: IssuerAccess, body: dict[str, JSON], key: str, nonce: str, state: ResumeState
) -> tuple[IssuedToken, ...]:
    nonce = nonce or fresh_nonce()

    def ask(by: Credential) -> tuple[IssuedToken, ...]:
        if by.reusable:
            state.begin(key, nonce)
        sent = {**body, "nonce": nonce} if by.reusable else body
        return obtain(access.issuer, by, sent, "/tokens/batch", patience_s=access.patience_s).tokens

    return _renewed(access, ask)[0]


def _renewed(
    access: IssuerAccess, ask: Callable[[Credential], Answer], credential: Credential | None = None
) -> tuple[Answer, Credential]:
    """Call `ask` with a credential, and once more with a fresh one if the first expired while the request waited. An
    issuer that lost its store says when it accepts fresh identities; wait until then. Return the answer and the
    accepted credential. Raises the first error if the credential cannot be renewed, such as one in a variable."""
    first = credential or access.identity()
    try:
        return ask(first), first
    except (Refused, Undecided) as error:
        if error.code not in _ENDED or (again := access.identity()) == first:
            raise
        if error.code is Code.DEPENDENCY_STATE_RESET:
            wait_s = (error.retry_after_s or 1) + CLOCKS_S
            if wait_s > access.patience_s:
                raise
            time.sleep(wait_s)
            again = access.identity()
    return ask(again), again


def _still_good(access: IssuerAccess, submissions: Sequence[Submission], state: ResumeState) -> dict[int, IssuedToken]:
    """Return the recorded tokens that fit these results and live long enough, checked like an answer."""
    now = int(time.time())
    by_content = {
        (token.claims_digest, token.content_digest): token
        for token in state.tokens()
        if token.expires_at - now >= LEAST_LEFT_S
    }
    if not by_content:
        return {}
    url = check_url(access.issuer)
    keys = fetch_keys(url, patience_s=access.patience_s)
    good = {}
    for index, submission in enumerate(submissions):
        if token := by_content.get((submission.claims_digest, submission.content_digest)):
            request = SentRequest(url, (submission,), access.integration, access.audience)
            with contextlib.suppress(VerificationError, Undecided):
                (good[index],) = check_answer(request, (token,), keys, now)
    return good


def _refusals(batch: Sequence[int], refused: Refused) -> list[ResultRefusal]:
    """Return the refused results of a batch with the failed checks; [] if the error is not about single results."""
    checks = refused.checks if isinstance(refused, Denied) else tuple(map(_check_of, refused.faults))
    failed: dict[int, list[ShownCheck]] = {}
    for check in checks:
        if not check.passed:
            if (place := _place(check)) is None:
                return []
            failed.setdefault(place, []).append(replace(check, pointer="/".join(["", *check.pointer.split("/")[3:]])))
    return [
        ResultRefusal(batch[place], Code.named(failed[place][0].code) or refused.code, tuple(failed[place]))
        for place in sorted(failed)
        if place < len(batch)
    ]


def _place(check: ShownCheck) -> int | None:
    """Return the index of the check's result in the request's `results`, or None."""
    _, _, rest = check.pointer.partition("/results/")
    place = rest.partition("/")[0]
    return int(place) if check.pointer.startswith("/results/") and place.isascii() and place.isdigit() else None


def _check_of(fault: Fault) -> ShownCheck:
    return ShownCheck(str(fault.code), fault.pointer, "", False, fault.detail, "", fault.code.meaning.remedy)
