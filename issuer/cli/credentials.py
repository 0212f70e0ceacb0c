"""The options by which a command is given its credential. A flag names a file, and never is the secret."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from issuer.client.ambient import access_token_in, client_secret, credential_here, identity_token_in
from issuer.client.credential import Credential
from issuer.client.oauth import OAuthClient, client_credentials, token_endpoint


class CredentialOptions(Struct, frozen=True):
    """What the options say of the credential."""

    id_token_file: Path | None
    access_token_file: Path | None
    oauth: str | None
    token_endpoint: str | None
    client_id: str | None
    client_secret_file: Path | None

    @property
    def reads_standard_input(self) -> bool:
        """Say whether one of the files is standard input."""
        return Path("-") in {self.id_token_file, self.access_token_file, self.client_secret_file}

    def check(self) -> None:
        """Raise click.UsageError for options that contradict each other."""
        by_client = self.oauth or self.token_endpoint
        if sum(map(bool, (self.id_token_file, self.access_token_file, self.oauth, self.token_endpoint))) > 1:
            raise click.UsageError("give one of --id-token-file, --access-token-file, --oauth and --token-endpoint")
        if bool(by_client) != bool(self.client_id) or (self.client_secret_file and not by_client):
            raise click.UsageError("--client-id goes with --oauth or --token-endpoint, --client-secret-file with both")

    def credential(self, issuer: str) -> Credential:
        """Return the credential for an issuer's URL; by client credentials it is fetched now.

        Raises SetupError and Undecided.
        """
        if self.id_token_file:
            return identity_token_in(self.id_token_file)
        if self.access_token_file:
            return access_token_in(self.access_token_file)
        if self.client_id:
            client = OAuthClient(self.client_id, client_secret(self.client_secret_file))
            return client_credentials(self.token_endpoint or token_endpoint(self.oauth or ""), client, issuer)
        return credential_here(issuer)


def _file(flag: str, text: str) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path, allow_dash=True)
    return click.option(flag, type=kind, metavar="FILE", help=f'A file with {text}; "-" reads standard input.')


_OPTIONS = (
    _file("--id-token-file", "an identity token of this job (also $ISSUER_ID_TOKEN)"),
    _file("--access-token-file", "a personal or another access token (also $ISSUER_ACCESS_TOKEN)"),
    click.option("--oauth", metavar="URL", help="Get an access token from this OAuth server, as --client-id."),
    click.option("--token-endpoint", metavar="URL", help="The same, of a server that publishes no metadata."),
    click.option("--client-id", metavar="ID", help="Who you are to the OAuth server."),
    _file("--client-secret-file", "the OAuth client's secret (also $ISSUER_CLIENT_SECRET)"),
)  # fmt: skip


def credential_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them, checked, as `given`."""

    @functools.wraps(command)
    def gathered(**options: Any) -> None:
        given = CredentialOptions(**{name: options.pop(name) for name in CredentialOptions.__struct_fields__})
        given.check()
        command(given=given, **options)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered
