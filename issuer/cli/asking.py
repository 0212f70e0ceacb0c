"""What is said of an error while an issuer is asked: which checks of a policy failed, and what of the credential."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from issuer.cli.checks import render_checks
from issuer.cli.terminal import printable, say
from issuer.client.compare import COMPARED, compare
from issuer.client.credential import Credential
from issuer.client.tokens import fetch_metadata
from issuer.codes import Code
from issuer.errors import Refused
from issuer.wire import Denied, ShownCheck

# How long to wait for what only makes a refusal clearer.
_METADATA_S = 5.0
# What the issuer takes for the other kind of credential was given by the wrong flag or variable.
_TAKEN_FOR_THE_OTHER = {
    (Code.NONCE_REQUIRED, False): "an access token is given by --access-token-file or $ISSUER_ACCESS_TOKEN",
    (Code.NONCE_INVALID, True): "an identity token is given by --id-token-file or $ISSUER_ID_TOKEN",
}


@contextlib.contextmanager
def explaining(url: str, used: Callable[[], Credential]) -> Iterator[None]:
    """Say more of a refusal, by the issuer at `url` and of the credential that was `used`."""
    try:
        yield
    except Denied as refusal:
        say_warnings(refusal.warnings)
        say(
            render_checks([_without_last_word(check, refusal) for check in refusal.checks if not check.passed]),
            err=True,
        )
        told = Refused(refusal.code)
        told.page = refusal.page
        raise told from None
    except Refused as refusal:
        say_warnings(refusal.warnings)
        compare_with(refusal, url, used)
        raise


def compare_with(refusal: Refused, url: str, used: Callable[[], Credential]) -> None:
    """Put what the credential says beside what is wanted, where it was refused for that."""
    if refusal.code in {Code.NONCE_REQUIRED, Code.NONCE_INVALID}:
        if hint := _TAKEN_FOR_THE_OTHER.get((refusal.code, used().reusable)):
            say(hint, err=True)
    elif refusal.code in COMPARED:
        document = fetch_metadata(url, patience_s=_METADATA_S)
        refusal.compared = compare(refusal.code, used().bearer, document, int(time.time()))


def say_warnings(warnings: Iterable[str]) -> None:
    """Say what an issuer warns of."""
    for warning in warnings:
        say(f"warning: {printable(warning)}", err=True)


def _without_last_word(check: ShownCheck, refusal: Denied) -> ShownCheck:
    """Leave out of a check the next step that the refusal itself ends with."""
    return replace(check, hint="") if check.hint == refusal.code.meaning.remedy else check
