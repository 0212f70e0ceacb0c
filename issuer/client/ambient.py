"""Where a caller's credential comes from: a file, standard input, the environment, or the CI that this runs in.

Never from the command line: a flag names a file. Neither what is read nor the name of its file is ever shown: the name
may be the secret itself, given in the wrong place.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from issuer.client.credential import Credential, access_token, identity_token
from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.files import read_argument

ID_TOKEN = "ISSUER_ID_TOKEN"  # noqa: S105  (names of variables)
ACCESS_TOKEN = "ISSUER_ACCESS_TOKEN"  # noqa: S105
CLIENT_SECRET = "ISSUER_CLIENT_SECRET"  # noqa: S105

_MAX_BYTES = 64 * 1024  # more than any credential may have
_SERVICE_SAYS = re.compile(r"(?:GitHub|GCP|GitLab|Buildkite|CircleCI): [A-Za-z0-9_ ,`-]{1,200}")


def identity_token_in(file: Path) -> Credential:
    """Return the identity token in a file; `-` is standard input. Raises SetupError(`settings.invalid`)."""
    return identity_token(_secret_in(file, "--id-token-file"), "what --id-token-file names")


def access_token_in(file: Path) -> Credential:
    """Return the access token in a file; `-` is standard input. Raises SetupError(`settings.invalid`)."""
    return access_token(_secret_in(file, "--access-token-file"), "what --access-token-file names")


def client_secret(file: Path | None) -> str:
    """Return the client's secret: in `file`, or in $ISSUER_CLIENT_SECRET. Raises SetupError(`settings.invalid`)."""
    if secret := _secret_in(file, "--client-secret-file") if file else _variable(CLIENT_SECRET):
        return secret
    raise _error(f"there is no client secret; give one by --client-secret-file or ${CLIENT_SECRET}")


def credential_here(audience: str) -> Credential:
    """Return the credential of the environment: one of its two variables, or an identity token from the CI.

    The CI is GitHub Actions, GitLab, Buildkite, CircleCI or Google Cloud, which the `id` package asks for `audience`.
    Raises SetupError(`settings.invalid`) with what to do.
    """
    identity, access = _variable(ID_TOKEN), _variable(ACCESS_TOKEN)
    if identity and access:
        raise _error(f"${ID_TOKEN} and ${ACCESS_TOKEN} are both set; unset the one that is not meant")
    if identity:
        return identity_token(identity, f"${ID_TOKEN}")
    if access:
        return access_token(access, f"${ACCESS_TOKEN}")
    return identity_token(_ambient(audience), "the CI's answer")


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _secret_in(file: Path, flag: str) -> str:
    try:
        return read_argument(file, _MAX_BYTES).decode("utf-8").strip()
    except (InputError, ValueError):
        raise _error(f"the file that {flag} names cannot be read, or is not UTF-8") from None


def _ambient(audience: str) -> str:
    import id as ambient  # costs a start-up that most calls do not need

    try:
        token = ambient.detect_credential(audience)
    except Exception as error:  # noqa: BLE001  (what it raises may quote what a CI's endpoint or tool said)
        said = _SERVICE_SAYS.match(str(error)) if isinstance(error, ambient.IdentityError) else None
        detail = f": {said[0].strip()}" if said else ""
        raise _error(f"the CI's identity cannot be had{detail}") from None
    if token is None:
        ways = (
            f"--id-token-file, --access-token-file, --oauth, ${ID_TOKEN}, ${ACCESS_TOKEN}, "
            "or a CI job with `permissions: id-token: write` (or its like)"
        )
        raise _error(f"there is no identity here; give one by {ways}")
    return token


def _error(detail: str) -> SetupError:
    return SetupError(Code.SETTINGS_INVALID, detail)
