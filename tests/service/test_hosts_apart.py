"""Two whole services that share no folder, but a store, a secret, and a log in PostgreSQL: one history, one list."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment
from issuer.formats import jose
from issuer.io.common_documents import HISTORY, LIST, MOVED, RECORD
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.revocation.ledger import make_key
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify.revocations import Revocations, parse_revocations
from issuer.verify.trust import parse_archive
from tests.support.command import issuer
from tests.support.logged import Begun
from tests.support.no_tls import NO_TLS
from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.running import Running, begin_history, numbered, running, serve, start, until_live, write_folder
from tests.support.settings import by_name
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
SERVED = (ARCHIVE_PATH, REVOCATIONS_PATH, REVOCATION_KEYS_PATH)


@dataclass
class Pair:
    """Two hosts; the first alone has the key of the list."""

    one: Running
    other: Running
    server: PostgreSQL

    def run(self, host: Running, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, which finds everything as its service does."""
        done = issuer(*arguments, env=environment(host.settings))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def served(self, path: str) -> bytes | None:
        """Return what both hosts serve, each worker of them; None where they differ now."""
        answers = {
            httpx.get(f"{host.http.base_url}{path}", timeout=60, verify=NO_TLS).content
            for host in (self.one, self.other) * 4
        }
        return answers.pop() if len(answers) == 1 else None

    def archived(self, kid: str) -> tuple[int | None, int | None] | None:
        """Return the end and the revocation of a key in the archive of both; None where they differ, or lack it."""
        raw = self.served(ARCHIVE_PATH)
        found = parse_archive(raw).get(kid) if raw else None
        return None if found is None else (found.last_token_exp, found.revoked_from)

    @property
    def listed(self) -> Revocations | None:
        """The list of both, as a relying party reads it."""
        raw, keys = self.served(REVOCATIONS_PATH), self.served(REVOCATION_KEYS_PATH)
        if raw is None or keys is None or raw.startswith(b"{"):
            return None
        return parse_revocations(raw, self.one.url, jose.parse_key_set(keys))

    def lists(self, jti: str) -> bool:
        """Say whether both serve a list with this token."""
        listed = self.listed
        return listed is not None and jti in listed.jtis

    def active(self, host: Running) -> str:
        keys = host.settings.keys_folder
        return next(path.stem.removeprefix("key-") for path in (keys / "active").glob("*.pem"))


@pytest.fixture
def pair(tmp_path: Path, provider: LocalProvider) -> Iterator[Pair]:
    """The first began alone, with files in its data; then came the log's database, and the second host."""
    with postgresql() as server, EmbeddedValkey() as store:
        folder, other = tmp_path / "one", tmp_path / "other"
        folder.mkdir()
        write_folder(folder, provider)
        begin_history(folder)
        make_key(folder / "keys", None)
        begun = Begun(folder, server.url(), store)
        shared: dict[str, Any] = {"store_url": store, "store_durable": True}
        with running(folder, provider, port=begun.port, **shared) as alone:
            eventually(lambda: alone.http.get(REVOCATIONS_PATH).status_code == 200)
            identity = alone.token()
            assert alone.post(identity).status_code == 201
        files = {name: (folder / "data" / name).read_bytes() for name in (HISTORY, LIST)}
        with begun.served(provider, command=serve(2), **shared) as one:
            assert one.http.get(REVOCATIONS_PATH).content == files[LIST], "the earlier list"
            shutil.copytree(folder / "keys" / "active", other / "keys" / "active")
            (other / "keys").chmod(0o700)
            shutil.copytree(folder / "keys" / "log", other / "keys" / "log")
            (other / "records").mkdir(mode=0o700)
            shutil.copytree(folder / "policies", other / "policies")
            names = ("url", "log_origin", "log_database")
            same = by_name(one.settings, *names)
            with running(
                other, provider, **same, **shared, store_secret_file=str(one.settings.store_secret),
                log_records=str(other / "records"), command=serve(2),
            ) as two:  # fmt: skip
                assert (folder / "data" / MOVED).exists()
                assert not any((other / "data" / name).exists() for name in files)
                yield Pair(one, two, server)


def signs(host: Running, kid: str, number: int) -> None:
    eventually(lambda: host.post(host.token(), numbered(number)).json().get("kid") == kid)


