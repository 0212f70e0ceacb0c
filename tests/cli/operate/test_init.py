"""`issuer init`: it makes a complete folder or none, and never replaces another file."""

import os
import pwd
import re
import shlex
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


def test_the_folder_has_every_file_of_a_service_with_its_mode(tmp_path: Path) -> None:
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
    (tmp_path / "empty").mkdir(0o700)
    for name in ("empty", "a/b/c"):
        assert run(["init", name, "--url", URL], tmp_path).code == 0
        assert (tmp_path / name / "settings.yaml").exists()


def test_the_next_three_commands_are_printed_and_succeed(tmp_path: Path) -> None:
    commands = re.findall(r"^  issuer (.*)$", begin(tmp_path).out, re.M)
    assert [command.split()[0] for command in commands] == ["config", "policy", "serve"]
    checked, tested = (run(command.split(), tmp_path) for command in commands[:2])  # the page's story runs the third
    assert (checked.code, checked.err, tested.code, tested.err) == (0, "", 0, "")
    assert "6 tests passed" in tested.out
    listed = run(["keys", "list", "--config", "made/settings.yaml"], tmp_path)
    assert (listed.code, listed.out.count("active")) == (0, 1)
    policies, findings = check_policies(tmp_path / "made" / "policies", URL, int(time.time()))
    assert policies is not None
    assert not findings
    # Staged: the sample's ids are made up, and a real repository may have them.
    assert {each.policy.mode for bucket in policies.registrations.values() for each in bucket} == {"staged"}


def test_the_settings_name_this_folder_and_the_given_options(tmp_path: Path) -> None:
    assert begin(tmp_path, "--store", "unix:///run/s", "--port", "9").code == 0
    made = tmp_path / "made"
    settings, origins = find_settings(made / "settings.yaml", {})
    assert (settings.url, settings.store.url, settings.listen.port) == (URL, "unix:///run/s", 9)
    places = [settings.policies, settings.data, settings.keys.folder]
    assert places == [str(made / name) for name in ("policies", "data", "keys")]
    assert not settings.development
    assert all(name in origins or value == MEMBERS[name].default for name, value in values_of(settings).items())
    assert run(["init", "plain", "--url", "http://127.0.0.1:8000"], tmp_path).code == 0
    assert read_settings(tmp_path / "plain" / "settings.yaml", {}).development
    for url in ("http://issuer.example", "https://issuer.example/", "issuer.example"):
        assert run(["init", "other", "--url", url], tmp_path).code == 2
    assert not (tmp_path / "other").exists()


def test_each_setting_is_described_and_each_default_can_be_uncommented(tmp_path: Path) -> None:
    begin(tmp_path)
    text = (tmp_path / "made" / "settings.yaml").read_text()
    open_text = re.sub(r"^#(?! )|^#(?=  \w+: )", "", text, flags=re.M)
    (tmp_path / "open.yaml").write_text(open_text)
    opened, origins = find_settings(tmp_path / "open.yaml", {})
    assert sorted(origins) == sorted(MEMBERS)
    assert opened == read_settings(tmp_path / "made" / "settings.yaml", {})
    lines = open_text.splitlines()
    assert all(lines[int(origin.rpartition(":")[2]) - 2].strip().startswith("# ") for origin in origins.values())


def test_the_unit_is_the_one_of_deploy_with_the_folder_s_paths(tmp_path: Path) -> None:
    begin(tmp_path)
    own = (tmp_path / "made" / "issuer.service").read_text().splitlines()
    ours = (ROOT / "deploy" / "systemd" / "issuer.service").read_text().splitlines()
    made = tmp_path / "made"
    assert [line for line in own[2:] if line not in ours] == [
        f"RequiresMountsFor={made}",
        f"User={pwd.getpwuid(os.geteuid()).pw_name}",
        f"ExecStart={Path(sys.executable).parent / 'issuer'} serve --config {made / 'settings.yaml'}",
        f"WorkingDirectory={made}",
        f"ReadWritePaths={made / 'keys'} {made / 'data'}",
    ]
    assert "/etc/issuer/settings.yaml" not in "\n".join(own)
    assert (made / "compose.yaml").read_bytes() == (ROOT / "deploy" / "compose.yaml").read_bytes()


