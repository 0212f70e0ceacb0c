"""The proof that a token is in its issuer's transparency log, for a file of its own beside the result.

Tokens are short-lived and files stay: with the proof, a reader in years can see that the token existed in time. The log
has it once enough witnesses have cosigned, some seconds after the token. It is checked as far as the token alone
allows; whether these are the right log and witnesses is for a relying party to say, by its policy.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import UNSET, Struct

from issuer import files
from issuer.client.answer import proof_objection
from issuer.codes import Code
from issuer.errors import Undecided, VerificationError
from issuer.http_client import HttpRequest, check_url, send
from issuer.tlog.proof import MAX_PROOF_BYTES
from issuer.verify.check_log import sidecar_name
from issuer.verify_token import unverified_leaf
from issuer.wire import LOG_PATH, IssuedToken

PATIENCE_S = 10.0
_PAUSE_S = 0.5


class LogProof(Struct, frozen=True):
    """A tlog-proof (c2sp.org/tlog-proof) of the token with this digest: the 32 bytes in its leaf."""

    token: bytes
    raw: bytes


def wait_for_proof(issuer: str, issued: IssuedToken, *, patience_s: float = PATIENCE_S) -> LogProof | None:
    """Ask an issuer's log for the proof of a token, until witnesses have cosigned; None where `patience_s` passes
    before, and for a token that is in no log.

    Raises VerificationError(`answer.unverified`) for a proof that is not of this token in its log.
    """
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
    """Write the proof beside the result file that has its token, and return where: FILE.<16 hex>.tlog-proof.

    Raises OSError where it cannot be written, also where the file or a folder of its path is a symbolic link.
    """
    place = path.with_name(sidecar_name(path.name, proof.token))
    files.replace(place, proof.raw, mode=None, durable=True, follow=False)
    return place
