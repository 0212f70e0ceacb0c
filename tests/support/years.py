"""An issuer and a relying party over years of a test's clock: real keys, history, lists and receipts, over real HTTP.

The code of the service and of the commands makes the issuer's documents, at the times of one clock.
"""

import asyncio
import json
from collections.abc import Callable, Collection
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.cli.verify.formats import JSON_LINES
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jose
from issuer.io import keyfile
from issuer.io.common_documents import FolderHome
from issuer.relying.bulk import Listener, judge_folder, processes
from issuer.relying.documents import Documents
from issuer.relying.folders import ReceiptFolder
from issuer.relying.trusted import SeenLists, Trusted
from issuer.relying.verifier import FileVerifier
from issuer.results.entry import write_entry
from issuer.service.http.public_documents import KEY_SET_CACHE
from issuer.service.revocation.ledger import NOTHING, Act, Ledger, Signing
from issuer.service.signing.commands import Custody
from issuer.service.signing.history import KeyHistory, LiveHistory
from issuer.service.signing.keyring import KeyringSigner, find_keys
from issuer.service.signing.lifecycle import KeyObservation, archive, may_sign_from, missing_publications
from issuer.token.verify_token import Template, Terms, compose
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify import Context
from issuer.verify.revocations import RevokedInterval
from tests.support import make
from tests.support.tree import write_result

KEYS = (JWKS_PATH, ARCHIVE_PATH)
FILE = Path(make.PATH).name
_jtis = count(1)


class Years:
    """An issuer in a folder, as `issuer serve` would find it, with its documents at `url` and the clock `now`.

    The paths in `down` answer 500.
    """

    def __init__(self, folder: Path, name: str, site: LocalProvider, now: int) -> None:
        self.keys, self.data = folder / "keys", folder / "data"
        self.name, self.url, self.now = name, site.issuer, now
        self.down: Collection[str] = ()
        keyfile.write(_made(self.keys / "revocation") / "list.pem", make.REVOCATION_KEY)
        _made(self.data)
        self.ledger = Ledger(FolderHome(self.data), name)
        site.answers |= {
            JWKS_PATH: self._answer(lambda: KeyringSigner(find_keys(self.keys, lambda: None).keys).jwks, KEY_SET_CACHE),
            ARCHIVE_PATH: self._answer(lambda: archive(KeyHistory(FolderHome(self.data)).read()), KEY_SET_CACHE),
            REVOCATIONS_PATH: self._answer(lambda: self._listed("revocations.jwt"), "max-age=300"),
            REVOCATION_KEYS_PATH: self._answer(lambda: self._listed("revocation-keys.json"), "max-age=300"),
        }

    def _answer(self, read: Callable[[], bytes], cache: str) -> Callable[[Any], None]:
        def answer(exchange: Any) -> None:
            is_down = exchange.path in self.down
            exchange.reply(500 if is_down else 200, b"" if is_down else read(), Cache_Control=cache)

        return answer

    def _listed(self, name: str) -> bytes:
        """Sign the list anew where that is due, as the service does; return a file of it."""
        self.ledger.keep(Signing(make.REVOCATION_KEY), self.now, NOTHING, None)
        return (self.data / name).read_bytes()

    # -- keys ---------------------------------------------------------------------------------------------------------

    @property
    def custody(self) -> Custody:
        return Custody(self.keys, KeyHistory(FolderHome(self.data)), lambda: None, self.now, "an operator", "a test")

    @property
    def active(self) -> str:
        return KeyringSigner(find_keys(self.keys, lambda: None).keys).active_kid

    def publish(self) -> None:
        """Record that every host has published the next keys, as the service does."""
        seen = tuple(
            KeyObservation(key.kid, str(jose.public_jwk(key.private.public)["x"]), key.state, 0)
            for key in find_keys(self.keys, lambda: None).keys
        )
        LiveHistory(FolderHome(self.data)).add(lambda lives: missing_publications(seen, lives), self.now)

    def revoke_interval(self, sub: str, since: int, until: int) -> None:
        """Revoke the tokens of an integration from one time to another."""
        assert self.ledger.add(Act(self.now, "an operator", "a bad month", sub=(RevokedInterval(sub, since, until),)))

    # -- results ------------------------------------------------------------------------------------------------------

    def sign(self, name: str, sub: str = "inspect-ai", life_s: int = 3600) -> str:
        """Return a result file, signed now by the key that may."""
        signer = KeyringSigner(find_keys(self.keys, lambda: None).keys)
        kid = signer.active_kid
        at = may_sign_from(KeyHistory(FolderHome(self.data)).read(), kid)
        assert at is not None
        assert at <= self.now
        members = {"sub": sub, "iat": self.now, "nbf": self.now, "exp": self.now + life_s}
        return self._file(name, kid, members, lambda raw: asyncio.run(signer.sign(kid, (raw,)))[0])

    def forge(self, name: str, key: Ed25519PrivateKey, iat: int) -> str:
        """Return a result file that a thief of the key has signed, with any time of issue."""
        kid = str(jose.public_jwk(key.public_key())["kid"])
        members = {"iat": iat, "nbf": iat, "exp": iat + 3600}
        return self._file(name, kid, members, lambda raw: jose.sign(key, raw))

    def _file(self, name: str, kid: str, members: dict[str, Any], sign: Callable[[bytes], bytes]) -> str:
        item = make.submission({"notes": name}, model_repo=repo_of(name))
        jti = jose.base64url_encode(next(_jtis).to_bytes(16, "big"))
        terms = Terms(**{**make.TERMS, "iss": self.name, "aud": AUDIENCE, "jti": jti, **members})
        (unsigned,) = compose(Template.of(kid, terms), (item,), batch=False)
        return write_entry(item.form, jose.compact(unsigned.signing_input, sign(unsigned.signing_input)))