@pytest.mark.needs_tool("systemd-analyze")
def test_a_unit_names_its_folder_for_any_folder_name(tmp_path: Path) -> None:
    """As systemd reads it, which reports lines that it ignores."""
    for name in ("two words", "100%h", "$HOME", "a %% $$ b", "plain"):
        folder = tmp_path / name
        assert run(["init", name, "--url", URL], tmp_path).code == 0
        text = (folder / "issuer.service").read_text()
        own = dict(line.split("=", 1) for line in text.splitlines() if str(tmp_path) in line)
        assert own["WorkingDirectory"].replace("%%", "%") == str(folder)
        assert shlex.split(own["RequiresMountsFor"].replace("%%", "%")) == [str(folder)]
        (*_, config) = shlex.split(own["ExecStart"].replace("%%", "%").replace("$$", "$"))
        assert config == str(folder / "settings.yaml")
        assert shlex.split(own["ReadWritePaths"].replace("%%", "%")) == [str(folder / "keys"), str(folder / "data")]
        unit = tmp_path / "issuer.service"
        unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
        command: list[str | Path] = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_no_existing_file_is_replaced_and_no_folder_made_that_no_unit_can_name(tmp_path: Path) -> None:
    for name in ('a"b', "a'b", "a\\b", "a\nb", "end "):
        done = run(["init", name, "--url", URL], tmp_path)
        assert (done.code, "a systemd unit cannot name" in done.err, list(tmp_path.iterdir())) == (6, True, [])
    for existing in ("itself", "a folder with a file", "a file", "a link", "a dangling link"):
        folder, place = tmp_path / existing, tmp_path / existing / "made"
        folder.mkdir()
        if existing == "itself":
            begin(folder)
        elif existing == "a folder with a file":
            place.mkdir()
            (place / ".hidden").write_text("mine")
        elif existing == "a file":
            place.write_text("mine")
        else:
            place.symlink_to(folder / "elsewhere")
            if existing == "a link":
                (folder / "elsewhere").mkdir()
        before = [(path, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))]
        done = begin(folder)
        assert (done.code, "`init` replaces no file" in done.err, done.out) == (6, True, ""), existing
        assert [(path, path.lstat().st_mtime_ns) for path in sorted(folder.rglob("*"))] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_makes_it_for_the_owner_of_the_folder_and_gives_no_file_behind_a_link(tmp_path: Path) -> None:
    """The folder's new owner could place the link before root has given away the folder's files."""
    (tmp_path / "made").mkdir()
    os.chown(tmp_path / "made", 4711, 4712)
    assert begin(tmp_path).code == 0
    made = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(4711, 4712)}
    assert "User=4711\n" in (tmp_path / "made" / "issuer.service").read_text()
    for name in ("draft/keys", "root-s"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "root-s" / "shadow").write_text("x")
    (tmp_path / "draft" / "settings.yaml").symlink_to(tmp_path / "root-s" / "shadow")
    (tmp_path / "draft" / "keys" / "active").symlink_to(tmp_path / "root-s")
    give_away(tmp_path / "draft", 4711, 4712)
    draft = [tmp_path / "draft", *(tmp_path / "draft").rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in draft} == {(4711, 4712)}
    assert {path.stat().st_uid for path in (tmp_path / "root-s", tmp_path / "root-s" / "shadow")} == {0}


@pytest.mark.long
@pytest.mark.parametrize("size", ["4k", "8k", "16k"])
def test_a_disk_that_is_too_small_leaves_nothing(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        done = begin(disk)
        assert (done.code, "No space left" in done.err, list(disk.iterdir())) == (6, True, [])


# Kills itself at the Nth event of a file or folder with this name.
KILLER = """
import os, runpy, signal, sys
left = int(sys.argv.pop(1))
def hook(event, arguments):
    global left
    if event.startswith(("open", "os.")) and "made" in repr(arguments):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
runpy.run_module("issuer", run_name="__main__")
"""


@pytest.mark.long
def test_an_init_that_was_killed_leaves_a_whole_folder_or_a_named_draft(tmp_path: Path) -> None:
    """A draft may hold a key: its finder has to learn that the key was never used."""
    keys_left, code = 0, -signal.SIGKILL
    for at in range(1, 1000, 2):
        folder = tmp_path / str(at)
        folder.mkdir()
        command = [sys.executable, "-c", KILLER, str(at), "init", "made", "--url", URL]
        code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
        before, again = sorted(folder.rglob("*")), begin(folder)
        if list(folder.glob(".made.draft/keys/active/*.pem")):
            keys_left += 1
            assert (str(folder / ".made.draft") in again.err, "its private key was never used" in again.err) == (
                True,
                True,
            )
        if "left from an `issuer init` that was killed" in again.err:
            assert sorted(folder.rglob("*")) == before, "another `issuer init` may still use the draft"
            (command_line,) = re.findall(r"rm -r \S+$", again.err, re.MULTILINE)
            subprocess.run(shlex.split(command_line), cwd=folder, check=True)
            assert begin(folder).code == 0
        assert run(["config", "check", "--config", "made/settings.yaml"], folder).code == 0
        assert run(["keys", "list", "--config", "made/settings.yaml"], folder).out.count("active") == 1
        assert [path.name for path in folder.iterdir()] == ["made"]
        if code == 0:
            break
    assert (code, keys_left > 0) == (0, True)
