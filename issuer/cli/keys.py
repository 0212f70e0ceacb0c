"""`issuer keys`: make and list signing keys. Never prints a private key."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from issuer.cli.terminal import printable, say, to_json
from issuer.files import read
from issuer.keyfile import MAX_PASSPHRASE_FILE
from issuer.service.signing.keyring import STATES, KeyState, generate, load_keys


@click.group()
def keys() -> None:
    """Make and list signing keys."""


_folder = click.option("--dir", "folder", type=click.Path(path_type=Path), default=Path("keys"), show_default=True)
_passphrase = click.option("--passphrase-file", type=click.Path(path_type=Path, exists=True), help="Encrypts the keys.")


def _read(path: Path | None) -> bytes | None:
    return read(path, MAX_PASSPHRASE_FILE, pipe=True).rstrip(b"\r\n") if path else None


@keys.command("generate")
@_folder
@_passphrase
@click.option("--state", type=click.Choice(STATES), help="Default: active where there is none, else next.")
def generate_key(folder: Path, passphrase_file: Path | None, state: KeyState | None) -> None:
    """Make an Ed25519 key, named by its RFC 7638 thumbprint, readable by its owner alone."""
    chosen: KeyState = state or ("next" if any((folder / "active").glob("*.pem")) else "active")
    say(printable(str(generate(folder, chosen, _read(passphrase_file)))))


@keys.command("list")
@_folder
@_passphrase
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_keys(folder: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """List the keys with their states."""
    found = [{"kid": key.kid, "state": key.state} for key in load_keys(folder, _read(passphrase_file))]
    if as_json:
        say(to_json(found))
        return
    for key in found:
        say(f"{key['state']:<10}{key['kid']}")