def rotate(pair: Pair, old: str) -> str:
    """Rotate on one host and then on the other, and return the new key."""
    pair.run(pair.one, "keys", "rotate", "--compromised", "--reason", "a test")
    new = pair.active(pair.one)
    eventually(lambda: pair.archived(new) == (None, None))
    for state in ("active", "retiring"):
        shutil.rmtree(pair.other.settings.keys_folder / state, ignore_errors=True)
        shutil.copytree(pair.one.settings.keys_folder / state, pair.other.settings.keys_folder / state)
    signs(pair.other, new, 2)
    eventually(lambda: (pair.archived(old) or (None,))[0] is not None)
    seen = [
        {key["kid"]: key["since"] for key in json.loads(pair.run(host, "keys", "list", "--json").stdout)["keys"]}
        for host in (pair.one, pair.other)
    ]
    assert [seen[0][kid] for kid in (old, new)] == [seen[1][kid] for kid in (old, new)]
    return new


def revoke_key(pair: Pair, old: str) -> None:
    """Revoke a key on the host that does not have the list's key."""
    pair.run(pair.other, "keys", "revoke", f"key-{old}", "--from", "1000", "--reason", "a test")
    eventually(lambda: (pair.archived(old) or (0, 0))[1] == 1000)
    eventually(lambda: old not in pair.one.http.get(JWKS_PATH).text)
    assert (pair.one.settings.keys_folder / "retiring" / f"{old}.pem").exists(), "its file remains"


def revoke_token(pair: Pair, jti: str) -> None:
    """Revoke a token on the host that does not have the list's key."""
    before = pair.listed
    assert before is not None
    done = pair.run(pair.other, "revoke", "--jti", jti, "--reason", "a test", code=4)
    assert RECORD in done.stdout
    eventually(lambda: pair.lists(jti))
    after = pair.listed
    assert after is not None
    assert after.number == before.number + 1
    for host in (pair.one, pair.other):
        assert json.loads(pair.run(host, "revocations", "show", "--json").stdout)["list"]["number"] == after.number


def go_on_without_the_database(pair: Pair, jti: str) -> None:
    """Stop the database: the last good state goes on, and new ones wait until it is back."""
    served = {path: pair.served(path) for path in SERVED}
    pair.server.stop()
    pair.run(pair.other, "revoke", "--jti", jti, "--reason", "a test", code=6)
    said = pair.run(pair.one, "keys", "rotate", code=6)
    assert "PostgreSQL at" in said.stderr
    for host in (pair.one, pair.other):
        host.until_log_says('"key history refused"')
        host.until_log_says('"revocations refused"')
    assert {path: pair.served(path) for path in SERVED} == served
    pair.server.start()
    pair.run(pair.other, "revoke", "--jti", jti, "--reason", "a test", code=4)
    eventually(lambda: pair.lists(jti))


def test_two_hosts_that_share_no_folder_have_one_history_and_one_list(pair: Pair) -> None:
    old, later = pair.active(pair.one), "A" * 22
    assert all(pair.served(path) is not None for path in SERVED)
    identity = pair.one.token()
    signed = pair.one.post(identity, numbered(1))
    assert (signed.status_code, pair.other.post(identity, numbered(1)).status_code) == (201, 200)
    jti = signed.json()["jti"]
    new = rotate(pair, old)
    revoke_key(pair, old)
    revoke_token(pair, jti)
    archive = pair.served(ARCHIVE_PATH)
    go_on_without_the_database(pair, later)
    well = {"stale": False, "waiting": {}}
    for host in (pair.one, pair.other):
        eventually(lambda host=host: host.http.get("/health/ready").json().get("keys") == well)  # type: ignore[misc]
        signs(host, new, 3)
    pair.other.process.terminate()
    assert pair.other.process.wait(60) == 0
    again = start(pair.other.settings, pair.other.folder, serve(2))
    try:
        until_live(pair.other.http, again, pair.other.folder)
        eventually(lambda: pair.served(ARCHIVE_PATH) == archive)
        listed = pair.listed
        assert listed is not None
        assert listed.jtis == {jti, later}
    finally:
        again.terminate()
        again.wait(60)
