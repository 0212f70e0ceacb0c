"""Weird files, folders that cannot be written, secrets that are not header values, terminals, pipes, and signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from issuer.client.files import put_entry
from tests.support.command import issuer
from tests.support.make import file_for, submission

NOWHERE = ("--repo", "a/b", "--issuer", "http://127.0.0.1:1", "--audience", "x")


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_written_is_said_and_exits_6(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    done = issuer("keys", "generate", "--dir", tmp_path / folder, "--data", tmp_path / "data")
    assert (done.returncode, done.stdout) == (6, "")
    assert "machine.failed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("secret", ["hush\nhush", "hush\u20achush", "hush hush"])
def test_what_is_no_token_is_refused_without_being_quoted(secret: str) -> None:
    arguments = ("token", "request", "--issuer", "http://127.0.0.1:1", "--claims", "-")
    done = issuer(*arguments, env={"ISSUER_ID_TOKEN": secret}, stdin="{}")
    assert (done.returncode, "$ISSUER_ID_TOKEN" in done.stderr) == (6, True)
    assert "hush" not in done.stdout + done.stderr


def test_a_file_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "esc.yaml"
    path.write_text(
        '- {dataset: {id: "a/b\\r\\e[2Kverified"}, metrics: [{metric_id: m, value: 1}], verify_token: "x.y.z"}\n'
    )
    done = issuer("verify", path, *NOWHERE)
    assert done.returncode == 1
    assert not {"\r", "\x1b"} & set(done.stdout)
    assert "a/b\\r" in done.stdout


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
        said = child.stderr.read()
        assert said
        for line in said.splitlines():
            assert line.endswith(b"of the trust file: unavailable"), "what could not be fetched, and nothing else"


def test_appending_keeps_the_line_ends_of_a_file(tmp_path: Path) -> None:
    path, before = tmp_path / "gsm8k.yaml", file_for(submission(task_id="other")).replace("\n", "\r\n").encode()
    path.write_bytes(before)
    put_entry(path, file_for(submission()))
    assert path.read_bytes().startswith(before)


def test_a_command_whose_packages_are_missing_says_what_to_install() -> None:
    hidden = (
        "import sys; sys.modules['litestar'] = sys.modules['structlog'] = None; from issuer.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", hidden, "serve"], capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install '.[server" in done.stderr) == (6, True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("demo", signal.SIGTERM),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                ("dev", signal.SIGINT),
                ("dev", signal.SIGHUP),
                ("dev", signal.SIGTERM),
                ("demo", signal.SIGINT),
                ("demo", signal.SIGHUP),
            )
        ),
    ],
)
def test_a_signal_ends_everything_and_leaves_nothing_behind(tmp_path: Path, command: str, number: int) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-m", "issuer", command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("issuer-valkey-*")) and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(number)
    said = child.communicate(timeout=60)[1]
    assert b"Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_exits_6() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = issuer("dev", "--port", taken.getsockname()[1])
    assert (done.returncode, "in use" in done.stderr) == (6, True)
