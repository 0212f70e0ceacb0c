"""Options by which a relying party's commands judge, the trust and the time of receipt that they name, and receipts.

The folder of `issuer verify --keep-receipts DIR` is made on first use: `receipt.pem` signs receipts,
`receipt-keys.json` is its public half, which a trust file lists under `receipt_keys`, and a `.gitignore` keeps the key
out of a repository around the folder. A key that is gone gets no successor: nobody lists the keys of its receipts.
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
    """Return the key that signs this folder's receipts: the one elsewhere, or else its own; make what is missing.

    `listed`: a trust file says whose receipts count. Without one those by the keys in the folder do.

    Raises SetupError for a folder that others can write to, and for a key that cannot be used or is gone.
    """
    files.make_folder(folder)
    demand_own(folder, "--keep-receipts")
    with files.locked(folder / ".lock"):
        public, own = folder / PUBLIC, folder / KEY
        if elsewhere is None and not own.exists():
            if public.exists():
                detail = f"{own} is gone, which signs receipts; put it back, or use what is there with --receipts"
                raise SetupError(Code.KEY_UNUSABLE, detail)
            _keep_out_of_git(folder)
            keyfile.write(own, keyfile.generate())
        key = keyfile.read(own if elsewhere is None else elsewhere)
        if not public.exists() and not (listed and elsewhere is not None):
            keys = jcs.canonical({"keys": [jose.public_jwk(key.public_key())]})
            files.replace(public, keys, mode=0o644, durable=True)
        return key


def _keep_out_of_git(folder: Path) -> None:
    """Have `git add` in a checkout that the folder lies in leave the key alone; a file that is there stays as it is."""
    with contextlib.suppress(FileExistsError):
        files.create(folder / IGNORED, f"{KEY}\n.lock\n".encode(), mode=0o644)


def public_keys(folder: Path | None) -> Path | None:
    """Return the file with the keys of a folder of receipts, where it has one."""
    if folder is None or not (folder / PUBLIC).exists():
        return None
    demand_own(folder, "--receipts")
    return folder / PUBLIC


def demand_listed(trust: Trust, key: Ed25519PrivateKey, folder: Path, trust_file: Path | None) -> None:
    """Raise SetupError(`key.unusable`) for a key whose receipts this trust would not believe, with the line to add."""
    try:
        check_key(trust, key)
    except SetupError as error:
        if trust_file is None or trust.receipt_keys:
            raise
        name = os.path.relpath(folder / PUBLIC, trust_file.parent)
        detail = f'{error.detail}. Add this line to {trust_file}: receipt_keys: {{file: "{name}"}}'
        raise SetupError(error.code, detail) from None


# -- judging -----------------------------------------------------------------------------------------------------------


class Judging(Struct, frozen=True):
    """By what is judged, by the names of the options."""

    trust: Path | None
    issuer: str | None
    audience: str | None
    at: str | None
    received_now: bool
    receipts: Path | None
    benchmarks: Path | None
    cache: Path | None
    state: Path | None
    offline: bool

    @property
    def receipts_folder(self) -> Path | None:
        """Where receipts lie, to use or to keep."""
        return self.receipts


judging_options = all_of(
    click.option("--trust", type=A_FILE, metavar="FILE", help="The trust file to judge by."),
    click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust."),
    click.option("--audience", metavar="AUD", help="Without a trust file: who is asking, as tokens must name it."),
    click.option("--at", metavar="TIME", help="When it was received: ISO 8601 with an offset, or Unix seconds."),
    click.option("--received-now", is_flag=True, help="It is being received now: a token that has ended is a no."),
    click.option("--receipts", type=A_FOLDER, metavar="DIR", help="Use the receipts that are there, and write none."),
    click.option("--benchmarks", type=A_FOLDER, metavar="DIR", help="Definitions: DIR/OWNER/NAME/REVISION/eval.yaml."),
    click.option(
        "--offline", is_flag=True, help="Fetch nothing: use what was fetched before, however old; its age is said."
    ),
    click.option("--cache", type=A_FOLDER, metavar="DIR", help="Where fetched key sets are kept."),
    click.option(
        "--state", type=A_FOLDER, metavar="DIR", help="Where the newest revocation lists seen are remembered."
    ),
)


def received_at(options: Judging, now: int) -> int | None:
    """Return when the file was received; None for a reader, who cannot know. Raises click.UsageError."""
    if options.at is not None and options.received_now:
        raise click.UsageError("give --at TIME or --received-now, not both")
    if options.at is not None:
        return read_time(options.at, "--at")
    return now if options.received_now else None


def trusted_by(options: Judging, now: int) -> Trusted:
    """Read and fetch what is trusted, and warn of what is missing. Raises click.UsageError, InputError, SetupError."""
    state = options.state or default_state()
    seen = None if state is None else SeenLists(state)
    documents = Documents(options.cache or default_folder(), now, offline=options.offline)
    if options.trust is not None:
        if options.issuer or options.audience:
            raise click.UsageError("give --trust, or --issuer with --audience, not both")
        trusted = Trusted.by_file(options.trust, documents, seen)
    elif options.issuer and options.audience:
        keys = public_keys(options.receipts_folder)
        trusted = Trusted.in_issuer(options.issuer, options.audience, documents, seen, keys)
    else:
        raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")
    for issuer in trusted.trust.unlimited:
        rule = "may speak for every framework, as other issuers here may: name its `frameworks`"
        say(f"issuer: warning: {printable(issuer)} {rule}", err=True)
    for absence in trusted.trust.absent:
        say(f"issuer: warning: {absence.pointer} of the trust file: {printable(absence.reason)}", err=True)
    return trusted
