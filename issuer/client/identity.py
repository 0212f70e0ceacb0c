"""The caller's identity token: from a file, from $ISSUER_ID_TOKEN, or from the CI that this runs in."""

from __future__ import annotations

import os
import re
from pathlib import Path

from issuer.errors import Code, SetupError

# RFC 6750 2.1, b64token.
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
VARIABLE = "ISSUER_ID_TOKEN"


def identity_token(audience: str, file: Path | None) -> str:
    """Return an identity token for `audience`. Raises SetupError(`settings.invalid`) with what to do.

    The order is: `file`, then $ISSUER_ID_TOKEN, then the ambient identity of GitHub Actions, GitLab, Buildkite,
    CircleCI or Google Cloud, by the `id` package. There is no flag: a command line is not a place for a secret.
    """
    if file is not None:
        try:
            return _checked(file.read_text("ascii").strip(), f"the file {file}")
        except (OSError, UnicodeDecodeError):
            raise SetupError(Code.SETTINGS_INVALID, f"the identity token file {file} cannot be read") from None
    if given := os.environ.get(VARIABLE, "").strip():
        return _checked(given, f"${VARIABLE}")
    return _checked(_ambient(audience), "the CI's answer")


def _checked(token: str, place: str) -> str:
    # What is no header value makes the HTTP library raise an error that quotes the token.
    if not _BEARER.fullmatch(token):
        raise SetupError(Code.SETTINGS_INVALID, f"{place} holds no identity token: it has other characters, or none")
    return token


def _ambient(audience: str) -> str:
    import id as ambient  # costs a start-up that most calls do not need

    try:
        token = ambient.detect_credential(audience)
    except ambient.IdentityError as error:
        raise SetupError(Code.SETTINGS_INVALID, f"the CI's identity cannot be had: {error}") from None
    if token is None:
        ways = "--id-token-file, $ISSUER_ID_TOKEN, or a CI job with `permissions: id-token: write` (or its like)"
        raise SetupError(Code.SETTINGS_INVALID, f"there is no identity here; give one by {ways}")
    return token
