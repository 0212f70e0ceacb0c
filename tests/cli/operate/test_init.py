"""`issuer init`: a whole folder or none, which is good as it is and never takes another's place."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from issuer.policy.authoring.load import check_policies
from issuer.service.process.new_folder import give_away
from issuer.service.settings.model import MEMBERS, values_of
from issuer.service.settings.reader import find_settings, read_settings
from tests.support.disk import small_disk
from tests.support.in_process import Done, run
from tests.support.shared import ROOT

URL = "https://issuer.example"


def begin(folder: Path, *more: str) -> Done:
    return run(["init", "made", "--url", URL, *more], folder)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_the_folder_has_what_a_service_needs_each_with_its_mode(tmp_path: Path) -> None:
    done = begin(tmp_path)
    assert (done.code, done.err) == (0, "")
    made = modes(tmp_path / "made")
    (key,) = (name for name in made if name.endswith(".pem"))
    assert key.startswith("keys/active/key-")
    assert {name: mode for name, mode in made.items() if mode & 0o077} == {
        "policies": 0o755, "policies/providers.yaml": 0o644, "policies/inspect-ai.yaml": 0o644, "compose.yaml": 0o644,
        "issuer.service": 0o644,
    }  # fmt: skip
    assert {"settings.yaml", "keys", "data", "data/key-history.jsonl", key} <= made.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["made"], "no draft is left"


def test_the_next_three_commands_are_printed_and_good(tmp_path: Path) -> None:
    commands = re.findall(r"^  issuer (.*)$", begin(tmp_path).out, re.M)
    assert [command.split()[0] for command in commands] == ["config", "policy", "serve"]
    ended = [run(command.split(), tmp_path) for command in commands[:2]]  # the third one is run by the page
    assert [(done.code, done.err) for done in ended] == [(0, "")] * 2
    assert "6 tests passed" in ended[1].out
    listed = run(["keys", "list", "--config", "made/settings.yaml"], tmp_path)
    assert (listed.code, listed.out.count("active")) == (0, 1)


def test_the_settings_name_this_folder_and_what_was_wished(tmp_path: Path) -> None:
    assert begin(tmp_path, "--store", "unix:///run/s", "--port", "9").code == 0
    made = tmp_path / "made"
    settings, origins = find_settings(made / "settings.yaml", {})
    assert (settings.url, settings.store.url, settings.listen.port) == (URL, "unix:///run/s", 9)
    assert [settings.policies, settings.data, settings.keys.folder] == [
        str(made / n) for n in ("policies", "data", "keys")
    ]
    assert not settings.development
    assert all(name in origins or value == MEMBERS[name].default for name, value in values_of(settings).items())


def test_each_setting_is_said_to_be_what_it_is_and_each_default_can_be_taken_out_of_its_comment(tmp_path: Path) -> None:
    begin(tmp_path)
    text = (tmp_path / "made" / "settings.yaml").read_text()
    open_text = re.sub(r"^#(?! )|^#(?=  \w+: )", "", text, flags=re.M)
    (tmp_path / "open.yaml").write_text(open_text)
    opened, origins = find_settings(tmp_path / "open.yaml", {})
    assert sorted(origins) == sorted(MEMBERS)
    assert opened == read_settings(tmp_path / "made" / "settings.yaml", {})
    lines = open_text.splitlines()
    assert all(lines[int(origin.rpartition(":")[2]) - 2].strip().startswith("# ") for origin in origins.values())


def test_plain_http_is_for_development_which_the_settings_say(tmp_path: Path) -> None:
    assert run(["init", "made", "--url", "http://127.0.0.1:8000"], tmp_path).code == 0
    assert read_settings(tmp_path / "made" / "settings.yaml", {}).development
    for url in ("http://issuer.example", "https://issuer.example/", "issuer.example"):
        assert run(["init", "other", "--url", url], tmp_path).code == 2
    assert not (tmp_path / "other").exists()


def test_nothing_is_issued_under_the_sample_before_its_ids_are_somebody_s(tmp_path: Path) -> None:
    """They are made up, and may be those of a repository that exists."""
    begin(tmp_path)
    policies, findings = check_policies(tmp_path / "made" / "policies", URL, int(time.time()))
    assert policies is not None
    assert not findings
    assert {registered.policy.mode for bucket in policies.registrations.values() for registered in bucket} == {"staged"}


def test_the_unit_is_that_of_deploy_with_the_folder_s_paths(tmp_path: Path) -> None:
    begin(tmp_path)
    own = (tmp_path / "made" / "issuer.service").read_text().splitlines()
    ours = (ROOT / "deploy" / "systemd" / "issuer.service").read_text().splitlines()
    made = tmp_path / "made"
    assert [line for line in own[2:] if line not in ours] == [
        f"User={pwd.getpwuid(os.geteuid()).pw_name}",
        f"ExecStart={Path(sys.executable).parent / 'issuer'} serve --config {made / 'settings.yaml'}",
        f"WorkingDirectory={made}",
        f"ReadWritePaths={made / 'keys'} {made / 'data'}",
    ]
    assert "/etc/issuer/settings.yaml" not in "\n".join(own)
    assert (made / "compose.yaml").read_bytes() == (ROOT / "deploy" / "compose.yaml").read_bytes()


@pytest.mark.needs_tool("systemd-analyze")
@pytest.mark.parametrize("name", ["two words", "100%h", "$HOME", "a %% $$ b", "plain"])
def test_a_unit_names_the_very_folder_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    """As systemd reads it, which tells what it does not understand and ignores."""
    folder = tmp_path / name
    assert run(["init", name, "--url", URL], tmp_path).code == 0
    text = (folder / "issuer.service").read_text()
    own = dict(line.split("=", 1) for line in text.splitlines() if str(tmp_path) in line)
    assert own["WorkingDirectory"].replace("%%", "%") == str(folder)
    (*_, config) = shlex.split(own["ExecStart"].replace("%%", "%").replace("$$", "$"))
    assert config == str(folder / "settings.yaml")
    assert shlex.split(own["ReadWritePaths"].replace("%%", "%")) == [str(folder / "keys"), str(folder / "data")]
    unit = tmp_path / "issuer.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ['a"b', "a'b", "a\\b", "a\nb", "end "])
def test_a_folder_that_no_unit_can_name_is_refused_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    done = run(["init", name, "--url", URL], tmp_path)
    assert (done.code, "a systemd unit cannot name" in done.err) == (6, True)
    assert not list(tmp_path.iterdir())


# -- nothing is replaced, and nothing is left half ----------------------------------------------------------------------


@pytest.mark.parametrize("there", ["itself", "a folder with a file", "a file", "a link", "a dangling link"])
def test_what_is_in_its_place_stays_as_it_is(tmp_path: Path, there: str) -> None:
    place = tmp_path / "made"
    if there == "itself":
        begin(tmp_path)
    elif there == "a folder with a file":
        place.mkdir()
        (place / ".hidden").write_text("mine")
    elif there == "a file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "elsewhere")
        if there == "a link":
            (tmp_path / "elsewhere").mkdir()
    before = [(path, path.lstat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))]
    done = begin(tmp_path)
    assert (done.code, "`init` replaces no file" in done.err, done.out) == (6, True, "")
    assert [(path, path.lstat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))] == before


def test_an_empty_folder_is_taken_and_a_missing_one_is_made_with_those_above_it(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir(0o700)
    assert begin(tmp_path).code == 0
    assert run(["init", "a/b/c", "--url", URL], tmp_path).code == 0
    assert (tmp_path / "a" / "b" / "c" / "settings.yaml").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_makes_it_for_the_owner_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    os.chown(tmp_path / "made", 4711, 4712)
    assert begin(tmp_path).code == 0
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(4711, 4712)}
    assert "User=4711\n" in (tmp_path / "made" / "issuer.service").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_its_new_owner_puts_a_link_to_stays_root_s(tmp_path: Path) -> None:
    """As who has got the folder could, before root has given away what is in it."""
    for name in ("draft/keys", "root-s"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root-s" / "shadow").write_text("x")
    (tmp_path / "draft" / "settings.yaml").symlink_to(tmp_path / "root-s" / "shadow")
    (tmp_path / "draft" / "keys" / "active").symlink_to(tmp_path / "root-s")
    give_away(tmp_path / "draft", 4711, 4712)
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in tmp_path.rglob("*")}
    assert {name for name, owner in owners.items() if owner == (4711, 4712)} == {
        "draft", "keys", "settings.yaml", "active",
    }  # fmt: skip
    assert (tmp_path / "root-s").stat().st_uid == 0


@pytest.mark.long
@pytest.mark.parametrize("size", ["4k", "8k", "16k"])
def test_a_disk_that_is_too_small_leaves_nothing(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        done = begin(disk)
        assert (done.code, "No space left" in done.err, list(disk.iterdir())) == (6, True, [])


@pytest.mark.long
@pytest.mark.parametrize("after_ms", [0, 1, 2, 5, 10, 20])
def test_a_killed_one_leaves_no_folder_or_a_whole_one(tmp_path: Path, after_ms: int) -> None:
    child = subprocess.Popen([sys.executable, "-m", "issuer", "init", "made", "--url", URL], cwd=tmp_path)
    while child.poll() is None and not list(tmp_path.iterdir()):
        pass
    time.sleep(after_ms / 1000)
    child.send_signal(signal.SIGKILL)
    child.wait(60)
    if not (tmp_path / "made").exists():
        follow_what_is_said(tmp_path)
    assert run(["config", "check", "--config", "made/settings.yaml"], tmp_path).code == 0
    assert run(["keys", "list", "--config", "made/settings.yaml"], tmp_path).out.count("active") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def follow_what_is_said(folder: Path) -> None:
    """Make the folder anew, as the command says where it finds what a killed one has left."""
    again = begin(folder)
    if again.code:
        assert "left from an `issuer init` that was killed" in again.err, again
        (command,) = re.findall(r"rm -r \S+$", again.err, re.MULTILINE)
        subprocess.run(shlex.split(command), cwd=folder, check=True)
        assert begin(folder).code == 0


@pytest.mark.long
def test_what_a_killed_one_leaves_is_named_with_its_key_and_the_way_on(tmp_path: Path) -> None:
    """Killed as soon as the key is in the draft: beside it others find the key, who know nothing of it."""
    keys = tmp_path / ".made.draft" / "keys" / "active"
    for _ in range(20):
        child = subprocess.Popen([sys.executable, "-m", "issuer", "init", "made", "--url", URL], cwd=tmp_path)
        while child.poll() is None and not list(keys.glob("*.pem")):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        if list(keys.glob("*.pem")):
            break
        shutil.rmtree(tmp_path / "made", ignore_errors=True)  # it was faster than we are
    else:
        pytest.fail("it was never killed between the key and the end")
    before = sorted(tmp_path.rglob("*"))
    refused = begin(tmp_path)
    assert (refused.code, refused.out) == (6, "")
    assert str(tmp_path / ".made.draft") in refused.err
    assert "its private key was never used" in refused.err
    assert sorted(tmp_path.rglob("*")) == before, "it may be that of one that still runs"
    follow_what_is_said(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
