"""The writer of result files: it appends an entry or adds its token, and keeps the rest of the file.

Entries have the profile `both`, which all readers accept, or the target form. Proofs go beside the file.
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
from issuer.results.entry import Profile, Submission, default_profile, read_entries, result_file_name
from issuer.tlog.proof import MAX_PROOF_BYTES
from issuer.token.verify_token import unverified_leaf
from issuer.token.wire import LOG_PATH, IssuedToken
from issuer.verify.check_log import sidecar_name

STAND_IN = f"a.b.{'c' * 2000}"  # has the size of a token
_LOCK_S = 30.0  # the jobs of a matrix write the same file in turn, each in milliseconds


def demand_place(path: Path, benchmark_repo: object) -> None:
    """Raise the errors of `put_entry` for the present file, before any other work. Raises InputError also for a path at
    which results of this benchmark are never verified (check 6)."""
    if isinstance(benchmark_repo, str):
        place = Path(result_file_name(benchmark_repo))
        if Path(os.path.abspath(path)).parts[-2:] != place.parts:
            rule = f"results of {benchmark_repo} are only verified in {place} of a repository: use this path"
            raise InputError(Code.RESULT_FILE_NAME, rule, Place(str(path)))
    files.demand_replaceable(path, follow=False)
    if before := read_text(path):
        read_entries(before.encode(), str(path))


def shaped(entry: str, profile: Profile | None, primary: str | None) -> str:
    """Return an issued entry in a profile, by default `default_profile`; `primary` is the primary metric, if it is
    named. Raises InputError if `both` lacks the primary metric's score."""
    (issued,) = read_entries(entry.encode(), "the entry")
    profile = profile or default_profile(issued.form, primary)[0]
    return edit.rewrite(entry, "the entry", profile=profile, primary=primary)


def put_entry(
    path: Path, entry: str, *, append: bool = False, profile: Profile | None = None, primary: str | None = None
) -> bool:
    """Put an issued entry into a result file, or create the file; return whether the file changed.

    If the file has an entry with the same content, that entry gets the token, and keeps its form unless `profile` or
    `primary` is given. Otherwise, or with `append`, the entry is appended. Its profile is the given one. The default is
    `both`, which today's readers need, if the primary metric is known: it is `primary`, or the only metric. Otherwise
    it is `target`. The file must be a valid result file before and after. It is replaced in one step, and processes
    take turns. Raises InputError, and OSError if the file cannot be written.
    """
    entry = shaped(entry, profile, primary)
    files.make_folder(path.parent, mode=0o777, follow=False)
    with files.folder_locked(path.parent, wait_s=_LOCK_S):
        before, after = _edited(path, entry, append=append, reshape=bool(profile or primary))
        if after != before:
            write_text(path, after)
    return after != before


def rehearse_entry(
    path: Path | None, said: Submission, *, append: bool = False, profile: Profile | None = None, primary: str | None
) -> bool:
    """Raise the InputError that `put_entry` would raise for this result's entry, before a token is requested. Return
    whether the entry will have the `value` that today's readers need."""
    after = shaped(said.entry(STAND_IN), profile, primary)
    if path is not None:
        _, after = _edited(path, after, append=append, reshape=bool(profile or primary))
    entries = read_entries(after.encode(), str(path))
    return all(each.value is not UNSET for each in entries if each.token == STAND_IN)


def _edited(path: Path, entry: str, *, append: bool, reshape: bool) -> tuple[str, str]:
    """Return the file's text before and after."""
    before = read_text(path)
    if append:
        return before, edit.append(before, entry, str(path))
    return before, edit.put_entry(before, entry, str(path), reshape=reshape)


def read_text(path: Path) -> str:
    """Return the text of a result file; "" if it does not exist. Raises InputError."""
    try:
        # Bytes, not text: reading text would turn every CRLF into LF.
        return files.read(path, MAX_BYTES, follow=False).decode() if path.exists() else ""
    except UnicodeDecodeError as error:
        raise files.unreadable(path, str(error)) from None


def write_text(path: Path, after: str) -> None:
    """Replace a file in one step, or create it. Raises OSError, also if the file or a folder of its path is a symbolic
    link: another party controls the content of a checkout."""
    files.replace(path, after.encode(), mode=None, durable=True, follow=False)


# With a proof beside the result, a reader can verify years later that the token existed in time. The log has the proof
# some seconds after the token, once enough witnesses have cosigned. This client checks only that the proof is for the
# token. Relying parties decide by their policy which logs and witnesses count.

PATIENCE_S = 10.0
_PAUSE_S = 0.5


class LogProof(Struct, frozen=True):
    """A tlog-proof (c2sp.org/tlog-proof) of the token with this digest: the 32 bytes in its leaf."""

    token: bytes
    raw: bytes


def wait_for_proof(issuer: str, issued: IssuedToken, *, patience_s: float = PATIENCE_S) -> LogProof | None:
    """Ask an issuer's log for the proof of a token until witnesses have cosigned. Return None after `patience_s`, and
    for a token without a log. Raises VerificationError(`answer.unverified`) for a proof that does not show this token
    in its log."""
    if issued.log is UNSET:
        return None
    leaf, until = unverified_leaf(issued.verify_token), time.monotonic() + patience_s
    url = f"{check_url(issuer)}{LOG_PATH}/proof?iat={leaf.iat}&token={leaf.token.hex()}"
    while (left_s := until - time.monotonic()) > 0:
        raw = _fetch(url, left_s)
        if raw is not None:
            if reason := proof_objection(raw, issued.log.origin, leaf):
                detail = f"the proof of the token {issued.jti} does not show it in the log: {reason}"
                raise VerificationError(Code.ANSWER_UNVERIFIED, detail)
            return LogProof(leaf.token, raw)
        time.sleep(min(_PAUSE_S, max(0.0, until - time.monotonic())))
    return None


def _fetch(url: str, left_s: float) -> bytes | None:
    """Return the proof, or None for any status but 200 and for no answer: then the caller asks again."""
    try:
        answer = send(HttpRequest("GET", url, max_bytes=MAX_PROOF_BYTES), deadline_s=left_s)
    except Undecided:
        return None
    return answer.body if answer.status == 200 else None


def put_proof(path: Path, proof: LogProof) -> Path:
    """Write the proof beside the result file with its token, and return its path: FILE.<16 hex>.tlog-proof. Raises
    OSError if it cannot be written, also if the file or a folder of its path is a symbolic link."""
    place = path.with_name(sidecar_name(path.name, proof.token))
    files.replace(place, proof.raw, mode=None, durable=True, follow=False)
    return place
