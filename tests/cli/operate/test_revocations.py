"""`issuer revoke` and `issuer revocations`: what an operator types to take something back, and to keep the list."""

from __future__ import annotations

import json
import re
import subprocess
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
from tests.support.command import issuer
from tests.support.make import ISSUER
from tests.support.revoking import JTIS
from tests.support.settings import settings_text

DAY_S = 86_400


class Desk:
    """An operator's folders: keys, with the one of the list, and data."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.data = folder / "keys", folder / "data"
        self.data.mkdir()
        self.key = make_key(self.keys, None)

    def run(self, *arguments: object, url: str = ISSUER) -> subprocess.CompletedProcess[str]:
        return issuer(*arguments, "--dir", self.keys, "--data", self.data, *(("--url", url) if url else ()))

    def revoke(
        self, *what: object, reason: str = "a wrong adapter", url: str = ISSUER
    ) -> subprocess.CompletedProcess[str]:
        return self.run("revoke", *what, "--reason", reason, url=url)

    @property
    def listed(self) -> Revocations:
        keys = jose.parse_key_set((self.data / "revocation-keys.json").read_bytes())
        return parse_revocations((self.data / "revocations.jwt").read_bytes(), ISSUER, keys)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_is_revoked_is_recorded_listed_and_shown(desk: Desk) -> None:
    done = desk.revoke("--jti", JTIS[0], "--jti", JTIS[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"each of 2 tokens is revoked: {desk.data}/revocations.jsonl" in done.stdout
    assert re.search(r"^list 1 of \S+Z: 2 items, until \S+Z, good for 4[78] h more$", done.stdout, re.M)
    done = desk.revoke(
        "--sub", "inspect-ai", "--from", "2026-11-01T00:00:00Z", "--until", "2026-11-08T00:00:00Z", url=""
    )
    assert "inspect-ai since 2026-11-01T00:00:00Z until 2026-11-08T00:00:00Z is revoked" in done.stdout
    assert "no policy of inspect-ai ever decided here" in done.stderr
    assert desk.listed.jtis == {JTIS[0], JTIS[1]}
    assert desk.listed.revoked("", "inspect-ai", 1793491200)
    shown = desk.run("revocations", "show", url="")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[0].split() == ["WHAT", "WHEN", "WHO", "WHY"]
    assert f"{JTIS[1]} " in shown.stdout
    assert "list 2 of" in shown.stdout
    document = json.loads(desk.run("revocations", "show", "--json").stdout)
    assert [row["who"] for row in document["revoked"][:2]] == [who()] * 2
    assert (document["list"]["number"], document["unlisted"]) == (2, 0)


def test_where_the_record_has_moved_away_nothing_is_written_to_what_is_left(desk: Desk) -> None:
    (desk.data / MOVED).touch()
    done = desk.revoke("--jti", JTIS[0])
    assert (done.returncode, done.stdout) == (6, "")
    assert "moved to the log's database" in done.stderr
    assert not (desk.data / RECORD).exists()
    shown = desk.run("revocations", "show")
    assert shown.returncode == 3
    assert "moved to the log's database" in shown.stderr


def test_an_integration_that_had_tokens_is_known_though_its_policy_is_gone(desk: Desk) -> None:
    value = jcs.canonical({"policy": {"integration": "inspect-ai"}})
    kept = desk.data / "policies" / f"{jcs.digest_of_bytes(value).removeprefix('sha256:')}.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(value)
    assert desk.revoke("--sub", "inspect-ai", "--from", 0).stderr == ""
    assert "no policy of helm ever decided" in desk.revoke("--sub", "helm", "--from", 0).stderr


@pytest.mark.parametrize(
    "what",
    [
        (),
        ("--jti", "not a jti"),
        ("--jti", JTIS[0][:-1] + "B"),
        ("--jti", JTIS[0], "--sub", "helm", "--from", 0),
        ("--jti", JTIS[0], "--from", 0),
        ("--sub", "helm"),
        ("--sub", "Helm!", "--from", 0),
        ("--sub", "helm", "--from", "yesterday"),
        ("--sub", "helm", "--from", 9, "--until", 8),
        ("--sub", "helm", "--from", "1795000000000"),
        ("--sub", "helm", "--from", "99999999999"),
        ("--sub", "helm", "--from", 9, "--until", "9999-12-31T00:00:00Z"),
        ("--jti", JTIS[0], "--reason", " "),
        ("--jti", JTIS[0], "--reason", "x" * 1001),
    ],
    ids=str,
)
def test_nonsense_is_a_usage_error_and_nothing_is_written(desk: Desk, what: tuple[object, ...]) -> None:
    reason = () if "--reason" in what else ("--reason", "x")
    done = desk.run("revoke", *what, *reason)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert not list(desk.data.iterdir())


def test_a_folder_that_is_not_there_is_not_made(desk: Desk) -> None:
    desk.data.rmdir()
    for command in (("revoke", "--jti", JTIS[0], "--reason", "x"), ("revocations", "renew"), ("revocations", "show")):
        done = desk.run(*command)
        assert (done.returncode, f"{desk.data} is not a folder" in done.stderr) == (6, True), done.stderr
    assert not desk.data.exists()


def test_what_was_typed_in_place_of_a_jti_is_not_repeated(desk: Desk) -> None:
    assert "evi_pat" not in desk.revoke("--jti", "evi_pat_0123456789ab_secret").stderr


def test_without_the_key_it_is_recorded_and_says_what_is_left_to_do(desk: Desk) -> None:
    away = desk.key.rename(desk.keys / "away.pem")
    done = desk.revoke("--jti", JTIS[0])
    assert done.returncode == 4
    assert "The service reads the record" in done.stderr
    assert Ledger(FolderHome(desk.data), ISSUER).read().items.jtis == {JTIS[0]}
    shown = desk.run("revocations", "show")
    assert (shown.returncode, "the revocation list does not exist" in shown.stderr) == (1, True)
    assert desk.run("revocations", "renew").returncode == 6
    away.rename(desk.key)
    assert desk.run("revocations", "renew").returncode == 0
    assert desk.listed.jtis == {JTIS[0]}


@pytest.mark.parametrize("obstacle", ["open", "two", "a token key", "another one"])
def test_a_key_that_is_not_fit_keeps_nothing_from_being_recorded(desk: Desk, obstacle: str) -> None:
    assert desk.run("revocations", "renew").returncode == 0
    if obstacle == "open":
        desk.key.chmod(0o644)
    elif obstacle == "two":
        desk.key.with_name("b.pem").write_bytes(desk.key.read_bytes())
    else:
        desk.key.unlink()
        signs = generate(desk.keys, "active")
        (desk.key.parent / "b.pem").write_bytes(signs.read_bytes())
        (desk.key.parent / "b.pem").chmod(0o600)
        if obstacle == "another one":
            signs.unlink()
    done = desk.revoke("--jti", JTIS[0])
    assert done.returncode == 6
    assert "The list lacks this revocation" in done.stderr
    assert Ledger(FolderHome(desk.data), ISSUER).read().items.jtis == {JTIS[0]}
    if obstacle == "a token key":
        assert "signs tokens" in done.stderr
    if obstacle == "another one":
        assert "--new-key" in done.stderr
        assert desk.run("revocations", "renew", "--new-key").returncode == 0
        assert desk.listed.number == 2


def test_a_damaged_record_is_named_by_its_line_and_nothing_is_added(desk: Desk) -> None:
    desk.revoke("--jti", JTIS[0])
    record = desk.data / "revocations.jsonl"
    record.write_bytes(record.read_bytes() + b'{"time": 1}\n')
    before = record.read_bytes()
    for command in (("revoke", "--jti", JTIS[1], "--reason", "x"), ("revocations", "renew"), ("revocations", "show")):
        done = desk.run(*command)
        assert done.returncode == 3
        assert f"{record}:2:1: file.schema" in done.stderr
    assert record.read_bytes() == before
    assert JTIS[0] in desk.run("revocations", "show").stdout


def test_a_list_is_renewed_for_days_at_most_seven_and_above_a_number(desk: Desk) -> None:
    assert desk.run("revocations", "renew", "--days", 8).returncode == 2
    assert desk.run("revocations", "renew", "--days", 7, "--above", 11).returncode == 0
    assert (desk.listed.number, desk.listed.next_update - desk.listed.iat) == (12, LONGEST_S)


def test_a_list_that_has_ended_or_is_dated_ahead_is_told(desk: Desk) -> None:
    now = int(time.time())
    ledger = Ledger(FolderHome(desk.data), ISSUER)
    ledger.renew(Signing(read(desk.key)), now - 3 * DAY_S)
    shown = desk.run("revocations", "show")
    assert (shown.returncode, "ENDED" in shown.stdout) == (1, True)
    ledger.renew(Signing(read(desk.key)), now + DAY_S)
    assert "ahead of this machine's clock" in desk.run("revocations", "renew").stderr


def test_there_is_one_key_and_another_issuer_s_list_is_left_alone(desk: Desk) -> None:
    again = desk.run("revocations", "init")
    assert (again.returncode, "exists already" in again.stderr) == (6, True)
    assert desk.run("revocations", "renew", url="").returncode == 6
    desk.run("revocations", "renew")
    assert desk.run("revocations", "renew", url="https://other.example").returncode == 3


def write_settings(folder: Path, **more: str) -> Path:
    """Write the settings of a service whose folders are here."""
    (folder / "data").mkdir()
    places = {"policies": folder / "policies", "keys_folder": folder / "keys", "data": folder / "data"}
    paths = {name: str(path) for name, path in places.items()}
    settings = folder / "settings.yaml"
    settings.write_text(settings_text(url=ISSUER, store_url="x", **paths, **more))
    return settings


def test_an_encrypted_key_is_opened_by_the_settings_or_the_option(tmp_path: Path) -> None:
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse\n")
    passphrase.chmod(0o600)
    settings = write_settings(tmp_path, keys_passphrase_file=str(passphrase))
    for command in (("revocations", "init"), ("revoke", "--jti", JTIS[0], "--reason", "x"), ("revocations", "show")):
        done = issuer(*command, "--config", settings)
        assert done.returncode == 0, done.stderr
    by_option = ("--dir", tmp_path / "keys", "--data", tmp_path / "data")
    assert issuer("revocations", "renew", *by_option).returncode == 6
    assert issuer("revocations", "renew", *by_option, "--passphrase-file", passphrase).returncode == 0
    assert issuer("revoke", "--jti", JTIS[0], "--reason", "x").returncode == 6, "neither settings nor folders"
