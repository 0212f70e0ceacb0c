"""The folder in which a relying party keeps its receipts (`issuer verify --keep-receipts DIR`), with a key of its own.

Made on first use: `receipt.pem` signs receipts and `receipt-keys.json` is its public half, which a trust file lists
under `receipt_keys`. A `.gitignore` keeps the key out of a repository that the folder may lie in. Where the key is gone
none takes its place: receipts would be by keys that nobody lists.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats import jcs, jose
from issuer.relying.documents import demand_own
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
            files.replace(
                public, jcs.canonical({"keys": [jose.public_jwk(key.public_key())]}), mode=0o644, durable=True
            )
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
