"""What may be done with a signing key now, and what is said where it may not: from when, or what else to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats.times import show_span, show_time
from issuer.service.bounds import CLOCK_BACK_S, PUBLISHED_S
from issuer.service.signing.key_files import OTHERS, KeyFile, in_state
from issuer.service.signing.keyring import STATES
from issuer.service.signing.life import Lives, may_sign_from

Target = Literal["next", "active", "retiring", "archived"]
# Where a key may be brought by hand, and from where.
_FROM: dict[Target, tuple[str, ...]] = {
    "next": ("archived",),
    "active": ("next", "retiring"),
    "retiring": ("active",),
    "archived": ("next", "retiring"),
}
_STOLEN = "if the active key may be stolen, say --compromised"


def refused(why: str) -> SetupError:
    """Make the error for a step that is not allowed."""
    return SetupError(Code.KEY_STEP, why)


def file_of(found: Sequence[KeyFile], kid: str, lives: Lives) -> KeyFile:
    """Return the one file of a key. Raises SetupError(`key.step`)."""
    mine = [file for file in found if file.kid == kid and file.state not in OTHERS]
    if len(mine) > 1:
        raise refused(f"{kid} lies in two folders, {mine[0].path} and {mine[1].path}: remove one")
    if not mine:
        raise refused(
            f"{kid}: {'its file is gone' if kid in lives else 'there is no such key; see `issuer keys list`'}"
        )
    return mine[0]


def demand_step(file: KeyFile, to: Target, lives: Lives, found: Sequence[KeyFile]) -> None:
    """Demand that a key in this state may come into that one at all. Raises SetupError(`key.step`)."""
    kid, state = file.kid, file.state
    if state == "revoked" or (kid in lives and lives[kid].revoked_from is not None):
        raise refused(f"{kid} is revoked, and never signs again; make another key with `issuer keys generate`")
    if state == to:
        raise refused(f"{kid} is {to} already: {file.path}")
    if state == "active" and (to != "retiring" or len(in_state(found, "active")) == 1):
        raise refused(
            f"{kid} signs now, and retires when another key takes over (`issuer keys rotate`). If it may be stolen, "
            f"`issuer keys revoke key-{kid}`"
        )
    if state not in _FROM[to]:
        anew = f"; `issuer keys rotate key-{kid} --to next` publishes it anew" if state == "archived" else ""
        raise refused(f"{kid} is {state}, from where no key becomes {to}{anew}")


def demand_known(kid: str, lives: Lives, now: int) -> None:
    """Demand that every relying party can know a key. Raises SetupError(`key.step`)."""
    signs_from = may_sign_from(lives, kid)
    if signs_from is None:
        why = f"{kid} signs {show_span(PUBLISHED_S)} after every host has published it, and no service has said so yet"
        raise refused(f"{why}; {_STOLEN}")
    if signs_from > now:
        why = f"{kid} may sign from {show_time(signs_from)}: until then caches hold key sets without it"
        raise refused(f"{why}; {_STOLEN}")


def demand_expired(kid: str, lives: Lives, now: int) -> None:
    """Demand that no token that a key signed is good any more. Raises SetupError(`key.step`)."""
    ends = lives[kid].last_token_exp if kid in lives else None
    if ends is not None and ends > now:
        raise refused(f"the last token of {kid} expires at {show_time(ends)}: until then it stays in the key set")


def demand_opened(found: Sequence[KeyFile]) -> None:
    """Demand that keys of the key set are known for certain, and others at all. Raises SetupError(`key.unusable`)."""
    for file in found:
        if not file.opened and (file.state in STATES or not file.x):
            raise SetupError(Code.KEY_UNUSABLE, file.why or f"{file.path} is encrypted: give --passphrase-file")


def demand_one_kind(found: Sequence[KeyFile], *, encrypted: bool) -> None:
    """Demand that a new key is opened by what opens the others: the service has one passphrase, or none.

    Of a file that cannot be read nothing is demanded. Raises SetupError(`key.unusable`).
    """
    for file in found:
        if file.state not in STATES or file.encrypted is None or (file.encrypted == encrypted and file.opened):
            continue
        if not file.encrypted and encrypted:
            todo = (
                f"leave out the passphrase, or encrypt that key first: `openssl pkcs8 -topk8 -in {file.path} -out NEW`"
            )
            raise SetupError(Code.KEY_UNUSABLE, f"{file.path} is not encrypted, and one passphrase opens all; {todo}")
        if file.encrypted and not encrypted:
            raise SetupError(Code.KEY_UNUSABLE, f"{file.path} is encrypted: give --passphrase-file for this one, too")
        if file.encrypted:
            raise SetupError(Code.KEY_UNUSABLE, f"{file.why}; one passphrase opens all keys: give that of the others")


def demand_clock(history: str, latest: int, now: int) -> None:
    """Demand that the clock has not gone back since anything was recorded. Raises SetupError(`key.history`)."""
    if now + CLOCK_BACK_S < latest:
        raise SetupError(
            Code.KEY_HISTORY,
            f"the last line of {history} is of {show_time(latest)}, and this machine's clock says {show_time(now)}: "
            "correct the clock. If it was wrong then and is right now, correct the times of the lines",
        )
