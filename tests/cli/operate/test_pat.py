"""`issuer pat`: a token is shown once and alone, and `list` and `revoke` never show any of it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from issuer.identity import pat
from issuer.service.authn.pat_records import DAY_S, Order, create, path_of, read_record, write_used
from tests.support.command import issuer
from tests.support.settings import settings_text
from tests.support.shared import ROOT

POLICIES = ROOT / "policies"
CREATE = ("pat", "create", "--account", "inspect-ai-nightly")


def made(folder: Path, number: int = 0, age_s: int = 0, life_s: int = 30 * DAY_S) -> str:
    """Make a token that is some seconds old; return its id."""
    random = os.urandom(pat.RANDOM_BYTES)
    order = Order(f"account-{number}", ("tokens:issue",), (), life_s)
    _, record = create(folder, order, now=int(time.time()) - age_s, random=random)
    return record.id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pats"


# -- create --------------------------------------------------------------------------------------------------------------


def test_a_token_is_printed_once_and_alone_and_only_its_digest_is_kept(folder: Path) -> None:
    began = int(time.time())
    done = issuer(*CREATE, "--dir", folder)
    assert done.returncode == 0, done.stderr
    token = done.stdout.removesuffix("\n")
    public_id = pat.token_id(token)
    assert public_id
    assert re.fullmatch(pat.PATTERN, token)
    record = read_record(path_of(folder, public_id))
    assert bytes.fromhex(record.sha256) == pat.digest(token)
    assert (record.account, record.scopes, record.networks) == ("inspect-ai-nightly", ("tokens:issue",), ())
    assert began <= record.created <= time.time()
    assert record.expires - record.created == 30 * DAY_S
    assert token[21:] not in done.stderr + path_of(folder, public_id).read_text()
    assert record.sha256 not in done.stderr
    assert str(path_of(folder, public_id)) in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_every_token_is_another(folder: Path) -> None:
    tokens = {issuer(*CREATE, "--dir", folder).stdout for _ in range(3)}
    assert len({token[8:20] for token in tokens}) == len({token[21:64] for token in tokens}) == 3


def test_files_and_folders_are_the_owner_s_alone_whatever_the_umask(folder: Path) -> None:
    command = f"umask 0; exec {sys.executable} -m issuer {' '.join(CREATE)} --dir {folder}"
    subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True)
    (record,) = folder.iterdir()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (record, folder, folder.parent)]
    assert modes == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("account", ["inspect-ai-nightly", "2026", "null", "true", "1e3", "0x10", "on"])
def test_the_identity_that_is_printed_is_what_a_policy_takes(folder: Path, tmp_path: Path, account: str) -> None:
    block = issuer("pat", "create", "--account", account, "--dir", folder).stderr.partition("identities:\n")[2]
    assert block
    policies = tmp_path / "policies"
    policies.mkdir()
    providers = (POLICIES / "providers.yaml").read_text("utf-8")
    (policies / "providers.yaml").write_text(providers + "  pat: {profile: pat}\n", "utf-8")
    policy = (POLICIES / "inspect-ai.yaml").read_text("utf-8").replace("identities:\n", "identities:\n" + block, 1)
    (policies / "inspect-ai.yaml").write_text(policy, "utf-8")
    done = issuer("policy", "check", policies)
    assert done.returncode == 0, done.stdout
    assert "error" not in done.stdout


@pytest.mark.parametrize("account", ["a.b_c-d", "9", "x" * 64, "a..b", "a-", "a_"])
def test_every_account_has_an_identity_that_a_policy_takes(folder: Path, account: str) -> None:
    done = issuer("pat", "create", "--account", account, "--dir", folder)
    (identity,) = re.findall(r'  - id: "(\S+)"\n', done.stderr)
    assert re.fullmatch("[a-z0-9]+(?:-[a-z0-9]+)*", identity)


def test_networks_scopes_and_life_are_what_was_asked_for(folder: Path) -> None:
    done = issuer(
        *CREATE, "--dir", folder, "--expires", 90, "--scope", "tokens:issue", "--scope", "other", "--scope", "other",
        "--network", "192.0.2.7", "--network", "2001:DB8::/48",
    )  # fmt: skip
    record = read_record(path_of(folder, str(pat.token_id(done.stdout.strip()))))
    assert record.expires - record.created == 90 * DAY_S
    assert record.scopes == ("tokens:issue", "other")
    assert record.networks == ("192.0.2.7/32", "2001:db8::/48")
    assert "anywhere" not in done.stderr


def test_what_is_doubtful_about_a_token_is_said(folder: Path) -> None:
    first = issuer(*CREATE, "--dir", folder, "--scope", "results:read").stderr
    assert [word in first for word in ("made the folder", "no verify token", "from any network")] == [True] * 3
    second = issuer(*CREATE, "--dir", folder, "--network", "192.0.2.0/24").stderr
    assert "warning" not in second


@pytest.mark.parametrize(
    "options",
    [
        ("--expires", "91"),
        ("--expires", "0"),
        ("--expires", "-1"),
        ("--expires", "1.5"),
        ("--expires", "30d"),
        ("--network", "192.0.2.1/24"),
        ("--network", "192.0.2.0/24", "--network", "here"),
        ("--network", "2001:db8::1"),
        ("--network", ""),
        ("--scope", ""),
        ("--scope", "a b"),
        ("--account", "Nightly"),
        ("--account", ""),
        ("--account", "a b"),
        ("--account", "../etc"),
        ("--account", "x" * 65),
        ("--account", 'a"'),
    ],
)
def test_what_cannot_be_is_a_usage_error_and_makes_nothing(folder: Path, options: tuple[str, ...]) -> None:
    done = issuer(*CREATE, "--dir", folder, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert not folder.exists()


def test_an_account_is_demanded(folder: Path) -> None:
    assert issuer("pat", "create", "--dir", folder).returncode == 2


@pytest.mark.parametrize("command", [CREATE, ("pat", "list"), ("pat", "revoke", "a" * 12)])
def test_a_folder_that_others_may_enter_is_refused_with_the_remedy(folder: Path, command: tuple[str, ...]) -> None:
    made(folder)
    folder.chmod(0o755)
    done = issuer(*command, "--dir", folder)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"chmod 700 {folder}" in done.stderr
    assert len(list(folder.iterdir())) == 1


def test_a_token_that_could_not_be_shown_is_no_success(folder: Path) -> None:
    command = f"exec {sys.executable} -m issuer {' '.join(CREATE)} --dir {folder} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "made" in done.stderr, "the operator learns which token to revoke"


# -- where -----------------------------------------------------------------------------------------------------------------


def test_the_folder_is_that_of_the_service_s_settings(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        settings_text(
            url="https://issuer.example",
            policies="policies",
            keys_folder="keys",
            store_url="embedded",
            data=str(tmp_path / "one"),
        )
    )
    assert issuer(*CREATE, "--config", settings).returncode == 0
    assert len(list((tmp_path / "one" / "pats").iterdir())) == 1
    environ = {"ISSUER_URL": "https://issuer.example", "ISSUER_POLICIES": "p", "ISSUER_KEYS_FOLDER": "k",
               "ISSUER_STORE_URL": "embedded", "ISSUER_DATA": str(tmp_path / "two")}  # fmt: skip
    assert issuer(*CREATE, env=environ).returncode == 0
    assert len(list((tmp_path / "two" / "pats").iterdir())) == 1
    assert issuer(*CREATE, env={**environ, "ISSUER_PATS": str(tmp_path / "three")}).returncode == 0
    assert len(list((tmp_path / "three").iterdir())) == 1
    assert issuer(*CREATE, "--dir", tmp_path / "four", "--config", settings).returncode == 0
    assert len(list((tmp_path / "four").iterdir())) == 1


def test_without_settings_a_folder_is_asked_for(tmp_path: Path) -> None:
    for command in (CREATE, ("pat", "list"), ("pat", "revoke", "a" * 12)):
        done = issuer(*command)
        assert (done.returncode, done.stdout) == (6, "")
        assert "--dir" in done.stderr


# -- list ------------------------------------------------------------------------------------------------------------------


def test_tokens_are_listed_with_what_they_are_worth_and_never_a_hash(folder: Path) -> None:
    now = int(time.time())
    active, expired = made(folder, 1, age_s=3 * DAY_S), made(folder, 2, age_s=40 * DAY_S)
    revoked, future = made(folder, 3, age_s=2 * DAY_S), made(folder, 4, age_s=-DAY_S)
    issuer("pat", "revoke", revoked, "--dir", folder)
    write_used(folder, active, now - 60)
    done = issuer("pat", "list", "--json", "--dir", folder)
    assert done.returncode == 0
    rows = json.loads(done.stdout)["tokens"]
    assert [(row["id"], row["state"]) for row in rows] == [
        (expired, "expired"), (active, "active"), (revoked, "revoked"), (future, "future"),
    ]  # fmt: skip
    assert [row["last_used"] for row in rows] == [None, now - 60, None, None]
    assert [row["revoked"] is None for row in rows] == [True, True, False, True]
    assert rows[1]["account"] == "account-1"
    assert (rows[1]["scopes"], rows[1]["networks"]) == (["tokens:issue"], [])
    assert set(rows[0]) == {
        "id", "account", "state", "scopes", "networks", "created", "expires", "revoked", "last_used",
    }  # fmt: skip
    told = issuer("pat", "list", "--dir", folder).stdout
    lines = [re.split(r"  +", line) for line in told.splitlines()]
    assert lines[0] == ["ID", "ACCOUNT", "STATE", "CREATED", "EXPIRES", "LAST USED", "SCOPES", "NETWORKS"]
    assert [line[:3] for line in lines[1:]] == [[row["id"], row["account"], row["state"]] for row in rows]
    assert [line[5] == "never" for line in lines[1:]] == [True, False, True, True]
    hashes = {json.loads(path.read_bytes())["sha256"] for path in folder.glob("*.json")}
    assert not [found for found in hashes if found in told + done.stdout]


def test_a_record_that_cannot_be_read_is_named_with_its_place_and_hides_no_other(folder: Path) -> None:
    good, bad = made(folder, 1), made(folder, 2)
    path = path_of(folder, bad)
    record = {**json.loads(path.read_bytes()), "expires": 2**32}
    path.write_text(json.dumps(record))
    foreign = folder / "\x1b[31mREADME"
    foreign.touch(mode=0o600)
    for form in ((), ("--json",)):
        done = issuer("pat", "list", "--dir", folder, *form)
        assert done.returncode == 3
        assert good in done.stdout
        assert bad not in done.stdout
        assert f"{path}: file.rule: a token must expire after its creation, at most 90 days later" in done.stderr
        assert "at /expires" in done.stderr
        assert record["sha256"] not in done.stderr
        assert "README: file.rule" in done.stderr
        assert "\x1b" not in done.stderr


def test_no_tokens_are_no_error(folder: Path) -> None:
    done = issuer("pat", "list", "--dir", folder)
    assert (done.returncode, done.stdout) == (0, "")
    assert "contains no tokens" in done.stderr
    assert json.loads(issuer("pat", "list", "--dir", folder, "--json").stdout) == {"version": 1, "tokens": []}
    assert not folder.exists()


# -- revoke ----------------------------------------------------------------------------------------------------------------


def test_to_revoke_twice_is_to_revoke_once(folder: Path) -> None:
    public_id, other = made(folder, 1), made(folder, 2)
    first, began = issuer("pat", "revoke", public_id, "--dir", folder), int(time.time())
    before = path_of(folder, public_id).read_bytes()
    while int(time.time()) == began:
        time.sleep(0.05)
    second = issuer("pat", "revoke", public_id, "--dir", folder)
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert path_of(folder, public_id).read_bytes() == before
    assert read_record(path_of(folder, public_id)).state(int(time.time())) == "revoked"
    assert read_record(path_of(folder, other)).state(int(time.time())) == "active"


def test_a_token_that_there_is_not_cannot_be_revoked(folder: Path) -> None:
    made(folder)
    done = issuer("pat", "revoke", "a" * 12, "--dir", folder)
    assert (done.returncode, done.stdout) == (6, "")
    assert f"pat.unknown: {folder} has no personal access token with the id {'a' * 12}" in done.stderr


def test_a_record_that_cannot_be_read_is_not_written_over(folder: Path) -> None:
    public_id = made(folder)
    path_of(folder, public_id).write_bytes(b"{")
    done = issuer("pat", "revoke", public_id, "--dir", folder)
    assert done.returncode == 3
    assert f"{path_of(folder, public_id)}:1:2: file.syntax" in done.stderr
    assert path_of(folder, public_id).read_bytes() == b"{"


@pytest.mark.parametrize("what", ["token", "short", "../../../etc/x", "a" * 13, "aaaaaa/aaaaa", ""])
def test_what_is_no_public_id_is_a_usage_error_and_never_repeated(folder: Path, what: str) -> None:
    given = issuer(*CREATE, "--dir", folder).stdout.strip() if what == "token" else what
    done = issuer("pat", "revoke", "--dir", folder, "--", given)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(given) < 12 or given not in done.stderr.replace("\n", "")
    assert given[21:35] not in done.stderr or what != "token"
