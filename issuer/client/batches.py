"""Tokens for many results: batches, an identity for each request, and a folder from which a killed submission goes on.

The folder has a file for each request, put in its place in one step: its nonce before it is sent, its tokens once they
are received, never a secret. A token from it is checked as an issuer's answer; a file that cannot be read is ignored.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
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
from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON
from issuer.io import files
from issuer.io.http_client import PATIENCE_S, check_url
from issuer.results.entry import Submission
from issuer.token.wire import MAX_BYTES, MAX_RESULTS, Denied, Explained, IssuedToken, ShownCheck, is_nonce

FOLDER = ".issuer-submit"
_MAX_BYTES = 8 * 1024 * 1024  # of a batch: a hundred tokens and their entries
_LOCK_S = 60.0


class _Request(Struct, frozen=True):
    """One file: the request's nonce, "" where it needs none, and the tokens that were received for it."""

    version: Literal[1]
    nonce: str = ""
    tokens: tuple[IssuedToken, ...] = ()


class ResumeState:
    """The folder; made when something is kept. Raises OSError where it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep another submission with this folder waiting. Raises OSError where it waits too long."""
        files.make_folder(self.folder, mode=0o777, follow=False)
        if not (ignored := self.folder / ".gitignore").exists():
            files.replace(ignored, b"*\n", mode=None, durable=False, follow=False)
        with files.folder_locked(self.folder, wait_s=_LOCK_S):
            yield

    def nonce(self, key: str) -> str:
        """Return the nonce of a request that was begun and has no answer yet; "" where there is none. `key` is the
        digest of the request."""
        found = self._read(self._path(key))
        return found.nonce if is_nonce(found.nonce) and not found.tokens else ""

    def begin(self, key: str, nonce: str) -> None:
        """Keep the nonce of a request that is about to be sent: sent again with it, it gets the same tokens."""
        self._write(key, _Request(1, nonce))

    def finish(self, key: str, tokens: tuple[IssuedToken, ...]) -> None:
        """Keep the tokens of a request."""
        self._write(key, _Request(1, "", tokens))

    def tokens(self) -> Iterator[IssuedToken]:
        """Yield every token that is here, those that live longest last."""
        found = [token for path in sorted(self.folder.glob("*.kept")) for token in self._read(path).tokens]
        yield from sorted(found, key=lambda token: token.expires_at)

    def prune(self, now: int) -> None:
        """Remove the requests whose tokens have all ended."""
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

# A token that was kept is used again while it has this long to live: its file has to be received before it ends.
LEAST_LEFT_S = 300
# How many results a rehearsal has refused before it asks no more: refusals count against the identity.
MAX_REFUSED = 10
# An identity lives for minutes; one that was fetched anew is good.
_ENDED = frozenset({Code.IDENTITY_EXPIRED, Code.IDENTITY_TOO_OLD, Code.DEPENDENCY_STATE_RESET})
# How far the clock of who makes identities may be behind the issuer's store.
CLOCKS_S = 2
_ROOM = 4096  # of a batch's body, for what is beside its results


class IssuerAccess(Struct, frozen=True):
    """The issuer to ask, and the identity to ask with. `identity` is called for every request: where the CI makes fresh
    tokens, each request has its own. It raises SetupError and Undecided."""

    issuer: str
    identity: Callable[[], Credential]
    integration: str | None = None
    audience: str | None = None
    patience_s: float = PATIENCE_S

    def asked(self, submissions: Sequence[Submission]) -> SentRequest:
        """Return what an answer is held against."""
        return SentRequest(check_url(self.issuer), tuple(submissions), self.integration, self.audience)

    def body(self, **members: JSON) -> dict[str, JSON]:
        """Return the body of a request."""
        named = {"integration": self.integration, "audience": self.audience}
        return {**members, **{name: text for name, text in named.items() if text}}


class ResultRefusal(Struct, frozen=True):
    """A result that the issuer refuses: its place among those that were asked for, from 0, and what did not pass."""

    index: int
    code: Code
    checks: tuple[ShownCheck, ...]


class ObtainedTokens(Struct, frozen=True):
    """What was answered: tokens by the result's place, those of an earlier start (`again`) among them, and refusals."""

    tokens: dict[int, IssuedToken]
    again: frozenset[int]
    refusals: tuple[ResultRefusal, ...]


def obtain_each(
    asking: IssuerAccess, submissions: Sequence[Submission], kept: ResumeState, *, keep_going: bool = False
) -> ObtainedTokens:
    """Get a token for each result, and keep each batch of them as soon as it is there. A batch is refused as a whole.
    Without `keep_going` the first one that is ends the asking; with it, the batch is asked for again without the
    results that were refused. Raises as `client.tokens.obtain` does for what is no refusal of a result, SetupError
    where no identity is to be had, and OSError for the folder."""
    tokens = _still_good(asking, submissions, kept)
    again, refusals = frozenset(tokens), list[ResultRefusal]()
    lacking = [index for index in range(len(submissions)) if index not in tokens]
    for batch in _batches(lacking, submissions):
        while batch:
            try:
                issued = _obtain(asking, [submissions[index] for index in batch], kept)
            except Refused as refused:
                found = _refusals(batch, refused)
                if not found:
                    raise
                refusals += found
                if not keep_going:
                    return ObtainedTokens(tokens, again, tuple(refusals))
                batch = [index for index in batch if index not in {each.index for each in found}]
                continue
            tokens.update(zip(batch, issued, strict=True))
            break
    return ObtainedTokens(tokens, again, tuple(refusals))


