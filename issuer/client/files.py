"""Writes result files: an entry is appended or gets its token, and nothing else in the file changes.

An entry is written in the target form, or in the profile `both`, which today's readers take, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from msgspec import UNSET, Struct

from issuer.client.answer import proof_objection
from issuer.codes import Code
from issuer.errors import InputError, Place, Undecided, VerificationError
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.io import files
from issuer.io.http_client import HttpRequest, check_url, send
from issuer.results import edit
from issuer.results.entry import Profile, Submission, read_entries, result_file_name
from issuer.tlog.proof import MAX_PROOF_BYTES
from issuer.token.verify_token import unverified_leaf
from issuer.token.wire import LOG_PATH, IssuedToken
from issuer.verify.check_log import sidecar_name

STAND_IN = f"a.b.{'c' * 2000}"  # of the size of a token
_LOCK_S = 30.0  # jobs of one matrix write one file in turn, each in milliseconds


def demand_place(path: Path, benchmark_repo: object) -> None:
    """Raise, before any work is done for it, what `put_entry` would raise for the file as it is; and InputError for a
    place in which no result of this benchmark is ever verified (check 6), where the benchmark is a text at all."""
    if isinstance(benchmark_repo, str):
        place = Path(result_file_name(benchmark_repo))
        if Path(os.path.abspath(path)).parts[-2:] != place.parts:
            rule = f"results of {benchmark_repo} are verified in {place} of a repository only: name it so"
            raise InputError(Code.RESULT_FILE_NAME, rule, Place(str(path)))
    files.demand_replaceable(path, follow=False)
    if before := read_text(path):
        read_entries(before.encode(), str(path))


def shaped(entry: str, profile: Profile | None, primary: str | None) -> str:
    """Return an issued entry as it is written in a profile that has tokens; `primary` is the benchmark's metric. None
    is the form in which it was issued, `target`. Raises InputError where `both` lacks the primary metric's score."""
    return entry if profile is None else edit.rewrite(entry, "the entry", profile=profile, primary=primary)


def put_entry(
    path: Path, entry: str, *, append: bool = False, profile: Profile | None = None, primary: str | None = None
) -> bool:
    """Put an issued entry into a result file, or make the file with it; return whether that changed the file.

    An entry of the file that says the same gets the token of this one, and keeps its form unless a `profile` is given;
    otherwise, or with `append`, the entry is appended, in the target form or that of the profile. For `both`, `primary`
    is the benchmark's primary metric. The file must be readable as a result file, before and after; it is replaced in
    one step, by one process after the other. Raises InputError, and OSError where it cannot be written.
    """
    entry = shaped(entry, profile, primary)
    files.make_folder(path.parent, mode=0o777, follow=False)
    with files.folder_locked(path.parent, wait_s=_LOCK_S):
        before, after = _edited(path, entry, append=append, reshape=profile is not None)
        if after != before:
            write_text(path, after)
    return after != before


def rehearse_entry(
    path: Path | None, said: Submission, *, append: bool = False, profile: Profile | None = None, primary: str | None
) -> None:
    """Raise, before a token is spent on it, the InputError of `put_entry` for the entry of this result."""
    entry = shaped(said.entry(STAND_IN), profile, primary)
    if path is not None:
        _edited(path, entry, append=append, reshape=profile is not None)


def _edited(path: Path, entry: str, *, append: bool, reshape: bool) -> tuple[str, str]:
    """Return the file's text before and after."""
    before = read_text(path)
    if append:
        return before, edit.append(before, entry, str(path))
    return before, edit.put_entry(before, entry, str(path), reshape=reshape)


def read_text(path: Path) -> str:
    """Return the text of a result file, "" where it is not there. Raises InputError."""
    try:
        # Bytes, not text: reading text turns every CRLF of the file into LF.
        return files.read(path, MAX_BYTES, follow=False).decode() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise files.unreadable(path, str(error)) from None


def write_text(path: Path, after: str) -> None:
    """Replace a file in one step, or make it with its folders. Raises OSError, also where the file or a folder of its
    path is a symbolic link: a checkout is somebody else's."""
    files.make_folder(path.parent, mode=0o777, follow=False)
    files.replace(path, after.encode(), mode=None, durable=True, follow=False)


# With the proof beside a result, a reader in years can see that the token existed in time. The log has it some seconds
# after the token, once enough witnesses have cosigned. It is checked as far as the token alone allows: a relying party
# decides by its policy whether these are the right log and witnesses.

PATIENCE_S = 10.0
_PAUSE_S = 0.5


class LogProof(Struct, frozen=True):
    """A tlog-proof (c2sp.org/tlog-proof) of the token with this digest: the 32 bytes in its leaf."""

    token: bytes
    raw: bytes


def wait_for_proof(issuer: str, issued: IssuedToken, *, patience_s: float = PATIENCE_S) -> LogProof | None:
    """Ask an issuer's log for the proof of a token, until witnesses have cosigned; None where `patience_s` passes
    before, and for a token that is in no log. Raises VerificationError(`answer.unverified`) for a proof that is not of
    this token in its log."""
    if issued.log is UNSET:
        return None
    leaf, until = unverified_leaf(issued.verify_token), time.monotonic() + patience_s
    url = f"{check_url(issuer)}{LOG_PATH}/proof?iat={leaf.iat}&token={leaf.token.hex()}"
    while (left_s := until - time.monotonic()) > 0:
        raw = _ask(url, left_s)
        if raw is not None:
            if reason := proof_objection(raw, issued.log.origin, leaf):
                detail = f"the proof of the token {issued.jti} does not show it in the log: {reason}"
                raise VerificationError(Code.ANSWER_UNVERIFIED, detail)
            return LogProof(leaf.token, raw)
        time.sleep(min(_PAUSE_S, max(0.0, until - time.monotonic())))
    return None


def _ask(url: str, left_s: float) -> bytes | None:
    """Return the answer where there is one. Without it nothing is known, whatever the status: it is asked again."""
    try:
        answer = send(HttpRequest("GET", url, max_bytes=MAX_PROOF_BYTES), deadline_s=left_s)
    except Undecided:
        return None
    return answer.body if answer.status == 200 else None


def put_proof(path: Path, proof: LogProof) -> Path:
    """Write the proof beside the result file that has its token, and return where: FILE.<16 hex>.tlog-proof. Raises
    OSError where it cannot be written, also where the file or a folder of its path is a symbolic link."""
    place = path.with_name(sidecar_name(path.name, proof.token))
    files.replace(place, proof.raw, mode=None, durable=True, follow=False)
    return place
