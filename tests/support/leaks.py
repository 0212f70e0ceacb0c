"""A search for secrets in texts: whole or in part, plain or in the usual encodings."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from issuer.dev.sandbox import AUDIENCE
from tests.support.running import METRIC_VALUE, Running

# A partly leaked secret is found if this many bytes in a row leaked; a shorter run may be chance.
GRAM = 12


class Secrets:
    """Secrets that must not appear. `digests` also searches for their SHA-256 in hexadecimal."""

    def __init__(self, *, digests: bool = True) -> None:
        self._whole: dict[bytes, str] = {}
        self._grams: dict[bytes, str] = {}
        self._digests = digests

    def __len__(self) -> int:
        """Return how many spellings of secrets are searched for."""
        return len(self._whole)

    def add(self, name: str, secret: str | bytes, *, random: bool = True) -> None:
        """Add a secret. Parts of a chosen secret, such as a password, are not searched for."""
        raw = secret.encode() if isinstance(secret, str) else secret
        for form in spellings(raw):
            self._whole[form] = name
            if random:
                self._grams.update((gram, name) for gram in _apart(form))
        if self._digests:
            self._whole[hashlib.sha256(raw).hexdigest().encode()] = f"the SHA-256 of {name}"

    def add_token(self, name: str, token: str) -> None:
        """Add a credential: the signature of a JWT is a secret in each part, its header and payload only as a whole."""
        head, _, signature = token.rpartition(".")
        self.add(name, signature)
        self.add(name, token, random=False)
        if head:
            self.add(name, head.partition(".")[2], random=False)

    def found_in(self, text: bytes) -> set[str]:
        """Name the secrets of which a text contains at least a part."""
        found = {name for form, name in self._whole.items() if form in text}
        grams = (text[at : at + GRAM] for at in range(len(text) - GRAM + 1))
        return found | {self._grams[gram] for gram in grams if gram in self._grams}


def _apart(form: bytes) -> Iterator[bytes]:
    """Yield adjacent grams: every run of twice their length contains one."""
    for at in range(0, len(form) - GRAM + 1, GRAM):
        yield form[at : at + GRAM]


def spellings(raw: bytes) -> Iterable[bytes]:
    """Return a secret as it is, in hexadecimal, in base64 at any place of a longer text, in URLs and in JSON."""
    forms = {raw, raw.hex().encode(), raw.hex().upper().encode(), *_base64_anywhere(raw)}
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return forms
    escaped = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    return forms | {form.encode() for form in (quote(text, safe=""), quote(text), quote_plus(text), *escaped)}


def _base64_anywhere(raw: bytes) -> Iterator[bytes]:
    """Yield the characters that are the same in every longer text, for each place in a group of three."""
    for before in range(3):
        whole = (before + len(raw)) // 3 * 4
        text = base64.b64encode(bytes(before) + raw)[4 if before else 0 : whole]
        if len(text) >= GRAM:
            yield from (text, text.translate(bytes.maketrans(b"+/", b"-_")))


def assert_nothing_secret(live: Running) -> None:
    """Search the log stream and the audit for every credential, metric value, private key and issued token."""
    written = live.log_text() + live.settings.audit_file.read_text("utf-8")
    assert "decision" in written
    assert AUDIENCE not in live.log_text()
    assert str(METRIC_VALUE) not in written
    assert "inspect eval" not in written, "a command was written"
    assert "PRIVATE KEY" not in written
    assert live.settings.store_secret.read_text("utf-8").strip() not in written
    # A random jti, of 22 characters, may begin like a token.
    assert not re.search(r"eyJ[A-Za-z0-9_-]{20}", written), "something in the form of a token was written"
    for secret in live.secrets:
        for part in (secret, *secret.split(".")):
            assert len(part) < 20 or part not in written, "a credential, or a part of one, was written"
