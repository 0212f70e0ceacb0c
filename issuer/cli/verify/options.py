"""Options of a relying party's commands: trust, time of receipt, and the folder of receipts.

`issuer verify --keep-receipts DIR` makes DIR at its first use. `receipt.pem` is the key that signs receipts.
`receipt-keys.json` is its public half, which a trust file lists under `receipt_keys`. A `.gitignore` keeps the key out
of a repository around DIR. The command does not replace a lost key, because no trust file would list the new key.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from issuer.cli.options import A_FILE, A_FOLDER, all_of, read_time
from issuer.cli.terminal import printable, say
from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats import jcs, jose
from issuer.io import files, keyfile
from issuer.relying.documents import Documents, default_folder, demand_own
from issuer.relying.trusted import SeenLists, Trusted, default_state
from issuer.verify.receipts import check_key
from issuer.verify.trust import Trust

KEY = "receipt.pem"
PUBLIC = "receipt-keys.json"
IGNORED = ".gitignore"


def open_key(folder: Path, elsewhere: Path | None, *, listed: bool) -> Ed25519PrivateKey:
    """Return the key that signs this folder's receipts: the key at `elsewhere`, or the folder's. Makes missing files.

    `listed` means that a trust file lists the valid receipt keys. Without one, the keys in the folder are valid.

    Raises SetupError for a folder that other users can write, and for a key that is unusable or lost.
    """
    files.make_folder(folder)
    demand_own(folder, "--keep-receipts")
    with files.locked(folder / ".lock"):
        public, own = folder / PUBLIC, folder / KEY
        if elsewhere is None and not own.exists():
            if public.exists():
                detail = f"{own}, which signs receipts, is missing: restore it, or use the receipts with --receipts"
                raise SetupError(Code.KEY_UNUSABLE, detail)
            _keep_out_of_git(folder)
            keyfile.write(own, keyfile.generate())
        key = keyfile.read(own if elsewhere is None else elsewhere)
        if not public.exists() and not (listed and elsewhere is not None):
            keys = jcs.canonical({"keys": [jose.public_jwk(key.public_key())]})
            files.replace(public, keys, mode=0o644, durable=True)
        return key


def _keep_out_of_git(folder: Path) -> None:
    """Write a .gitignore so that `git add` in a surrounding checkout leaves the key out. Keeps an existing file."""
    with contextlib.suppress(FileExistsError):
        files.create(folder / IGNORED, f"{KEY}\n.lock\n".encode(), mode=0o644)


def public_keys(folder: Path | None) -> Path | None:
    """Return the file of public keys in a folder of receipts, or None. Raises SetupError as `demand_own`."""
    if folder is None or not (folder / PUBLIC).exists():
        return None
    demand_own(folder, "--receipts")
    return folder / PUBLIC


def demand_listed(trust: Trust, key: Ed25519PrivateKey, folder: Path, trust_file: Path | None) -> None:
    """Raise SetupError(`key.unusable`) if the trust file does not list the key. The error has the line to add."""
    try:
        check_key(trust, key)
    except SetupError as error:
        if trust_file is None or trust.receipt_keys:
            raise
        name = os.path.relpath(folder / PUBLIC, trust_file.parent)
        detail = f'{error.detail}. Add this line to {trust_file}: receipt_keys: {{file: "{name}"}}'
        raise SetupError(error.code, detail) from None


class Judging(Struct, frozen=True, kw_only=True):
    """The values of `judging_options`, by option name."""

    trust: Path | None = None
    issuer: str | None = None
    audience: str | None = None
    at: str | None = None
    received_now: bool = False
    receipts: Path | None = None
    benchmarks: Path | None = None
    cache: Path | None = None
    state: Path | None = None
    offline: bool = False


judging_options = all_of(
    click.option("--trust", type=A_FILE, metavar="FILE", help="The trust file."),
    click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust."),
    click.option("--audience", metavar="AUD", help="Without a trust file: your audience, which tokens must name."),
    click.option("--at", metavar="TIME", help="Time of receipt: ISO 8601 with an offset, or Unix seconds."),
    click.option("--received-now", is_flag=True, help="The file is received now: an expired token is a no."),
    click.option("--receipts", type=A_FOLDER, metavar="DIR", help="Use the receipts in DIR, and write none."),
    click.option("--benchmarks", type=A_FOLDER, metavar="DIR", help="Definitions: DIR/OWNER/NAME/REVISION/eval.yaml."),
    click.option("--offline", is_flag=True, help="Fetch nothing: use cached documents of any age, and show the age."),
    click.option("--cache", type=A_FOLDER, metavar="DIR", help="The folder of fetched key sets."),
    click.option("--state", type=A_FOLDER, metavar="DIR", help="The folder of the newest known revocation lists."),
)


def received_at(options: Judging, now: int) -> int | None:
    """Return the time of receipt, or None if it is unknown, as for a reader. Raises click.UsageError."""
    if options.at is not None and options.received_now:
        raise click.UsageError("give --at TIME or --received-now, not both")
    if options.at is not None:
        return read_time(options.at, "--at")
    return now if options.received_now else None


def read_trusted(options: Judging, now: int, receipts: Path | None = None) -> Trusted:
    """Read the trust file, and fetch its key sets and revocation lists; or trust one issuer, and the keys in the folder
    of `receipts`. Raises click.UsageError, InputError and SetupError."""
    state = options.state or default_state()
    seen = None if state is None else SeenLists(state)
    documents = Documents(options.cache or default_folder(), now, offline=options.offline)
    if options.trust is not None:
        if options.issuer or options.audience:
            raise click.UsageError("give --trust, or --issuer with --audience, not both")
        return Trusted.by_file(options.trust, documents, seen)
    if options.issuer and options.audience:
        return Trusted.in_issuer(options.issuer, options.audience, documents, seen, public_keys(receipts))
    raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")


def trusted_by(options: Judging, now: int, receipts: Path | None) -> Trusted:
    """Return the trust as by `read_trusted`, and print warnings about unlimited issuers and missing documents."""
    trusted = read_trusted(options, now, receipts)
    for issuer in trusted.trust.unlimited:
        rule = "may sign for every framework, and so may other issuers in the file: name its `frameworks`"
        say(f"issuer: warning: {printable(issuer)} {rule}", err=True)
    for absence in trusted.trust.absent:
        say(f"issuer: warning: {absence.pointer} of the trust file: {printable(absence.reason)}", err=True)
    return trusted
