"""`issuer revoke` and `issuer revocations`: an operator's commands to revoke tokens, and to keep the list."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from issuer.cli.operate.operator import who
from issuer.formats import jcs, jose
from issuer.io.common_documents import MOVED, RECORD, FolderHome
from issuer.io.keyfile import read
from issuer.service.revocation.ledger import Ledger, Signing, make_key
from issuer.service.signing.keyring import generate
from issuer.verify.revocations import LONGEST_S, Revocations, parse_revocations
from tests.support.in_process import Done, run
from tests.support.make import ISSUER
from tests.support.revoking import JTIS
from tests.support.settings import settings_text

DAY_S = 86_400
COMMANDS = (("revoke", "--jti", JTIS[0], "--reason", "x"), ("revocations", "renew"), ("revocations", "show"))


def issuer(*arguments: object) -> Done:
    return run(list(map(str, arguments)))


class Desk:
    """An operator's folders: keys, with the list's key, and data."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.data = folder / "keys", folder / "data"
        self.data.mkdir()
        self.key = make_key(self.keys, None)

    def run(self, *arguments: object, url: str = ISSUER) -> Done:
        return issuer(*arguments, "--dir", self.keys, "--data", self.data, *(("--url", url) if url else ()))

    def revoke(self, *what: object, url: str = ISSUER) -> Done:
        return self.run("revoke", *what, "--reason", "a wrong adapter", url=url)

    @property
    def listed(self) -> Revocations:
        keys = jose.parse_key_set((self.data / "revocation-keys.json").read_bytes())
        return parse_revocations((self.data / "revocations.jwt").read_bytes(), ISSUER, keys)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_revocation_is_recorded_listed_and_shown(desk: Desk) -> None:
    done = desk.revoke("--jti", JTIS[0], "--jti", JTIS[1])
    assert (done.code, done.err) == (0, "")
    assert f"each of 2 tokens is revoked: {desk.data}/revocations.jsonl" in done.out
    assert re.search(r"^list 1 of \S+Z: 2 items, until \S+Z, good for 4[78] h more$", done.out, re.M)
    since, until = "2026-11-01T00:00:00Z", "2026-11-08T00:00:00Z"
    done = desk.revoke("--sub", "inspect-ai", "--from", since, "--until", until, url="")
    assert f"inspect-ai since {since} until {until} is revoked" in done.out
    assert "no policy of inspect-ai ever decided here" in done.err
    value = jcs.canonical({"policy": {"integration": "helm"}})
    kept = desk.data / "policies" / f"{jcs.digest_of_bytes(value).removeprefix('sha256:')}.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(value)
    assert desk.revoke("--sub", "helm", "--from", since, "--until", until, url="").err == "", "of a deleted policy"
    assert desk.listed.jtis == {JTIS[0], JTIS[1]}
    assert desk.listed.revoked("", "inspect-ai", 1793491200)
    shown = desk.run("revocations", "show", url="")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0].split() == ["WHAT", "WHEN", "WHO", "WHY"]
    assert (f"{JTIS[1]} " in shown.out, "list 3 of" in shown.out) == (True, True)
    document = json.loads(desk.run("revocations", "show", "--json").out)
    assert [row["who"] for row in document["revoked"][:2]] == [who()] * 2
    assert (document["list"]["number"], document["unlisted"]) == (3, 0)


def test_a_malformed_revocation_is_a_usage_error_and_writes_no_record(desk: Desk) -> None:
    rows: list[tuple[object, ...]] = [
        (), ("--jti", "not a jti"), ("--jti", "evi_pat_0123456789ab_secret"), ("--jti", JTIS[0][:-1] + "B"),
        ("--jti", JTIS[0], "--sub", "helm", "--from", 0), ("--jti", JTIS[0], "--from", 0), ("--sub", "helm"),
        ("--sub", "Helm!", "--from", 0), ("--sub", "helm", "--from", "yesterday"),
        ("--sub", "helm", "--from", 9, "--until", 8), ("--sub", "helm", "--from", "1795000000000"),
        ("--sub", "helm", "--from", "99999999999"), ("--sub", "helm", "--from", 9, "--until", "9999-12-31T00:00:00Z"),
        ("--jti", JTIS[0], "--reason", " "), ("--jti", JTIS[0], "--reason", "x" * 1001),
    ]  # fmt: skip
    for row in rows:
        done = desk.run("revoke", *row, *(() if "--reason" in row else ("--reason", "x")))
        assert (done.code, "evi_pat" in done.err, list(desk.data.iterdir())) == (2, False, []), row


