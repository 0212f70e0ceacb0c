"""`issuer stop`, `resume` and `stops`: an operator's commands in an emergency, against real workers."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.admission.embedded import EmbeddedValkey
from tests.support.in_process import Done, run
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


def stop(what: str, folder: Path, *more: str) -> Done:
    return command("stop", what, "--reason", "x", "--dir", folder, *more)


def command(*arguments: object) -> Done:
    return run(list(map(str, arguments)))


def test_stop_and_resume_wait_for_each_worker(live: Running) -> None:
    places = ("--dir", live.folder / "policies", "--url", live.url)
    stopped = command("stop", "integration:inspect-ai", "--reason", "a leak", *places)
    assert (stopped.code, stopped.err, f"{live.url}: each worker has it" in stopped.out) == (0, "", True)
    assert live.post(live.token()).json()["code"] == "integration.stopped"
    resumed = command("resume", "integration:inspect-ai", *places)
    assert (resumed.code, resumed.err) == (0, "")
    assert live.post(live.token()).status_code == 201


def test_the_settings_name_this_host(live: Running, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(settings_text(**by_name(live.settings)))
    for words in (("stop", "everything", "--reason", "x"), ("resume", "everything")):
        done = command(*words, "--config", settings, "--wait")
        assert (done.code, done.err) == (0, "")
        assert f"http://127.0.0.1:{live.settings.listen.port}: each worker has it" in done.out


def test_a_worker_that_lacks_the_stop_is_named(live: Running, tmp_path: Path) -> None:
    """A host that reads another folder never gets the stop."""
    done = stop("everything", tmp_path, "--url", live.url, "--patience", "1")
    assert (done.code, f"{live.url}: a worker applies other stops" in done.err) == (4, True)
    assert "kill -USR1" in done.err


# -- the file alone ---------------------------------------------------------------------------------------------------


def test_stops_are_listed_with_their_state_and_reason(tmp_path: Path) -> None:
    here = ("--dir", tmp_path)
    assert "stops nothing" in command("stops", *here).err
    until = "2200-01-01T00:00:00Z"
    assert command("stop", "provider:hub", "--reason", "an \x1b[31moutage", "--until", until, *here).code == 0
    out = command("stops", *here).out
    assert out.splitlines()[0].split() == ["WHAT", "STATE", "SINCE", "UNTIL", "REASON"]
    assert ("provider:hub  in force" in out, "\x1b" in out) == (True, False)
    (row,) = json.loads(command("stops", *here, "--json").out)["stops"]
    assert (row["what"], row["until"]) == ("provider:hub", until)
    resumed = command("resume", "everything", *here)
    assert (resumed.code, "kill -USR2 PID" in resumed.out) == (1, True)
    assert resumed.out.startswith(f"everything is not stopped in {tmp_path}/stops.yaml\n")


def test_a_malformed_stop_is_a_usage_error_and_an_unknown_name_a_warning(live: Running, tmp_path: Path) -> None:
    folder = shutil.copytree(live.folder / "policies", tmp_path / "policies")
    for arguments in (("inspect-ai",), ("everything", "--until", "2020-01-01T00:00:00Z")):
        assert stop(arguments[0], folder, *arguments[1:]).code == 2
    for what, warning in (
        ("integration:inspct-ai", "no inspct-ai.yaml"),
        ("identity:inspect-ai/evaluate-mian", "no identity evaluate-mian of inspect-ai"),
        ("provider:github-action", "no provider github-action"),
        ("account:github-action/700000001", "no provider github-action"),
        ("account:github-actions/7000", "no identity of github-actions that pins 7000"),
    ):
        warned = stop(what, folder)
        assert (warned.code, f"warning: {folder} has {warning}" in warned.err) == (0, True), warned
    known = ("identity:inspect-ai/evaluate-main", "provider:github-actions", "account:github-actions/700000001")
    assert [stop(what, folder)[::2] for what in (*known, "everything")] == [(0, "")] * 4
    for name in ("inspect-ai.yaml", "providers.yaml"):
        (folder / name).write_text("version: [")
        assert [stop(what, folder)[::2] for what in known] == [(0, "")] * 3, "a broken file causes no warning"


def test_a_stop_that_cannot_be_written_names_the_signal(tmp_path: Path) -> None:
    for obstacle in ("a folder in its place", "no folder", "a broken file", "a link"):
        folder = tmp_path / obstacle
        file = folder / "stops.yaml"
        if obstacle != "no folder":
            folder.mkdir()
        if obstacle == "a folder in its place":
            file.mkdir()
        elif obstacle == "a broken file":
            file.write_text("version: 1\nstops: [")
        elif obstacle == "a link":
            file.symlink_to(tmp_path / "elsewhere")
        done = stop("everything", folder)
        assert (done.code in {3, 6}, "The stops are unchanged" in done.err, "kill -USR1" in done.err) == (True,) * 3


def test_a_new_file_is_readable_under_any_umask(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o077)
    try:
        assert stop("everything", tmp_path).code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "stops.yaml").stat().st_mode & 0o777 == 0o644


def test_stops_reports_a_file_that_the_service_refuses(tmp_path: Path) -> None:
    file = tmp_path / "stops.yaml"
    file.write_text("version: 1\nstops: [")
    broken = command("stops", "--dir", tmp_path)
    assert (broken.code, "stops nothing" in broken.err, "lifts no stop" in broken.err) == (3, False, True)
    file.write_text("version: 1\nstops: []\n")
    file.chmod(0o666)
    unsafe = command("stops", "--dir", tmp_path)
    assert (unsafe.code, f"chmod o-w {file}" in unsafe.err) == (3, True)


def test_resume_names_a_host_that_refuses_the_file(live: Running) -> None:
    folder = live.folder / "policies"
    assert stop("provider:gitlab-ci", folder, "--url", live.url).code == 0
    (folder / "stops.yaml").chmod(0o666)
    try:
        eventually(lambda: live.http.get("/health/stops").json()["stale"])
        done = command("resume", "provider:gitlab-ci", "--dir", folder, "--url", live.url, "--patience", "1")
        assert (done.code, "it refuses its current stops.yaml" in done.err) == (4, True)
    finally:
        (folder / "stops.yaml").chmod(0o644)
    eventually(lambda: live.http.get("/health/stops").json()["count"] == 0)
