"""`issuer stop`, `resume` and `stops`: an operator's commands in an emergency, against real workers."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
import pytest

from issuer.cli.operate import stops
from issuer.dev.provider import LocalProvider
from issuer.io import files
from issuer.policy.authoring.stops import MAX_STOPS_BYTES, add_stop, read_stops, remove_stops
from issuer.policy.stops import Stop
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.token.wire import StopsStatus
from tests.support.answering import Handler, serving
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


def test_stop_and_resume_wait_for_each_worker_of_the_named_or_of_this_host(live: Running, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(settings_text(**by_name(live.settings)))
    stopped = command("stop", "integration:inspect-ai", "--reason", "a leak", "--config", settings, "--wait")
    here = f"http://127.0.0.1:{live.settings.listen.port}"
    assert (stopped.code, stopped.err, f"{here}: each worker has it" in stopped.out) == (0, "", True)
    assert live.post(live.token()).json()["code"] == "integration.stopped"
    named = command("resume", "integration:inspect-ai", "--dir", live.folder / "policies", "--url", live.url)
    assert (named.code, named.err, f"{live.url}: each worker has it" in named.out) == (0, "", True)
    assert live.post(live.token()).status_code == 201


def test_a_worker_that_lacks_the_stop_is_named(live: Running, tmp_path: Path) -> None:
    """A host that reads another folder never gets the stop."""
    done = stop("everything", tmp_path, "--url", live.url, "--patience", "1")
    assert (done.code, f"{live.url}: a worker applies other stops" in done.err) == (4, True)
    assert "kill -USR1" in done.err


def test_stops_are_listed_with_their_state_and_reason(tmp_path: Path) -> None:
    here, file, until = ("--dir", tmp_path), tmp_path / "stops.yaml", "2200-01-01T00:00:00Z"
    assert "stops nothing" in command("stops", *here).err
    tmp_path.chmod(0o755)
    before = os.umask(0o077)
    try:
        stopped = command("stop", "provider:hub", "--reason", "an \x1b[31moutage", "--until", until, *here)
    finally:
        os.umask(before)
    assert (stopped.code, file.stat().st_mode & 0o777) == (0, 0o644), "readable under any umask"
    out = command("stops", *here).out
    assert out.splitlines()[0].split() == ["WHAT", "STATE", "SINCE", "UNTIL", "REASON"]
    assert ("provider:hub  in force" in out, "\x1b" in out) == (True, False)
    (row,) = json.loads(command("stops", *here, "--json").out)["stops"]
    assert (row["what"], row["until"]) == ("provider:hub", until)
    resumed = command("resume", "everything", *here)
    assert (resumed.code, "kill -USR2 PID" in resumed.out) == (1, True)
    assert resumed.out.startswith(f"everything is not stopped in {tmp_path}/stops.yaml\n")
    file.chmod(0o666)
    unsafe = command("stops", *here)
    assert (unsafe.code, f"chmod o-w {file}" in unsafe.err) == (3, True), "the service refuses this file"
    file.chmod(0o644)
    file.write_text("version: 1\nstops: [")
    broken = command("stops", *here)
    assert (broken.code, "stops nothing" in broken.err, "lifts no stop" in broken.err) == (3, False, True)


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
    obstacles: dict[str, Callable[[Path], object]] = {
        "a folder in its place": Path.mkdir, "a large file": lambda file: file.write_bytes(bytes(MAX_STOPS_BYTES + 1)),
        "a link": lambda file: file.symlink_to(tmp_path / "elsewhere"), "no folder": lambda file: file.parent.rmdir(),
    }  # fmt: skip
    for name, obstruct in obstacles.items():
        (tmp_path / name).mkdir()
        obstruct(tmp_path / name / "stops.yaml")
        done = stop("everything", tmp_path / name)
        assert (done.code in {3, 6}, "The stops are unchanged" in done.err, "kill -USR1" in done.err) == (True,) * 3, (
            name
        )


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


def test_a_stop_that_a_broken_file_has_cannot_be_confirmed(live: Running) -> None:
    file = live.folder / "policies" / "stops.yaml"
    file.write_text("version: 1\nstops: [")
    try:
        done = stop("provider:gitlab-ci", file.parent, "--url", live.url)
        assert (done.code, "stops.yaml has an error" in done.err, "kill -USR1" in done.err) == (4, True, False)
        eventually(lambda: live.http.get("/health/stops").json()["count"] == 1)
    finally:
        file.write_text("version: 1\nstops: []\n")
    eventually(lambda: live.http.get("/health/stops").json()["count"] == 0)


def test_a_stop_works_although_the_file_is_broken_and_shows_the_error(tmp_path: Path) -> None:
    (tmp_path / "stops.yaml").write_text("version: 1\nstops: [")
    done = stop("everything", tmp_path)
    assert (done.code, "everything is stopped" in done.out) == (0, True)
    assert ("stops.yaml:6:12: file.unknown_member" in done.err, "lifts no stop" in done.err) == (True, True)
    assert command("stops", "--dir", tmp_path).out.splitlines()[1].startswith("everything  in force")
    assert command("resume", "everything", "--dir", tmp_path).code == 3


def adding(what: str) -> Callable[[bytes | None], bytes]:
    """Return another operator's edit."""
    return lambda raw: add_stop(raw, "stops.yaml", Stop(what, "x", "2026-11-21T09:00:00Z"))


def test_an_edit_waits_for_another_and_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_LOCK_S", 60.0)
    file = tmp_path / "stops.yaml"
    with ThreadPoolExecutor(1) as other:

        def edit(raw: bytes | None) -> bytes:
            wait([other.submit(stops._edit, file, adding("provider:b"))], timeout=0.3)  # it ends only without a lock
            return adding("provider:a")(raw)

        stops._edit(file, edit)
    assert [one.what for one in read_stops(file.read_bytes(), "stops.yaml")[0].all] == ["provider:a", "provider:b"]


def test_a_lock_that_another_process_keeps_delays_a_stop_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_LOCK_S", 0.0)
    with files.folder_locked(tmp_path, wait_s=0):
        done = stop("everything", tmp_path)
    assert (done.code, f"warning: {tmp_path} is not locked" in done.err) == (0, True)
    assert command("stops", "--dir", tmp_path).out.splitlines()[1].startswith("everything")


def test_a_command_waits_for_its_own_stop_while_others_edit_the_file(tmp_path: Path) -> None:
    file, edits = tmp_path / "stops.yaml", list[Callable[[bytes | None], bytes | None]]()

    class Host(Handler):
        """A host that has applied the file; while it answers the first time, another operator edits the file."""

        def answer(self) -> None:
            digest = read_stops(file.read_bytes(), "stops.yaml")[0].digest
            status = StopsStatus(digest, 1, stale=False, everything=False, workers=1, agreeing=0 if edits else 1)
            if edits:
                stops._edit(file, edits.pop())
            self.reply(200, msgspec.json.encode(status))

    with serving(Host) as url:
        edits.append(adding("provider:b"))
        assert stop("provider:a", tmp_path, "--url", url, "--patience", "60").code == 0
        edits.append(lambda raw: remove_stops(raw or b"", "stops.yaml", "provider:c"))
        undone = stop("provider:c", tmp_path, "--url", url)
    assert (undone.code, "somebody else has undone this" in undone.err) == (4, True)
