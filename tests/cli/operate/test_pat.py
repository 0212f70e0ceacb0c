"""`issuer pat`: a token is shown once and alone, and `list` and `revoke` never show any part of it."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from issuer.identity import pat
from issuer.service.authn.pat_records import DAY_S, Order, create, path_of, read_record, write_used
from tests.support.in_process import Done, run
from tests.support.settings import settings_text
from tests.support.shared import ROOT

POLICIES = ROOT / "policies"
CREATE = ("pat", "create", "--account", "inspect-ai-nightly")


def issuer(*arguments: object, env: dict[str, str] | None = None) -> Done:
    return run(list(map(str, arguments)), env=env)


def make_token(folder: Path, number: int = 0, age_s: int = 0, life_s: int = 30 * DAY_S) -> str:
    """Make a token that is some seconds old; return its id."""
    random = os.urandom(pat.RANDOM_BYTES)
    order = Order(f"account-{number}", ("tokens:issue",), (), life_s)
    _, record = create(folder, order, now=int(time.time()) - age_s, random=random)
    return record.id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pats"


def test_a_token_is_printed_once_and_alone_and_only_its_digest_is_stored(folder: Path) -> None:
    done = issuer(*CREATE, "--dir", folder)
    assert done.code == 0, done.err
    token = done.out.removesuffix("\n")
    public_id = pat.token_id(token)
    assert public_id
    assert re.fullmatch(pat.PATTERN, token)
    record, path = read_record(path_of(folder, public_id)), path_of(folder, public_id)
    assert bytes.fromhex(record.sha256) == pat.digest(token)
    assert (record.account, record.scopes, record.networks) == ("inspect-ai-nightly", ("tokens:issue",), ())
    assert record.expires - record.created == 30 * DAY_S
    assert token[21:] not in done.err + path.read_text()
    assert (record.sha256 in done.err, str(path) in done.err, "\x1b" in done.out + done.err) == (False, True, False)


def test_a_policy_accepts_the_printed_identity_of_any_account(folder: Path, tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    providers = (POLICIES / "providers.yaml").read_text("utf-8")
    (policies / "providers.yaml").write_text(providers + "  pat: {profile: pat}\n", "utf-8")
    blocks = ""
    for account in ("inspect-ai-nightly", "2026", "null", "1e3", "0x10", "on", "a.b_c-d", "x" * 64, "a..b", "c-", "d_"):
        block = issuer("pat", "create", "--account", account, "--dir", folder).err.partition("identities:\n")[2]
        (identity,) = re.findall(r'  - id: "(\S+)"\n', block)
        assert re.fullmatch("[a-z0-9]+(?:-[a-z0-9]+)*", identity)
        blocks += block
    policy = (POLICIES / "inspect-ai.yaml").read_text("utf-8").replace("identities:\n", "identities:\n" + blocks, 1)
    (policies / "inspect-ai.yaml").write_text(policy, "utf-8")
    done = issuer("policy", "check", policies)
    assert (done.code, "error" in done.out) == (0, False), done.out


def test_a_token_has_the_given_networks_scopes_and_life(folder: Path) -> None:
    done = issuer(
        *CREATE, "--dir", folder, "--expires", 90, "--scope", "tokens:issue", "--scope", "other", "--scope", "other",
        "--network", "192.0.2.7", "--network", "2001:DB8::/48",
    )  # fmt: skip
    record = read_record(path_of(folder, str(pat.token_id(done.out.strip()))))
    assert record.expires - record.created == 90 * DAY_S
    assert (record.scopes, record.networks) == (("tokens:issue", "other"), ("192.0.2.7/32", "2001:db8::/48"))
    assert "from any network" not in done.err
    doubtful = issuer(*CREATE, "--dir", folder, "--scope", "results:read").err
    assert ("no verify token" in doubtful, "from any network" in doubtful) == (True, True)
    assert "warning" not in issuer(*CREATE, "--dir", folder, "--network", "192.0.2.0/24").err


def test_a_malformed_option_is_a_usage_error_and_makes_no_token(folder: Path) -> None:
    wrong = {
        "--expires": ("91", "0", "-1", "1.5", "30d"), "--network": ("192.0.2.1/24", "here", "2001:db8::1", ""),
        "--scope": ("", "a b"), "--account": ("Nightly", "", "a b", "../etc", "x" * 65, 'a"'),
    }  # fmt: skip
    for option, value in ((option, value) for option, values in wrong.items() for value in values):
        done = issuer(*CREATE, "--dir", folder, option, value)
        assert (done.code, done.out, folder.exists()) == (2, "", False), (option, value)
    assert issuer("pat", "create", "--dir", folder).code == 2


def test_a_folder_that_others_may_enter_is_refused_with_the_remedy(folder: Path) -> None:
    make_token(folder)
    folder.chmod(0o755)
    for command in (CREATE, ("pat", "list"), ("pat", "revoke", "a" * 12)):
        done = issuer(*command, "--dir", folder)
        assert (done.code, done.out, f"chmod 700 {folder}" in done.err) == (6, "", True)
    assert len(list(folder.iterdir())) == 1


def test_a_token_that_could_not_be_printed_is_a_failure(folder: Path) -> None:
    command = f"exec {sys.executable} -m issuer {' '.join(CREATE)} --dir {folder} > /dev/full"
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "made" in done.stderr, "the operator learns which token to revoke"


def test_the_folder_comes_from_the_settings_the_variables_or_the_option(tmp_path: Path) -> None:
    settings, url = tmp_path / "settings.yaml", "https://issuer.example"
    required = {"url": url, "policies": "p", "keys_folder": "k", "store_url": "embedded"}
    settings.write_text(settings_text(**required, data=str(tmp_path / "one")))
    env = {f"ISSUER_{name.upper()}": value for name, value in required.items()} | {"ISSUER_DATA": str(tmp_path / "two")}
    for options, variables, folder in (
        (("--config", settings), {}, "one/pats"),
        ((), env, "two/pats"),
        ((), {**env, "ISSUER_PATS": str(tmp_path / "three")}, "three"),
        (("--dir", tmp_path / "four", "--config", settings), {}, "four"),
    ):
        assert issuer(*CREATE, *options, env=variables).code == 0
        assert len(list((tmp_path / folder).iterdir())) == 1
    for command in (CREATE, ("pat", "list"), ("pat", "revoke", "a" * 12)):
        done = issuer(*command)
        assert (done.code, done.out, "--dir" in done.err) == (6, "", True)


def test_tokens_are_listed_with_their_state_and_never_their_digest(folder: Path) -> None:
    now = int(time.time())
    active, expired = make_token(folder, 1, age_s=3 * DAY_S), make_token(folder, 2, age_s=40 * DAY_S)
    revoked, future = make_token(folder, 3, age_s=2 * DAY_S), make_token(folder, 4, age_s=-DAY_S)
    issuer("pat", "revoke", revoked, "--dir", folder)
    write_used(folder, active, now - 60)
    done = issuer("pat", "list", "--json", "--dir", folder)
    rows = json.loads(done.out)["tokens"]
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
    table = issuer("pat", "list", "--dir", folder).out
    lines = [re.split(r"  +", line) for line in table.splitlines()]
    assert lines[0] == ["ID", "ACCOUNT", "STATE", "CREATED", "EXPIRES", "LAST USED", "SCOPES", "NETWORKS"]
    assert [line[:3] for line in lines[1:]] == [[row["id"], row["account"], row["state"]] for row in rows]
    assert [line[5] == "never" for line in lines[1:]] == [True, False, True, True]
    hashes = {json.loads(path.read_bytes())["sha256"] for path in folder.glob("*.json")}
    assert not [found for found in hashes if found in table + done.out]


def test_a_malformed_record_is_named_with_its_place_and_hides_no_other(folder: Path) -> None:
    good, bad = make_token(folder, 1), make_token(folder, 2)
    path = path_of(folder, bad)
    record = {**json.loads(path.read_bytes()), "expires": 2**32}
    path.write_text(json.dumps(record))
    (folder / "\x1b[31mREADME").touch(mode=0o600)
    for form in ((), ("--json",)):
        done = issuer("pat", "list", "--dir", folder, *form)
        assert (done.code, good in done.out, bad in done.out) == (3, True, False)
        assert f"{path}: file.rule: a token must expire after its creation, at most 90 days later" in done.err
        assert ("at /expires" in done.err, "README: file.rule" in done.err) == (True, True)
        assert (record["sha256"] in done.err, "\x1b" in done.err) == (False, False)


def test_an_unknown_or_malformed_record_or_id_cannot_be_revoked(folder: Path) -> None:
    empty = issuer("pat", "list", "--dir", folder)
    assert (empty.code, empty.out, "contains no tokens" in empty.err) == (0, "", True)
    assert json.loads(issuer("pat", "list", "--dir", folder, "--json").out) == {"version": 1, "tokens": []}
    assert not folder.exists()
    public_id = make_token(folder)
    done = issuer("pat", "revoke", "a" * 12, "--dir", folder)
    assert (done.code, done.out) == (6, "")
    assert f"pat.unknown: {folder} has no personal access token with the id {'a' * 12}" in done.err
    path_of(folder, public_id).write_bytes(b"{")
    done = issuer("pat", "revoke", public_id, "--dir", folder)
    assert (done.code, f"{path_of(folder, public_id)}:1:2: file.syntax" in done.err) == (3, True)
    assert path_of(folder, public_id).read_bytes() == b"{"
    token = issuer(*CREATE, "--dir", folder).out.strip()
    for given in (token, "short", "../../../etc/x", "a" * 13, "aaaaaa/aaaaa", ""):
        done = issuer("pat", "revoke", "--dir", folder, "--", given)
        assert (done.code, done.out) == (2, "")
        assert len(given) < 12 or given not in done.err.replace("\n", ""), "it is never repeated"
        assert given != token or token[21:35] not in done.err
