"""`issuer stop`, `resume` and `stops`: what an operator types in a bad night, against real workers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.command import issuer
from tests.support.running import Running, listening, running, serve
from tests.support.settings import by_name, settings_text
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("stop")
    with (
        LocalProvider() as provider,
        EmbeddedValkey() as store,
        running(folder, provider, command=serve(2), store_url=store) as service,
    ):
        eventually(lambda: listening(service) == 2)
        yield service


def test_a_stop_is_waited_for_in_each_worker_and_so_is_its_end(live: Running) -> None:
    places = ["--dir", str(live.folder / "policies"), "--url", live.url]
    stopped = issuer("stop", "integration:inspect-ai", "--reason", "a leak", *places)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert f"{live.url}: each worker has it" in stopped.stdout
    assert live.post(live.token()).json()["code"] == "integration.stopped"
    resumed = issuer("resume", "integration:inspect-ai", *places)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert live.post(live.token()).status_code == 201


def test_this_host_is_found_by_the_settings(live: Running, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(settings_text(**by_name(live.settings)))
    for command in (["stop", "everything", "--reason", "x"], ["resume", "everything"]):
        done = issuer(*command, "--config", str(settings), "--wait")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"http://127.0.0.1:{live.settings.listen.port}: each worker has it" in done.stdout


def test_who_does_not_have_it_is_named(live: Running, tmp_path: Path) -> None:
    """A host that reads another folder never will have it."""
    done = issuer("stop", "everything", "--reason", "x", "--dir", str(tmp_path), "--url", live.url, "--patience", "1")
    assert done.returncode == 4
    assert f"{live.url}: a worker applies other stops" in done.stderr
    assert "kill -USR1" in done.stderr


# -- the file alone ---------------------------------------------------------------------------------------------------


def test_stops_are_listed_with_their_state_and_reason(tmp_path: Path) -> None:
    here = ["--dir", str(tmp_path)]
    assert "stops nothing" in issuer("stops", *here).stderr
    assert (
        issuer(
            "stop", "provider:hub", "--reason", "an \x1b[31moutage", "--until", "2200-01-01T00:00:00Z", *here
        ).returncode
        == 0
    )
    listed = issuer("stops", *here)
    assert listed.stdout.splitlines()[0].split() == ["WHAT", "STATE", "SINCE", "UNTIL", "REASON"]
    assert "provider:hub  in force" in listed.stdout
    assert "\x1b" not in listed.stdout
    (row,) = json.loads(issuer("stops", *here, "--json").stdout)["stops"]
    assert (row["what"], row["until"]) == ("provider:hub", "2200-01-01T00:00:00Z")


def test_what_cannot_be_stopped_is_a_usage_error_and_a_stranger_is_warned_of(tmp_path: Path) -> None:
    here = ["--dir", str(tmp_path), "--reason", "x"]
    assert issuer("stop", "inspect-ai", *here).returncode == 2
    assert issuer("stop", "everything", "--until", "2020-01-01T00:00:00Z", *here).returncode == 2
    assert not list(tmp_path.iterdir())
    warned = issuer("stop", "integration:inspct-ai", *here)
    assert warned.returncode == 0
    assert "has no inspct-ai.yaml" in warned.stderr


def test_what_is_not_stopped_is_not_resumed(tmp_path: Path) -> None:
    done = issuer("resume", "everything", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith(f"everything is not stopped in {tmp_path}/stops.yaml\n")
    assert "kill -USR2 PID" in done.stdout


@pytest.mark.parametrize("obstacle", ["a folder in its place", "no folder", "a broken file", "a link"])
def test_where_it_cannot_write_it_says_so_and_names_the_way_that_needs_no_file(tmp_path: Path, obstacle: str) -> None:
    folder, file = tmp_path, tmp_path / "stops.yaml"
    if obstacle == "a folder in its place":
        file.mkdir()
    elif obstacle == "no folder":
        folder = tmp_path / "none"
    elif obstacle == "a broken file":
        file.write_text("version: 1\nstops: [")
    else:
        os.symlink(tmp_path / "elsewhere", file)
    done = issuer("stop", "everything", "--reason", "x", "--dir", str(folder))
    assert done.returncode in {3, 6}
    assert "The stops are unchanged" in done.stderr
    assert "kill -USR1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("what", "missing"),
    [
        ("identity:inspect-ai/evaluate-mian", "no identity evaluate-mian of inspect-ai"),
        ("provider:github-action", "no provider github-action"),
        ("account:github-action/700000001", "no provider github-action"),
        ("account:github-actions/7000", "no identity of github-actions that pins 7000"),
    ],
)
def test_a_typo_in_what_is_stopped_is_warned_of(live: Running, tmp_path: Path, what: str, missing: str) -> None:
    folder = shutil.copytree(live.folder / "policies", tmp_path / "policies")
    warned = issuer("stop", what, "--reason", "x", "--dir", str(folder))
    assert (warned.returncode, f"warning: {folder} has {missing}" in warned.stderr) == (0, True)


@pytest.mark.parametrize(
    "what",
    ["identity:inspect-ai/evaluate-main", "provider:github-actions", "account:github-actions/700000001", "everything"],
)
def test_what_is_registered_is_stopped_without_a_warning(live: Running, tmp_path: Path, what: str) -> None:
    folder = shutil.copytree(live.folder / "policies", tmp_path / "policies")
    stopped = issuer("stop", what, "--reason", "x", "--dir", str(folder))
    assert (stopped.returncode, stopped.stderr) == (0, "")


@pytest.mark.parametrize("name", ["inspect-ai.yaml", "providers.yaml"])
def test_of_a_file_that_does_not_read_nothing_is_said(live: Running, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(live.folder / "policies", tmp_path / "policies")
    (folder / name).write_text("version: [")
    for what in ("identity:inspect-ai/evaluate-main", "provider:github-actions", "account:github-actions/700000001"):
        stopped = issuer("stop", what, "--reason", "x", "--dir", str(folder))
        assert (stopped.returncode, stopped.stderr) == (0, "")


def test_who_reads_the_folder_reads_a_new_file_whatever_the_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o077)
    try:
        command = [sys.executable, "-m", "issuer", "stop", "everything", "--reason", "x", "--dir", str(tmp_path)]
        subprocess.run(command, check=True, capture_output=True)
    finally:
        os.umask(before)
    assert (tmp_path / "stops.yaml").stat().st_mode & 0o777 == 0o644


def test_a_file_that_the_service_refuses_is_said_to_be_refused_and_not_to_stop_nothing(tmp_path: Path) -> None:
    file = tmp_path / "stops.yaml"
    file.write_text("version: 1\nstops: [")
    broken = issuer("stops", "--dir", str(tmp_path))
    assert broken.returncode == 3
    assert "stops nothing" not in broken.stderr
    assert "lifts no stop" in broken.stderr
    file.write_text("version: 1\nstops: []\n")
    file.chmod(0o666)
    unsafe = issuer("stops", "--dir", str(tmp_path))
    assert (unsafe.returncode, f"chmod o-w {file}" in unsafe.stderr) == (3, True)


def test_a_host_that_refuses_the_file_is_said_to(live: Running) -> None:
    file, places = live.folder / "policies" / "stops.yaml", ["--dir", str(live.folder / "policies")]
    assert issuer("stop", "provider:gitlab-ci", "--reason", "x", *places, "--url", live.url).returncode == 0
    file.chmod(0o666)
    try:
        eventually(lambda: live.http.get("/health/stops").json()["stale"])
        done = issuer("resume", "provider:gitlab-ci", *places, "--url", live.url, "--patience", "1")
        assert (done.returncode, "it refuses its current stops.yaml" in done.stderr) == (4, True)
    finally:
        file.chmod(0o644)
    eventually(lambda: live.http.get("/health/stops").json()["count"] == 0)
