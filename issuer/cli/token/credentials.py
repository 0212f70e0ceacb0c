"""Credentials of commands that send requests to an issuer: their options, and refusals compared with the credential.

An option names the file of a secret, and never contains the secret.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from issuer.cli.options import FILE_OR_INPUT, all_of
from issuer.cli.render import render_checks
from issuer.cli.terminal import printable, say
from issuer.client.credential import (
    Credential,
    OAuthClient,
    access_token_in,
    client_credentials,
    client_secret,
    credential_here,
    identity_token_in,
    token_endpoint,
)
from issuer.client.doctor import COMPARED, compare
from issuer.client.tokens import fetch_metadata
from issuer.codes import Code
from issuer.errors import Refused
from issuer.token.wire import Denied, ShownCheck


class CredentialOptions(Struct, frozen=True):
    """The values of the options that name a credential."""

    id_token_file: Path | None
    access_token_file: Path | None
    oauth: str | None
    token_endpoint: str | None
    client_id: str | None
    client_secret_file: Path | None

    @property
    def reads_standard_input(self) -> bool:
        """Return whether one of the files is standard input."""
        return Path("-") in {self.id_token_file, self.access_token_file, self.client_secret_file}

    def check(self) -> None:
        """Raise click.UsageError for options that contradict each other."""
        by_client = self.oauth or self.token_endpoint
        if sum(map(bool, (self.id_token_file, self.access_token_file, self.oauth, self.token_endpoint))) > 1:
            raise click.UsageError("give one of --id-token-file, --access-token-file, --oauth and --token-endpoint")
        if bool(by_client) != bool(self.client_id) or (self.client_secret_file and not by_client):
            raise click.UsageError("--client-id needs --oauth or --token-endpoint; --client-secret-file needs both")

    def credential(self, issuer: str) -> Credential:
        """Return the credential for an issuer's URL; fetch it for an OAuth client. Raises SetupError and Undecided."""
        if self.id_token_file:
            return identity_token_in(self.id_token_file)
        if self.access_token_file:
            return access_token_in(self.access_token_file)
        if self.client_id:
            client = OAuthClient(self.client_id, client_secret(self.client_secret_file))
            return client_credentials(self.token_endpoint or token_endpoint(self.oauth or ""), client, issuer)
        return credential_here(issuer)


def _file(flag: str, text: str) -> Callable[[Any], Any]:
    return click.option(flag, type=FILE_OR_INPUT, metavar="FILE", help=f'A file with {text}; "-" reads standard input.')


_OPTIONS = all_of(
    _file("--id-token-file", "an identity token of this job (also $ISSUER_ID_TOKEN)"),
    _file("--access-token-file", "a personal or OAuth access token (also $ISSUER_ACCESS_TOKEN)"),
    click.option("--oauth", metavar="URL", help="Get an access token from this OAuth server, as --client-id."),
    click.option("--token-endpoint", metavar="URL", help="Like --oauth, for a server that publishes no metadata."),
    click.option("--client-id", metavar="ID", help="Your client id at the OAuth server."),
    _file("--client-secret-file", "the OAuth client's secret (also $ISSUER_CLIENT_SECRET)"),
)


def credential_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them, checked, as `given`."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        given = CredentialOptions(**{name: options.pop(name) for name in CredentialOptions.__struct_fields__})
        given.check()
        command(given=given, **options)

    return _OPTIONS(run)


# Short, because the metadata only makes a refusal clearer.
_METADATA_S = 5.0
# Hints for a credential of the other kind, which came by the wrong option or variable.
_WRONG_KIND = {
    (Code.NONCE_REQUIRED, False): "give an access token by --access-token-file or $ISSUER_ACCESS_TOKEN",
    (Code.NONCE_INVALID, True): "give an identity token by --id-token-file or $ISSUER_ID_TOKEN",
}


@contextlib.contextmanager
def explaining(url: str, used: Callable[[], Credential]) -> Iterator[None]:
    """Explain a refusal by the issuer at `url`: print its failed checks, or compare it with the `used` credential."""
    try:
        yield
    except Denied as denial:
        say_warnings(denial.warnings)
        failed = [_without_remedy(check, denial) for check in denial.checks if not check.passed]
        say(render_checks(failed), err=True)
        refusal = Refused(denial.code)
        refusal.page = denial.page
        raise refusal from None
    except Refused as refusal:
        say_warnings(refusal.warnings)
        compare_with(refusal, url, used)
        raise


def compare_with(refusal: Refused, url: str, used: Callable[[], Credential]) -> None:
    """Add the credential's values and the wanted values to a refusal of the credential."""
    if refusal.code in {Code.NONCE_REQUIRED, Code.NONCE_INVALID}:
        if hint := _WRONG_KIND.get((refusal.code, used().reusable)):
            say(hint, err=True)
    elif refusal.code in COMPARED:
        document = fetch_metadata(url, patience_s=_METADATA_S)
        refusal.compared = compare(refusal.code, used().bearer, document, int(time.time()))


def say_warnings(warnings: Iterable[str]) -> None:
    """Print an issuer's warnings to standard error."""
    for warning in warnings:
        say(f"warning: {printable(warning)}", err=True)


def _without_remedy(check: ShownCheck, denial: Denied) -> ShownCheck:
    # The refusal ends with the same next step.
    return replace(check, hint="") if check.hint == denial.code.meaning.remedy else check
