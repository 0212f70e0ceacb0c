"""A keyring out of a folder of keys, as a service would load it."""

from pathlib import Path

from issuer.service.signing.keyring import KeyringSigner, Opener, find_keys


def load_keyring(folder: Path, passphrase: bytes | None = None, opener: Opener | None = None) -> KeyringSigner:
    """Load every key of the folder into a keyring that may sign. Raises SetupError and OSError."""
    found = find_keys(folder, lambda: passphrase, opener)
    if found.error is not None:
        raise found.error
    return KeyringSigner(found.keys)
