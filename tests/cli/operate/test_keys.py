"""`issuer keys`: what an operator types and reads. The transcripts of keys/README.md are a story (tests/test_stories.py)."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.formats.times import show_span
from issuer.io import keyfile
from issuer.io.common_documents import HISTORY, MOVED
from issuer.service.signing.bounds import LAST_TOKEN_S, PUBLISHED_S
from issuer.service.signing.lifecycle import KeyEvent
from tests.support import key_times
from tests.support.command import issuer
from tests.support.running import running
from tests.support.settings import settings_text
from tests.support.waiting import eventually


def keys(folder: Path, *arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return issuer("keys", *arguments, "--dir", folder / "keys", "--data", folder / "data", env=env)


def said(folder: Path, *arguments: object) -> str:
    done = keys(folder, *arguments)
    assert done.returncode == 0, done
    return done.stdout


def kid_of(path: str) -> str:
    return Path(path.splitlines()[0]).stem.removeprefix("key-")


def listed(folder: Path) -> dict[str, dict[str, object]]:
    return {key["kid"]: key for key in json.loads(said(folder, "list", "--json"))["keys"]}


def events(folder: Path) -> list[KeyEvent]:
    return key_times.events(folder / "data")


def pass_time(folder: Path, seconds: int) -> None:
    key_times.pass_time(folder / "data", seconds)


# -- finding the folders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["options", "settings", "variables", "variables over settings"])
def test_keys_history_and_passphrase_are_found_as_the_service_finds_them(tmp_path: Path, how: str) -> None:
    (tmp_path / "passphrase").write_text("secret\n")
    (tmp_path / "passphrase").chmod(0o600)
    places = {"keys_folder": tmp_path / "k", "data": tmp_path / "d", "keys_passphrase_file": tmp_path / "passphrase"}
    config, options, env = tmp_path / "settings.yaml", list[object](), dict[str, str]()
    written = dict.fromkeys(places, "/nowhere") if how == "variables over settings" else places
    if "settings" in how:
        paths = {name: str(path) for name, path in written.items()}
        config.write_text(settings_text(url="https://issuer.example", policies="p", store_url="embedded", **paths))
        options = ["--config", config]
    if "variables" in how:
        env = {f"ISSUER_{name.upper()}": str(value) for name, value in places.items()}
    if how == "options":
        options = ["--dir", tmp_path / "k", "--data", tmp_path / "d", "--passphrase-file", tmp_path / "passphrase"]
    done = issuer("keys", "generate", *options, env=env)
    assert done.returncode == 0, done
    made = Path(done.stdout.strip())
    assert made.parent == tmp_path / "k" / "active"
    keyfile.read(made, b"secret")
    assert (tmp_path / "d" / "key-history.jsonl").exists()


def test_without_folders_it_says_how_they_are_given(tmp_path: Path) -> None:
    for options in ([], ["--dir", tmp_path], ["--data", tmp_path]):
        done = issuer("keys", "list", *options)
        assert (done.returncode, "give --dir, the keys, and --data" in done.stderr) == (6, True)


# -- generate ------------------------------------------------------------------------------------------------------------


def test_a_made_key_is_its_file_alone_and_who_and_why_are_recorded(tmp_path: Path) -> None:
    done = keys(tmp_path, "generate", "--reason", "first \x1b[2J", env={"SUDO_USER": "alice"})
    assert re.fullmatch(rf"{tmp_path}/keys/active/key-[\w-]{{43}}\.pem\n", done.stdout)
    assert "signs at once" in done.stderr
    (event,) = events(tmp_path)
    assert (event.what, event.why) == ("active", "first \x1b[2J")
    assert event.who == f"{getpass.getuser()}@{os.uname().nodename} (sudo by alice)"
    again = keys(tmp_path, "generate")
    assert "/keys/next/key-" in again.stdout
    assert f"{show_span(PUBLISHED_S)} after every host" in again.stderr


@pytest.mark.parametrize("reason", ["x" * 513, "\udcff"])
def test_a_reason_is_text_of_some_length(tmp_path: Path, reason: str) -> None:
    assert keys(tmp_path, "generate", "--reason", reason).returncode == 2
    assert not list(tmp_path.iterdir())


def test_keys_that_would_mix_are_refused_with_what_to_do(tmp_path: Path) -> None:
    said(tmp_path, "generate")
    (tmp_path / "passphrase").write_text("secret\n")
    mixed = keys(tmp_path, "generate", "--passphrase-file", tmp_path / "passphrase")
    assert (mixed.returncode, mixed.stdout) == (6, "")
    assert "is not encrypted, and one passphrase opens all keys" in mixed.stderr
    assert "openssl pkcs8 -topk8" in mixed.stderr
    assert keys(tmp_path, "generate", "--passphrase-file", tmp_path / "nothing").returncode == 3
    assert len(listed(tmp_path)) == 1


# -- list and public -----------------------------------------------------------------------------------------------------


def test_every_key_is_listed_with_its_state_and_from_when_it_may_sign(tmp_path: Path) -> None:
    assert keys(tmp_path, "list").stderr == f"{tmp_path}/keys contains no keys; make one with `issuer keys generate`\n"
    first, second = kid_of(said(tmp_path, "generate")), kid_of(said(tmp_path, "generate"))
    rows = [re.split(r"  +", line) for line in said(tmp_path, "list").splitlines()]
    assert rows == [
        ["KID", "STATE", "AGE", "ENCRYPTED", "MAY SIGN FROM"],
        [second, "next", "0 min", "no", "not published yet"],
        [first, "active", "0 min", "no", "now"],
    ]
    pass_time(tmp_path, 100)
    published = next(event.time for event in events(tmp_path) if event.what == "published")
    assert listed(tmp_path)[second]["may_sign_from"] == published + PUBLISHED_S
    said(tmp_path, "revoke", f"key-{first}", "--from", "0", "--reason", "x")
    (tmp_path / "keys" / "next" / f"key-{second}.pem").unlink()
    found = said(tmp_path, "list").splitlines()
    assert re.split(r"  +", found[1]) == [first, "revoked", "1 min", "no", "never"]
    assert re.split(r"  +", found[2]) == [second, "next", "1 min", "-", "not published yet", "gone"]


def test_a_key_that_cannot_be_opened_is_listed_with_the_reason_and_exit_code_6(tmp_path: Path) -> None:
    made = Path(said(tmp_path, "generate").strip())
    made.chmod(0o640)
    odd = made.with_name("odd\x1b[2J.pem")
    odd.write_text("no key")
    odd.chmod(0o600)
    done = keys(tmp_path, "list")
    assert done.returncode == 6
    assert kid_of(str(made)) in done.stdout
    assert f"chmod 600 {made}" in done.stderr
    assert "not known" in done.stdout
    assert "odd\\x1b[2J.pem" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_an_encrypted_key_is_listed_and_published_without_its_passphrase(tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("secret\n")
    kid = kid_of(said(tmp_path, "generate", "--passphrase-file", tmp_path / "passphrase"))
    assert re.split(r"  +", said(tmp_path, "list").splitlines()[1])[3] == "yes, not opened"
    opened = said(tmp_path, "list", "--passphrase-file", tmp_path / "passphrase")
    assert re.split(r"  +", opened.splitlines()[1])[3] == "yes"
    assert set(jose.parse_key_set(said(tmp_path, "public").encode()).keys) == {kid}, "the history knows its public half"
    (tmp_path / "data" / "key-history.jsonl").unlink()
    closed = keys(tmp_path, "public")
    assert (closed.returncode, "give --passphrase-file" in closed.stderr) == (6, True)


def test_without_a_readable_history_the_files_are_listed(tmp_path: Path) -> None:
    kid = kid_of(said(tmp_path, "generate"))
    (tmp_path / "data" / "key-history.jsonl").write_text("damaged\n")
    done = keys(tmp_path, "list")
    assert done.returncode == 6
    assert re.split(r"  +", done.stdout.splitlines()[1]) == [kid, "active", "0 min", "no", "-"]
    assert "key-history.jsonl:1: " in done.stderr


def test_where_the_history_has_moved_away_nothing_goes_by_what_is_left(tmp_path: Path) -> None:
    path = said(tmp_path, "generate").strip()
    (tmp_path / "data" / MOVED).touch()
    done = keys(tmp_path, "list")
    assert (done.returncode, kid_of(path) in done.stdout) == (6, True)
    assert "moved to the log's database" in done.stderr
    before = (tmp_path / "data" / HISTORY).read_bytes()
    for arguments in (("rotate",), ("generate",), ("rotate", "--plan")):
        done = keys(tmp_path, *arguments)
        assert (done.returncode, done.stdout) == (6, ""), arguments
        assert "moved to the log's database" in done.stderr
    assert (tmp_path / "data" / HISTORY).read_bytes() == before
    done = keys(tmp_path, "revoke", kid_of(path), "--from", "0", "--reason", "x")
    assert (done.returncode, (tmp_path / "keys" / "revoked" / Path(path).name).exists()) == (6, True), (
        "it is taken away"
    )


def test_the_public_halves_are_a_key_set_for_a_trust_file(tmp_path: Path) -> None:
    signing = {kid_of(said(tmp_path, "generate")) for _ in range(2)}
    for name in ("receipt", "revocation"):
        (tmp_path / "keys" / name).mkdir(0o700)
        keyfile.write(tmp_path / "keys" / name / "mine.pem", keyfile.generate())
    sets = {
        name: json.loads(said(tmp_path, "public", "--of", name))["keys"]
        for name in ("signing", "receipt", "revocation")
    }
    assert {key["kid"] for key in sets["signing"]} == signing
    assert {len(sets["receipt"]), len(sets["revocation"])} == {1}
    assert len({key["kid"] for found in sets.values() for key in found}) == 4
    one = issuer("keys", "public", "--of", tmp_path / "keys" / "receipt" / "mine.pem")
    assert json.loads(one.stdout)["keys"] == sets["receipt"]
    assert not {"d", "PRIVATE"} & {name for key in sets["receipt"] for name in key}
    assert keys(tmp_path / "nowhere", "public").returncode == 6


# -- rotate and revoke ---------------------------------------------------------------------------------------------------


def test_a_rotation_says_what_it_did_and_what_it_waits_for(tmp_path: Path) -> None:
    old, new = kid_of(said(tmp_path, "generate")), kid_of(said(tmp_path, "rotate"))
    waits = said(tmp_path, "rotate")
    assert waits.startswith("No step is due.\n")
    assert f"{new} waits until every host has published it" in waits
    pass_time(tmp_path, PUBLISHED_S - 100)
    assert re.search(rf"{new} may sign from \d{{4}}-\S+Z: run `issuer keys rotate` then", said(tmp_path, "rotate"))
    plan = [re.split(r"  +", line) for line in said(tmp_path, "rotate", "--plan").splitlines()]
    assert plan[0] == ["KID", "STATE", "PUBLISHED", "SIGNS FROM", "RETIRES", "LAST TOKEN EXPIRES"]
    assert plan[1][3] == plan[2][4], "the one retires when the other signs"
    assert {key: row["state"] for key, row in listed(tmp_path).items()} == {old: "active", new: "next"}
    pass_time(tmp_path, 100)
    assert f"{new} signs from now on.\n{old} may leave the key set" in said(tmp_path, "rotate")
    pass_time(tmp_path, LAST_TOKEN_S)
    assert f"{old} is archived.\nThe next rotation may begin now" in said(tmp_path, "rotate")


def test_an_early_step_is_refused_with_its_time_and_done_where_the_other_key_is_compromised(tmp_path: Path) -> None:
    said(tmp_path, "generate")
    new = kid_of(said(tmp_path, "generate"))
    early = keys(tmp_path, "rotate", f"key-{new}", "--to", "active")
    assert (early.returncode, early.stdout) == (6, "")
    assert f"key.step: {new} signs {show_span(PUBLISHED_S)} after" in early.stderr
    done = said(tmp_path, "rotate", f"key-{new}.pem", "--to", "active", "--compromised", "--reason", "theft")
    assert f"For up to {show_span(PUBLISHED_S)}, relying parties may have key sets without this key" in done
    assert [(event.what, event.why) for event in events(tmp_path)[-2:]] == [("retiring", "theft"), ("active", "theft")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["rotate", "key-x"],
        ["rotate", "--to", "active"],
        ["rotate", "--plan", "--compromised"],
        ["rotate", "key-x", "--to", "revoked"],
        ["revoke", "key-x", "--reason", "x"],
        ["revoke", "key-x", "--from", "0"],
        ["revoke", "key-x", "--from", "yesterday", "--reason", "x"],
        ["revoke", "key-x", "--from", "2199-01-01T00:00:00Z", "--reason", "x"],
        ["generate", "--state", "retiring"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error_and_changes_nothing(tmp_path: Path, arguments: list[str]) -> None:
    assert keys(tmp_path, *arguments).returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_key_is_taken_back_by_any_of_its_names_and_the_next_step_is_said(tmp_path: Path) -> None:
    kids = [kid_of(said(tmp_path, "generate")) for _ in range(3)]
    names = [f"key-{kids[0]}", tmp_path / "keys" / "next" / f"key-{kids[1]}.pem", f"key-{kids[2]}.pem"]
    for kid, name in zip(kids, names, strict=True):
        done = said(tmp_path, "revoke", name, "--from", "2026-01-01T00:00:00Z", "--reason", "in a log")
        assert f"{tmp_path}/keys/revoked/key-{kid}.pem\n{kid} is revoked from 2026-01-01T00:00:00Z on.\n" in done
        assert "`issuer keys rotate --compromised`" in done, "no key is active"
    assert {row["state"] for row in listed(tmp_path).values()} == {"revoked"}
    assert "/keys/active/key-" in said(tmp_path, "rotate", "--compromised")
    unknown = keys(tmp_path, "revoke", "key-\x1b[2J", "--from", "0", "--reason", "x")
    assert (unknown.returncode, "\x1b" in unknown.stderr) == (6, False)


def test_what_could_not_be_done_for_a_revocation_is_said_and_exits_with_6(tmp_path: Path) -> None:
    kid = kid_of(said(tmp_path, "generate"))
    (tmp_path / "data" / "key-history.jsonl").write_text("damaged\n")
    done = keys(tmp_path, "revoke", f"key-{kid}", "--from", "0", "--reason", "x")
    assert done.returncode == 6
    assert (tmp_path / "keys" / "revoked" / f"key-{kid}.pem").exists()
    assert "it is not in the history: " in done.stderr
    assert "Traceback" not in done.stderr


# -- beside a service that runs --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_running_service_follows_each_step_and_tells_nothing_twice(tmp_path: Path) -> None:
    def key_set() -> set[str]:
        return {key["kid"] for key in live.http.get("/.well-known/jwks.json").json()["keys"]}

    def signs() -> str:
        answer = live.post(live.token())
        return str(answer.json()["kid"]) if answer.status_code == 201 else ""

    with LocalProvider() as provider, running(tmp_path, provider) as live:
        (old,) = key_set()
        new = kid_of(said(tmp_path, "generate"))
        eventually(lambda: key_set() == {old, new})
        assert signs() == old
        said(tmp_path, "rotate", "--compromised", "--reason", "a theft")
        eventually(lambda: signs() == new)
        assert key_set() == {old, new}
        said(tmp_path, "revoke", f"key-{old}", "--from", "0", "--reason", "a theft")
        eventually(lambda: key_set() == {new})
        archived = live.http.get("/.well-known/jwks-archive.json").json()["keys"]
        assert {key["kid"]: key.get("revoked_from") for key in archived} == {old: 0, new: None}
        assert signs() == new
        said(tmp_path, "revoke", f"key-{new}", "--from", "0", "--reason", "another")
        eventually(lambda: signs() == "")
        following = kid_of(said(tmp_path, "rotate", "--compromised"))
        eventually(lambda: signs() == following)
    assert [(event.kid, event.what) for event in events(tmp_path)] == [
        (old, "active"), (new, "next"), (old, "retiring"), (new, "active"), (old, "revoked"), (new, "revoked"),
        (following, "active"),
    ]  # fmt: skip
