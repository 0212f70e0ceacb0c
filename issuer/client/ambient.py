"""Where a caller's credential comes from: a file, standard input, the environment, or the CI that this runs in.

Never from the command line: a flag names a file. Neither what is read nor the name of its file is ever shown: the name
may be the secret itself, given in the wrong place.
"""

from __future__ import annotations

import json
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

# The tokens of the Hub; with what is named ISSUER_... nothing of it is any other program's.
_HUB_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_PROGRAM_S = 60

_MAX_BYTES = 64 * 1024  # more than any credential may have
_SERVICE_SAYS = re.compile(r"(?:GitHub|GCP|GitLab): [A-Za-z0-9_ ,`-]{1,200}")


def identity_token_in(file: Path) -> Credential:
    """Return the identity token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return identity_token(_secret_in(file, "--id-token-file"), "what --id-token-file names")


def access_token_in(file: Path) -> Credential:
    """Return the access token in a file; `-` is standard input. Raises SetupError(`credential.unusable`)."""
    return access_token(_secret_in(file, "--access-token-file"), "what --access-token-file names")


def client_secret(file: Path | None) -> str:
    """Return the client's secret: in `file`, or in $ISSUER_CLIENT_SECRET. Raises SetupError(`credential.unusable`)."""
    if secret := _secret_in(file, "--client-secret-file") if file else _variable(CLIENT_SECRET):
        return secret
    detail = f"there is no client secret; give one by --client-secret-file or ${CLIENT_SECRET}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail)


def credential_here(audience: str) -> Credential:
    """Return the credential of the environment: one of its two variables, or an identity token from the CI.

    The CI is GitHub Actions, GitLab or Google Cloud, which the `id` package asks for `audience`, or Buildkite or
    CircleCI, whose own program is asked. Raises SetupError with what to do: `credential.absent`, or
    `credential.unusable`.
    """
    identity, access = _variable(ID_TOKEN), _variable(ACCESS_TOKEN)
    if identity and access:
        raise _error(f"${ID_TOKEN} and ${ACCESS_TOKEN} are both set; unset the one that is not meant")
    if identity:
        return identity_token(identity, f"${ID_TOKEN}")
    if access:
        return access_token(access, f"${ACCESS_TOKEN}")
    return identity_token(_of_agent(audience) or _ambient(audience), "the CI's answer")


def _variable(name: str) -> str:
    return os.environ.get(name, "").strip()


def _secret_in(file: Path, flag: str) -> str:
    try:
        return read_argument(file, _MAX_BYTES).decode("utf-8").strip()
    except (InputError, ValueError):
        raise _error(f"the file that {flag} names cannot be read, or is not UTF-8") from None


def _of_agent(audience: str) -> str:
    """Return what the program of Buildkite or CircleCI answers; "" elsewhere.

    The `id` package would start it with the whole environment. It gets none of our secrets, and no shell.
    """
    if _variable("BUILDKITE"):
        return _ask("Buildkite", "buildkite-agent", "oidc", "request-token", "--audience", audience)
    if _variable("CIRCLECI"):
        claims = json.dumps({"aud": audience})
        return _ask("CircleCI", "circleci", "run", "oidc", "get", "--claims", claims, "--root-issuer")
    return ""


def _ask(service: str, *command: str) -> str:
    import subprocess  # costs a start-up, too

    kept = {
        name: text for name, text in os.environ.items() if name not in _HUB_TOKENS and not name.startswith("ISSUER_")
    }
    try:
        done = subprocess.run(  # noqa: S603  (a list, and no shell)
            command, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROGRAM_S, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        why = "does not answer" if isinstance(error, subprocess.TimeoutExpired) else "cannot be started"
    else:
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
        why = f"ends with {done.returncode}" if done.returncode else "answers nothing"
    detail = f"the CI's identity cannot be had: {service}: `{command[0]}` {why}"
    raise SetupError(Code.CREDENTIAL_ABSENT, detail) from None


def _ambient(audience: str) -> str:
    import id as ambient  # costs a start-up that most calls do not need

    try:
        token = ambient.detect_credential(audience)
    except ambient.GitHubOidcPermissionCredentialError:
        raise SetupError(Code.CREDENTIAL_ABSENT, _GITHUB) from None
    except Exception as error:  # noqa: BLE001  (what it raises may quote what a CI's endpoint or tool said)
        if _lacks_gitlab_token(audience):
            raise SetupError(Code.CREDENTIAL_ABSENT, _gitlab(audience)) from None
        said = _SERVICE_SAYS.match(str(error)) if isinstance(error, ambient.IdentityError) else None
        detail = f": {said[0].strip()}" if said else ""
        raise SetupError(Code.CREDENTIAL_ABSENT, f"the CI's identity cannot be had{detail}") from None
    if token is None:
        ways = f"--id-token-file, --access-token-file, --oauth, ${ID_TOKEN}, ${ACCESS_TOKEN} or a CI job that has one"
        raise SetupError(Code.CREDENTIAL_ABSENT, f"there is no identity here; give one by {ways}")
    return token


_GITHUB = """GitHub Actions gives this job no identity token. Allow it in the workflow:
    permissions:
      id-token: write
      contents: read
  A pull request from a fork never gets one: run on a push, on a schedule or by hand."""


def gitlab_variable(audience: str) -> str:
    """Return the variable in which a GitLab job has the identity token for an audience, by the rule of the `id`
    package: in capitals, `_` for all but letters and digits, `_ID_TOKEN` behind it."""
    return re.sub(r"[^A-Z0-9_]|^[^A-Z_]", "_", audience.upper()) + "_ID_TOKEN"


def _lacks_gitlab_token(audience: str) -> bool:
    return bool(_variable("GITLAB_CI")) and not _variable(gitlab_variable(audience))


def _gitlab(audience: str) -> str:
    name = gitlab_variable(audience)
    return f"""GitLab gives this job no identity token: ${name} is not set. Add to the job:
    id_tokens:
      {name}:
        aud: {audience}"""


def _error(detail: str) -> SetupError:
    return SetupError(Code.CREDENTIAL_UNUSABLE, detail)
