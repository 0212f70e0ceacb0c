"""Unwritable folders, secrets that are not header values, hostile files, closed pipes, and signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import issuer
from tests.support.waiting import eventually

NOWHERE = ("--repo", "a/b", "--issuer", "http://127.0.0.1:1", "--audience", "x")


def test_a_folder_that_cannot_be_written_exits_6(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/below", "/proc/nowhere"):
        done = issuer("keys", "generate", "--dir", tmp_path / folder, "--data", tmp_path / "data")
        assert (done.returncode, done.stdout, "machine.failed" in done.stderr) == (6, "", True)


def test_a_reader_that_stops_reading_gets_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    entry = '- {dataset: {id: "a/b"}, metrics: [{metric_id: m, value: 1}], verify_token: "x.y.z"}\n'
    path.write_text(entry * 900)
    command = [sys.executable, "-m", "issuer", "verify", str(path), *NOWHERE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.readline()
        child.stdout.close()
        written = child.stderr.read()
        assert written
        for line in written.splitlines():
            assert line.endswith(b"of the trust file: unavailable"), line


def test_a_command_whose_packages_are_missing_says_what_to_install() -> None:
    hidden = (
        "import sys; sys.modules['litestar'] = sys.modules['structlog'] = None; from issuer.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", hidden, "serve"], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install '.[server" in done.stderr) == (6, True)
    assert "Traceback" not in done.stderr


SIGNALS = [
    ("demo", signal.SIGTERM),
    *(
        pytest.param(command, number, marks=pytest.mark.long)
        for command in ("dev", "demo")
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
        if (command, number) != ("demo", signal.SIGTERM)
    ),
]


@pytest.mark.parametrize(("command", "number"), SIGNALS)
def test_a_signal_ends_every_process_and_removes_the_folder(tmp_path: Path, command: str, number: int) -> None:
    env, words = {**os.environ, "TMPDIR": str(tmp_path)}, [sys.executable, "-m", "issuer", command]
    child = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    eventually(lambda: list(tmp_path.glob("issuer-valkey-*")) or child.poll() is not None)
    child.send_signal(number)
    assert b"Traceback" not in child.communicate(timeout=60)[1]
    assert not list(tmp_path.iterdir())