class RelyingParty:
    """A relying party that keeps the files, receipts, a cache and the newest list, in a folder."""

    def __init__(self, folder: Path, issuer: Years) -> None:
        self.folder, self.issuer, self.hub, self.cache = folder, issuer, _made(folder / "hub"), folder / "cache"
        (folder / "receipt-keys.json").write_bytes(make.jwks(make.RECEIPT_KEY))
        _made(folder / "receipts")
        self.trust = self.trust_at(issuer.url)

    def trust_at(self, url: str) -> Path:
        """Write the trust file, in which the issuer's documents are at this URL."""
        path = self.folder / "trust.yaml"
        path.write_text(
            f"version: 1\naudience: {AUDIENCE}\nreceipt_keys: {{file: receipt-keys.json}}\n"
            f"revocation_keys: {{url: {url}{REVOCATION_KEYS_PATH}}}\nissuers:\n- issuer: {self.issuer.name}\n"
            f"  keys: {{url: {url}{JWKS_PATH}}}\n  archive: {{url: {url}{ARCHIVE_PATH}}}\n"
            f"  revocations: {{url: {url}{REVOCATIONS_PATH}}}\n"
        )
        return path

    def trusted(self) -> Trusted:
        """Read the trust file, as a new process would; this fetches what the cache lacks."""
        documents = Documents(self.cache, self.issuer.now)
        return Trusted.by_file(self.trust, documents, SeenLists(self.folder / "state"))

    def receive(self, name: str, text: str, *, receipt: bool = True) -> str:
        """Take in a file, and judge it as received now; return the outcome. What verifies gets a receipt."""
        write_result(self.hub, repo_of(name), FILE, text)
        return self.judge_now(name, text, receipt=receipt)

    def judge_now(self, name: str, text: str, *, receipt: bool = False) -> str:
        """Judge a file as received now, and keep no copy of it."""
        verifier = self._verifier(self.issuer.now, receipt=receipt)
        (report,) = verifier.verify(text.encode(), f"{repo_of(name)}/{make.PATH}", repo_of(name))
        return outcome(json.loads(JSON_LINES.reports("", (report,))))

    def judge_all(self) -> dict[str, str]:
        """Judge the folder of all years as a reader does, by name of the file."""
        lines: list[str] = []
        judge_folder(self.hub, self._verifier(None), JSON_LINES, Listener(lines.append), engine=processes(1))
        return outcomes("".join(lines))

    def _verifier(self, at: int | None, *, receipt: bool = False) -> FileVerifier:
        known, receipts = self.trusted(), ReceiptFolder(self.folder / "receipts")
        context = Context(self.issuer.now, witnessed=at is not None, receipts=receipts)
        key = make.RECEIPT_KEY if receipt else None
        return FileVerifier(known.trust, at, context, receipts, key, known.renew)


def repo_of(name: str) -> str:
    """Return the model repository that has the file of this name."""
    return f"acme/{name}"


def outcomes(lines: str) -> dict[str, str]:
    """Return the outcome of each report in JSON lines, by name of the file."""
    reports = [report for report in map(json.loads, lines.splitlines()) if "checks" in report]
    return {report["repo"].partition("/")[2]: outcome(report) for report in reports}


def outcome(report: dict[str, Any]) -> str:
    """Return the verdict of a report, with the checks that it is by: `failed 5`."""
    decisive = {"failed": "fail", "undecided": "unknown", "good_when_issued": "unknown"}.get(report["verdict"])
    numbers = [check["number"] for check in report["checks"] if check["status"] == decisive]
    return " ".join([report["verdict"], *map(str, numbers)])


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