def test_without_the_list_s_key_a_revocation_is_recorded_and_listed_later(desk: Desk) -> None:
    away = desk.key.rename(desk.keys / "away.pem")
    done = desk.revoke("--jti", JTIS[0])
    assert (done.code, "The service reads the record" in done.err) == (4, True)
    assert Ledger(FolderHome(desk.data), ISSUER).read().items.jtis == {JTIS[0]}
    shown = desk.run("revocations", "show")
    assert (shown.code, "the revocation list does not exist" in shown.err) == (1, True)
    assert desk.run("revocations", "renew").code == 6
    away.rename(desk.key)
    assert desk.run("revocations", "renew").code == 0
    assert desk.listed.jtis == {JTIS[0]}


@pytest.mark.parametrize("obstacle", ["open", "two", "signs tokens", "--new-key"])
def test_an_unusable_key_prevents_no_revocation_from_being_recorded(desk: Desk, obstacle: str) -> None:
    assert desk.run("revocations", "renew").code == 0
    other = desk.key.with_name("b.pem")
    if obstacle == "open":
        desk.key.chmod(0o644)
    elif obstacle == "two":
        other.write_bytes(desk.key.read_bytes())
    else:
        signs = generate(desk.keys, "active")
        desk.key.unlink()
        other.write_bytes(signs.read_bytes())
        other.chmod(0o600)
        if obstacle == "--new-key":
            signs.unlink()
    done = desk.revoke("--jti", JTIS[0])
    assert (done.code, "The list lacks this revocation" in done.err) == (6, True)
    assert Ledger(FolderHome(desk.data), ISSUER).read().items.jtis == {JTIS[0]}
    assert obstacle in ("open", "two") or obstacle in done.err
    if obstacle == "--new-key":
        assert desk.run("revocations", "renew", "--new-key").code == 0
        assert desk.listed.number == 2


def test_a_damaged_or_moved_record_or_a_missing_folder_is_named_and_not_changed(desk: Desk) -> None:
    desk.run(*COMMANDS[0])
    record, good = desk.data / RECORD, (desk.data / RECORD).read_bytes()
    record.write_bytes(good + b'{"time": 1}\n')
    for command in COMMANDS:
        done = desk.run(*command)
        assert (done.code, f"{record}:2:1: file.schema" in done.err) == (3, True)
    assert (record.read_bytes(), JTIS[0] in desk.run("revocations", "show").out) == (good + b'{"time": 1}\n', True)
    record.unlink()
    (desk.data / MOVED).touch()
    for number, code in ((0, 6), (2, 3)):
        done = desk.run(*COMMANDS[number])
        assert (done.code, "moved to the log's database" in done.err) == (code, True)
    assert not record.exists()
    shutil.rmtree(desk.data)
    for command in COMMANDS:
        done = desk.run(*command)
        assert (done.code, f"{desk.data} is not a folder" in done.err) == (6, True), done.err
    assert not desk.data.exists()


def test_a_list_is_renewed_for_at_most_seven_days_and_above_a_number(desk: Desk) -> None:
    assert desk.run("revocations", "renew", "--days", 8).code == 2
    assert desk.run("revocations", "renew", url="").code == 6
    assert desk.run("revocations", "renew", "--days", 7, "--above", 11).code == 0
    assert (desk.listed.number, desk.listed.next_update - desk.listed.iat) == (12, LONGEST_S)
    again = desk.run("revocations", "init")
    assert (again.code, "exists already" in again.err) == (6, True)
    assert desk.run("revocations", "renew", url="https://other.example").code == 3
    (desk.data / "revocations.jwt").unlink()
    now, ledger = int(time.time()), Ledger(FolderHome(desk.data), ISSUER)
    ledger.renew(Signing(read(desk.key)), now - 3 * DAY_S)
    shown = desk.run("revocations", "show")
    assert (shown.code, "ENDED" in shown.out) == (1, True)
    ledger.renew(Signing(read(desk.key)), now + DAY_S)
    assert "ahead of this machine's clock" in desk.run("revocations", "renew").err


def test_an_encrypted_key_is_opened_by_the_settings_or_the_option(tmp_path: Path) -> None:
    passphrase, settings = tmp_path / "passphrase", tmp_path / "settings.yaml"
    passphrase.write_text("correct horse\n")
    passphrase.chmod(0o600)
    (tmp_path / "data").mkdir()
    places = {"policies": "policies", "keys_folder": "keys", "data": "data", "keys_passphrase_file": "passphrase"}
    paths = {name: str(tmp_path / path) for name, path in places.items()}
    settings.write_text(settings_text(url=ISSUER, store_url="x", **paths))
    for command in (("revocations", "init"), *COMMANDS):
        done = issuer(*command, "--config", settings)
        assert done.code == 0, done.err
    by_option = ("revocations", "renew", "--dir", tmp_path / "keys", "--data", tmp_path / "data")
    assert issuer(*by_option).code == 6
    assert issuer(*by_option, "--passphrase-file", passphrase).code == 0
    assert issuer(*COMMANDS[0]).code == 6, "neither settings nor folders"
