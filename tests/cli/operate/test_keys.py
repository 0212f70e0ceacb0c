"""`issuer keys`: its options and output. The transcripts of keys/README.md are a story (tests/test_stories.py)."""

import getpass
import json
import os
import re
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.formats import jose
from issuer.formats.times import show_span
from issuer.io import keyfile
from issuer.io.common_documents import HISTORY, MOVED
from issuer.service.signing.bounds import PUBLISHED_S
from tests.support import key_times
from tests.support.in_process import Done, run
from tests.support.running import running
from tests.support.settings import settings_text
from tests.support.waiting import eventually


def keys(folder: Path, *arguments: object, env: dict[str, str] | None = None) -> Done:
    given = (*arguments, "--dir", folder / "keys", "--data", folder / "data")
    return run(["keys", *map(str, given)], env=env)


def output(folder: Path, *arguments: object) -> str:
    done = keys(folder, *arguments)
    assert done.code == 0, done
    return done.out


def kid_of(path: str) -> str:
    return Path(path.splitlines()[0]).stem.removeprefix("key-")


def listed(folder: Path) -> dict[str, dict[str, object]]:
    return {key["kid"]: key for key in json.loads(output(folder, "list", "--json"))["keys"]}


# -- finding the folders -------------------------------------------------------------------------------------------------