def explain_each(asking: IssuerAccess, submissions: Sequence[Submission]) -> Iterator[tuple[int, Explained]]:
    """Ask for each result what would be decided; no more once MAX_REFUSED are refused. Nothing is signed or used up,
    but each question counts as a request. Raises as `explain_request` does."""
    refused, credential = 0, None
    for index, each in enumerate(submissions):
        explained, credential = _renewed(asking, partial(_explain, asking, each), credential)
        yield index, explained
        refused += explained.verdict == "refused"
        if refused >= MAX_REFUSED:
            return


def _explain(asking: IssuerAccess, submission: Submission, by: Credential) -> Explained:
    return explain_request(asking.issuer, by, asking.body(**_item(submission)), patience_s=asking.patience_s)


# -- batches ----------------------------------------------------------------------------------------------------------


def _item(submission: Submission) -> dict[str, JSON]:
    return {"claims": submission.claims.to_json(), "details": submission.details}


def _batches(indices: Sequence[int], submissions: Sequence[Submission]) -> Iterator[list[int]]:
    """Cut what is to be asked for into bodies that an issuer takes; the same results make the same bodies."""
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


def _obtain(asking: IssuerAccess, submissions: Sequence[Submission], kept: ResumeState) -> tuple[IssuedToken, ...]:
    """Ask for one batch. With a nonce of an earlier start the issuer repeats what it answered then; where it no longer
    does, the request is begun anew."""
    body = asking.body(results=[_item(each) for each in submissions])
    key = jcs.digest({"issuer": asking.issuer, "request": body})
    before = kept.nonce(key)
    try:
        issued = _request(asking, body, key, before, kept)
    except Refused as refused:
        if not before or refused.code is not Code.NONCE_REUSED:
            raise
        issued = _request(asking, body, key, "", kept)
    kept.finish(key, issued)
    return issued


def _request(
    asking: IssuerAccess, body: dict[str, JSON], key: str, nonce: str, kept: ResumeState
) -> tuple[IssuedToken, ...]:
    nonce = nonce or fresh_nonce()

    def ask(by: Credential) -> tuple[IssuedToken, ...]:
        if by.reusable:
            kept.begin(key, nonce)
        sent = {**body, "nonce": nonce} if by.reusable else body
        return obtain(asking.issuer, by, sent, "/tokens/batch", patience_s=asking.patience_s).tokens

    return _renewed(asking, ask)[0]


def _renewed(
    asking: IssuerAccess, ask: Callable[[Credential], Answer], credential: Credential | None = None
) -> tuple[Answer, Credential]:
    """Ask with a credential, a fresh one at first, and once more with another where it ended while it waited. An issuer
    whose store has just lost its memory says when it takes one that is fetched: until then, it waits. Returns the one
    that was good, too. What is said of one that cannot be renewed, as one in a variable, is raised."""
    first = credential or asking.identity()
    try:
        return ask(first), first
    except (Refused, Undecided) as error:
        if error.code not in _ENDED or (again := asking.identity()) == first:
            raise
        if error.code is Code.DEPENDENCY_STATE_RESET:
            wait_s = (error.retry_after_s or 1) + CLOCKS_S
            if wait_s > asking.patience_s:
                raise
            time.sleep(wait_s)
            again = asking.identity()
    return ask(again), again


def _still_good(asking: IssuerAccess, submissions: Sequence[Submission], kept: ResumeState) -> dict[int, IssuedToken]:
    """Find the tokens of an earlier start that are for these results and live long enough, checked as an answer is."""
    now = int(time.time())
    by_content = {
        (token.claims_digest, token.content_digest): token
        for token in kept.tokens()
        if token.expires_at - now >= LEAST_LEFT_S
    }
    if not by_content:
        return {}
    keys = fetch_keys(check_url(asking.issuer), patience_s=asking.patience_s)
    good = {}
    for index, each in enumerate(submissions):
        token = by_content.get((each.claims_digest, each.content_digest))
        if token is not None and (checked := _checked(asking, each, token, keys, now)) is not None:
            good[index] = checked
    return good


def _checked(
    asking: IssuerAccess, submission: Submission, token: IssuedToken, keys: jose.KeySet, now: int
) -> IssuedToken | None:
    try:
        return check_answer(asking.asked([submission]), (token,), keys, now)[0]
    except (VerificationError, Undecided):
        return None


def _refusals(batch: Sequence[int], refused: Refused) -> list[ResultRefusal]:
    """Say which results of a batch were refused, and why; none where it is not about single results."""
    checks = refused.checks if isinstance(refused, Denied) else tuple(map(_check_of, refused.faults))
    failed = [check for check in checks if not check.passed]
    if not all(_place(check) is not None for check in failed):
        return []
    ordered = sorted(failed, key=lambda check: _place(check) or 0)
    groups = ((place, tuple(found)) for place, found in groupby(ordered, key=_place) if place is not None)
    return [
        ResultRefusal(batch[place], Code.named(found[0].code) or refused.code, tuple(map(_alone, found)))
        for place, found in groups
        if place < len(batch)
    ]


def _place(check: ShownCheck) -> int | None:
    """Return which result of a request's `results` a check is of."""
    _, _, rest = check.pointer.partition("/results/")
    place = rest.partition("/")[0]
    return int(place) if check.pointer.startswith("/results/") and place.isascii() and place.isdigit() else None


def _alone(check: ShownCheck) -> ShownCheck:
    """Return the check as of a request with this result alone."""
    return replace(check, pointer="/".join(["", *check.pointer.split("/")[3:]]))


def _check_of(fault: Fault) -> ShownCheck:
    return ShownCheck(str(fault.code), fault.pointer, "", False, fault.detail, "", fault.code.meaning.remedy)
