"""No public byte of the log says what was signed or who called, also not as a digest or in another encoding."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.service.log.database.engines import reading_at
from issuer.service.log.sequencer.setup import log_settings
from tests.support.logged import leaf_of, logged_service
from tests.support.promised import export_of
from tests.support.running import BODY, Running

TABLES = ("head", "entries", "hashes", "cosigned")
# Only words of at least so many characters are searched for. A shorter one may occur by chance, as an epoch second does.
LONG = 12
CLAIMS = {
    "model_repo": "acme-canary/canary-model",
    "model_revision": "c0ffee1234c0ffee1234c0ffee1234c0ffee1234",
    "metrics": [{"metric_id": "canary_metric", "value": 0.7316482951}],
    "framework": {"name": "inspect-ai", "version": "0.3.285", "command": "inspect eval canary --secret canary-flag"},
}
DETAILS = {"notes": "notes of the canary", "date": "2026-11-21T09:07:31Z"}


def test_no_public_byte_says_what_was_signed_or_who_called(tmp_path: Path) -> None:
    sent = {"claims": BODY["claims"] | CLAIMS, "details": DETAILS}
    with LocalProvider() as provider, logged_service(tmp_path / "service", provider) as service:
        identity = service.token()
        answer = service.post(identity, sent)
        assert answer.status_code == 201, answer.text
        token = answer.json()["verify_token"]
        leaf = {each.decode() for each in leaf_of(token).split()}
        public = b"\n".join(public_bytes(service, tmp_path / "tree"))
    assert payload(token)["sub"].encode() in public
    # A leaf, the log's name and the URL are public (tlog.md).
    known = {*leaf, service.settings.log.origin, service.url}
    values = {*words(sent), *words(payload(identity)), *words(payload(token)), token.split(".")[2]}
    secrets = {each for each in values - known if len(each) >= LONG}
    assert secrets >= {
        payload(identity)["repository"],
        *words(CLAIMS["model_repo"]),
        *words(CLAIMS["metrics"]),
        *words(DETAILS),
    }
    assert len(secrets) > 15
    assert not {each for each in secrets if any(form in public for form in disguises(each))}


def payload(token: str) -> dict[str, Any]:
    """Return the claims of a token."""
    read: dict[str, Any] = json.loads(jose.parse_compact(token).unverified_payload)
    return read


def words(value: Any) -> Iterator[str]:
    """Yield every text and number within a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from words(each)
    else:
        yield str(value)


def disguises(word: str) -> Iterator[bytes]:
    """Yield a word, and the encodings and digests by which a guess could be confirmed."""
    raw = word.encode()
    digest = hashlib.sha256(raw)
    yield from (raw, raw.hex().encode(), digest.digest(), digest.hexdigest().encode())
    yield from (base64.b64encode(each).rstrip(b"=") for each in (raw, digest.digest()))
    yield base64.urlsafe_b64encode(digest.digest()).rstrip(b"=")


def public_bytes(service: Running, folder: Path) -> Iterator[bytes]:
    """Return each cell of the database, each exported file, and what the service serves of its log."""
    with closing(reading_at(log_settings(service.settings, "").database)) as reading:
        for table in TABLES:
            for row in reading.fetch(f"SELECT * FROM {table}"):
                yield from (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
    export_of(service, folder)
    exported = [file for file in folder.rglob("*") if file.is_file()]
    assert len(exported) >= 3
    for file in exported:
        yield file.read_bytes()
        path = f"/log/{file.relative_to(folder)}"
        if (served := service.http.get(path)).status_code == 200:
            yield served.content
    yield service.http.get("/log/log.json").content