def test_the_places_come_from_options_settings_or_variables(tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("secret\n")
    (tmp_path / "passphrase").chmod(0o600)
    for how in ("options", "settings", "variables", "variables over settings"):
        folder = tmp_path / how
        folder.mkdir()
        places = {"keys_folder": folder / "k", "data": folder / "d", "keys_passphrase_file": tmp_path / "passphrase"}
        config, options, env = folder / "settings.yaml", list[object](), dict[str, str]()
        if "settings" in how:
            written = dict.fromkeys(places, "/nowhere") if how == "variables over settings" else places
            paths = {name: str(path) for name, path in written.items()}
            config.write_text(settings_text(url="https://issuer.example", policies="p", store_url="embedded", **paths))
            options = ["--config", config]
        if "variables" in how:
            env = {f"ISSUER_{name.upper()}": str(value) for name, value in places.items()}
        if how == "options":
            options = ["--dir", folder / "k", "--data", folder / "d", "--passphrase-file", tmp_path / "passphrase"]
        done = run(["keys", "generate", *map(str, options)], tmp_path, env=env)
        assert done.code == 0, done
        made = Path(done.out.strip())
        assert (made.parent, (folder / "d" / "key-history.jsonl").exists()) == (folder / "k" / "active", True)
        keyfile.read(made, b"secret")
    for lacking in ([], ["--dir", str(tmp_path)], ["--data", str(tmp_path)]):
        done = run(["keys", "list", *lacking], tmp_path)
        assert (done.code, "give --dir, the keys, and --data" in done.err) == (6, True)


# -- generate ------------------------------------------------------------------------------------------------------------


def test_generate_prints_the_file_and_records_operator_and_reason(tmp_path: Path) -> None:
    done = keys(tmp_path, "generate", "--reason", "first \x1b[2J", env={"SUDO_USER": "alice"})
    assert re.fullmatch(rf"{tmp_path}/keys/active/key-[\w-]{{43}}\.pem\n", done.out)
    assert "signs at once" in done.err
    (event,) = key_times.events(tmp_path / "data")
    assert (event.what, event.why) == ("active", "first \x1b[2J")
    assert event.who == f"{getpass.getuser()}@{os.uname().nodename} (sudo by alice)"
    again = keys(tmp_path, "generate")
    assert "/keys/next/key-" in again.out
    assert f"{show_span(PUBLISHED_S)} after every host" in again.err


# -- list and public -----------------------------------------------------------------------------------------------------


def test_every_key_is_listed_with_its_state_and_its_first_time_to_sign(tmp_path: Path) -> None:
    assert keys(tmp_path, "list").err == f"{tmp_path}/keys contains no keys; make one with `issuer keys generate`\n"
    first, second = kid_of(output(tmp_path, "generate")), kid_of(output(tmp_path, "generate"))
    rows = [re.split(r"  +", line) for line in output(tmp_path, "list").splitlines()]
    assert rows == [
        ["KID", "STATE", "AGE", "ENCRYPTED", "MAY SIGN FROM"],
        [second, "next", "0 min", "no", "not published yet"],
        [first, "active", "0 min", "no", "now"],
    ]
    key_times.pass_time(tmp_path / "data", 100)
    published = next(event.time for event in key_times.events(tmp_path / "data") if event.what == "published")
    assert listed(tmp_path)[second]["may_sign_from"] == published + PUBLISHED_S
    output(tmp_path, "revoke", f"key-{first}", "--from", "0", "--reason", "x")
    (tmp_path / "keys" / "next" / f"key-{second}.pem").unlink()
    found = output(tmp_path, "list").splitlines()
    assert re.split(r"  +", found[1]) == [first, "revoked", "1 min", "no", "never"]
    assert re.split(r"  +", found[2]) == [second, "next", "1 min", "-", "not published yet", "gone"]


def test_an_encrypted_key_is_listed_and_published_and_an_unusable_one_listed(tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("secret\n")
    kid = kid_of(output(tmp_path, "generate", "--passphrase-file", tmp_path / "passphrase"))
    assert re.split(r"  +", output(tmp_path, "list").splitlines()[1])[3] == "yes, not opened"
    opened = output(tmp_path, "list", "--passphrase-file", tmp_path / "passphrase")
    assert re.split(r"  +", opened.splitlines()[1])[3] == "yes"
    assert set(jose.parse_key_set(output(tmp_path, "public").encode()).keys) == {kid}, (
        "the history knows its public half"
    )
    (tmp_path / "data" / "key-history.jsonl").unlink()
    closed = keys(tmp_path, "public")
    assert (closed.code, "give --passphrase-file" in closed.err) == (6, True)
    made = Path(output(tmp_path / "open", "generate").strip())
    made.chmod(0o640)
    odd = made.with_name("odd\x1b[2J.pem")
    odd.write_text("malformed")
    odd.chmod(0o600)
    done = keys(tmp_path / "open", "list")
    assert (done.code, f"chmod 600 {made}" in done.err, "\x1b" in done.out + done.err) == (6, True, False)
    assert not [text for text in (kid_of(str(made)), "not known", "odd\\x1b[2J.pem") if text not in done.out]


def test_without_a_usable_history_files_are_listed_and_revoked_alone(tmp_path: Path) -> None:
    for why, said in {"damaged": "key-history.jsonl:1: ", MOVED: "moved to the log's database"}.items():
        folder = tmp_path / why
        path = Path(output(folder, "generate").strip())
        history, kid = folder / "data" / HISTORY, kid_of(str(path))
        (history if why == "damaged" else folder / "data" / MOVED).write_text("damaged\n")
        before = history.read_bytes()
        listed = keys(folder, "list")
        row = re.split(r"  +", listed.out.splitlines()[1])
        assert row[:4] == [kid, "active", "0 min", "no"]
        assert why == MOVED or row[4] == "-"
        for done in (listed, *(keys(folder, *words) for words in (("rotate",), ("generate",), ("rotate", "--plan")))):
            assert (done.code, said in done.err) == (6, True), done
        assert history.read_bytes() == before
        revoked = keys(folder, "revoke", f"key-{kid}", "--from", "0", "--reason", "x")
        assert (revoked.code, (folder / "keys" / "revoked" / path.name).exists()) == (6, True), (
            "it is moved all the same"
        )
        assert why == MOVED or "it is not in the history: " in revoked.err


def test_public_prints_a_key_set_for_a_trust_file(tmp_path: Path) -> None:
    signing = {kid_of(output(tmp_path, "generate")) for _ in range(2)}
    for name in ("receipt", "revocation"):
        (tmp_path / "keys" / name).mkdir(0o700)
        keyfile.write(tmp_path / "keys" / name / "mine.pem", keyfile.generate())
    names = ("signing", "receipt", "revocation")
    sets = {name: json.loads(output(tmp_path, "public", "--of", name))["keys"] for name in names}
    assert {key["kid"] for key in sets["signing"]} == signing
    assert {len(sets["receipt"]), len(sets["revocation"])} == {1}
    assert len({key["kid"] for found in sets.values() for key in found}) == 4
    one = run(["keys", "public", "--of", "keys/receipt/mine.pem"], tmp_path)
    assert json.loads(one.out)["keys"] == sets["receipt"]
    assert not {"d", "PRIVATE"} & {name for key in sets["receipt"] for name in key}
    assert keys(tmp_path / "nowhere", "public").code == 6


# -- rotate and revoke ---------------------------------------------------------------------------------------------------


def test_a_malformed_command_is_a_usage_error_and_makes_no_file(tmp_path: Path) -> None:
    for arguments in (
        ("rotate", "key-x"), ("rotate", "--to", "active"), ("rotate", "--plan", "--compromised"),
        ("rotate", "key-x", "--to", "revoked"), ("revoke", "key-x", "--reason", "x"),
        ("revoke", "key-x", "--from", "0"), ("revoke", "key-x", "--from", "yesterday", "--reason", "x"),
        ("revoke", "key-x", "--from", "2199-01-01T00:00:00Z", "--reason", "x"), ("generate", "--state", "retiring"),
        ("generate", "--reason", "x" * 513), ("generate", "--reason", "\udcff"),
    ):  # fmt: skip
        assert keys(tmp_path, *arguments).code == 2, arguments
        assert not list(tmp_path.iterdir())


def test_a_key_is_revoked_by_any_of_its_names(tmp_path: Path) -> None:
    kids = [kid_of(output(tmp_path, "generate")) for _ in range(3)]
    names = [f"key-{kids[0]}", tmp_path / "keys" / "next" / f"key-{kids[1]}.pem", f"key-{kids[2]}.pem"]
    for kid, name in zip(kids, names, strict=True):
        done = output(tmp_path, "revoke", name, "--from", "2026-01-01T00:00:00Z", "--reason", "in a log")
        assert f"{tmp_path}/keys/revoked/key-{kid}.pem\n{kid} is revoked from 2026-01-01T00:00:00Z on.\n" in done
        assert "`issuer keys rotate --compromised`" in done, "no key is active"
    assert {row["state"] for row in listed(tmp_path).values()} == {"revoked"}
    assert "/keys/active/key-" in output(tmp_path, "rotate", "--compromised")
    unknown = keys(tmp_path, "revoke", "key-\x1b[2J", "--from", "0", "--reason", "x")
    assert (unknown.code, "\x1b" in unknown.err) == (6, False)


# -- beside a service that runs --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_running_service_follows_each_step(tmp_path: Path) -> None:
    def key_set() -> set[str]:
        return {key["kid"] for key in live.http.get("/.well-known/jwks.json").json()["keys"]}

    def signs() -> str:
        answer = live.post(live.token())
        return str(answer.json()["kid"]) if answer.status_code == 201 else ""

    with LocalProvider() as provider, running(tmp_path, provider) as live:
        (old,) = key_set()
        new = kid_of(output(tmp_path, "generate"))
        eventually(lambda: key_set() == {old, new})
        assert signs() == old
        output(tmp_path, "rotate", "--compromised", "--reason", "a theft")
        eventually(lambda: signs() == new)
        assert key_set() == {old, new}
        output(tmp_path, "revoke", f"key-{old}", "--from", "0", "--reason", "a theft")
        eventually(lambda: key_set() == {new})
        archived = live.http.get("/.well-known/jwks-archive.json").json()["keys"]
        assert {key["kid"]: key.get("revoked_from") for key in archived} == {old: 0, new: None}
        assert signs() == new
        output(tmp_path, "revoke", f"key-{new}", "--from", "0", "--reason", "another")
        eventually(lambda: signs() == "")
        following = kid_of(output(tmp_path, "rotate", "--compromised"))
        eventually(lambda: signs() == following)
    assert [(event.kid, event.what) for event in key_times.events(tmp_path / "data")] == [
        (old, "active"), (new, "next"), (old, "retiring"), (new, "active"), (old, "revoked"), (new, "revoked"),
        (following, "active"),
    ]  # fmt: skip
