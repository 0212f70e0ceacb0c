"""`issuer verify DIR` as people and machines call it: lines, summary, exit codes, a terminal, Ctrl-C, a closed pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import issuer
from tests.support.make import NOW
from tests.support.processes import is_running
from tests.support.tree import entry_text, write_result, write_tree, write_trust


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path in write_tree(tmp_path / "tree", 20):
        assert path.exists()
    write_trust(tmp_path)
    return tmp_path / "tree"


def arguments(tree: Path, *more: object) -> list[str]:
    return ["verify", str(tree), "--trust", str(tree.parent / "trust.yaml"), "--at", str(NOW), *map(str, more)]


def spoil(tree: Path, how: str) -> None:
    repo = "zz/last"
    good = entry_text(repo, 10_000)
    text: dict[str, str | None] = {
        "good": None,
        "malformed": "- [",
        "false": good.replace("0.5", "0.6"),
        "undecided": good + "  value: 0.5\n",
        "bare": "\n".join(line for line in good.splitlines() if "verify_token" not in line) + "\n",
    }
    if text[how] is not None:
        write_result(tree, repo, "task_0.yaml", str(text[how]))


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("spoilt", "more", "code"),
    [
        (["good"], (), 0),
        (["bare"], (), 1),
        (["bare"], ("--allow-unsigned",), 0),
        (["undecided"], (), 4),
        (["false"], (), 1),
        (["malformed"], (), 3),
    ],
)
def test_the_worst_decides_the_exit_code_in_every_format(
    tree: Path, form: tuple[str, ...], spoilt: list[str], more: tuple[str, ...], code: int
) -> None:
    for how in spoilt:
        spoil(tree, how)
    done = issuer(*arguments(tree, *form, *more))
    assert done.returncode == code, done.stdout + done.stderr
    assert ("have no token" in done.stderr) == (spoilt == ["bare"] and not more)


def test_a_folder_without_any_token_is_no_answer_to_build_on(tmp_path: Path) -> None:
    write_trust(tmp_path)
    (tmp_path / "tree").mkdir()
    done = issuer(*arguments(tmp_path / "tree"))
    assert done.returncode == 1
    assert f"{tmp_path}/tree contains no OWNER/NAME/.eval_results/*.yaml" in done.stderr


def test_a_folder_one_level_off_is_told_what_it_is(tree: Path) -> None:
    repo = next(tree.glob("*/*"))
    for folder, said in ((repo, "It is one repository: give a file"), (repo.parent, "the folder of one OWNER")):
        done = issuer("verify", folder, "--trust", tree.parent / "trust.yaml")
        assert (done.returncode, said in done.stderr) == (1, True)


def test_people_see_what_is_wrong_and_a_summary(tree: Path) -> None:
    spoil(tree, "false")
    write_result(tree, "zz/other", "task_0.yaml", "- [")
    done = issuer(*arguments(tree))
    assert re.search(
        r"zz/last/.*task_0.yaml, entry 0: not verified: 8 metrics: accuracy differs \(token: 0.5, here: 0.6\)",
        done.stdout,
    )
    assert re.search(r"zz/other/.*task_0.yaml:1:3: file.syntax: ", done.stdout)
    assert "21 entries in 22 files: 20 verified, 1 failed, 0 undecided, 0 good when issued, 0 unverified" in done.stdout
    assert "https://issuer.example: 20 verified, 1 failed" in done.stdout
    assert "inspect-ai: 20 verified, 1 failed" in done.stdout
    assert re.search(r"1  check 8, metrics", done.stdout)
    assert re.search(r"1  file.syntax", done.stdout)


def test_machines_get_one_report_a_line_and_the_summary_last(tree: Path) -> None:
    write_result(tree, "zz/other", "task_0.yaml", "- [")
    *found, last = map(json.loads, issuer(*arguments(tree, "--json")).stdout.splitlines())
    assert [line["version"] for line in found] == [1] * 21
    assert sum("checks" in line for line in found) == 20
    (finding,) = [line["finding"] for line in found if "finding" in line]
    assert finding.keys() == {"code", "file", "line", "column", "pointer", "detail"}
    assert last["version"] == 1
    summary = last["summary"]
    assert (summary["entries"], summary["files"], summary["findings"], summary["interrupted"]) == (20, 21, 1, False)
    assert summary["verdicts"] == {"verified": 20}
    assert summary["by_framework"] == {"inspect-ai": {"verified": 20}}


def test_a_hostile_name_cannot_write_on_the_terminal(tree: Path) -> None:
    write_result(tree, "zz/m\x1b[2Jverified", "task_0.yaml", "- [")
    done = issuer(*arguments(tree))
    assert "\x1b" not in done.stdout
    assert "zz/m\\x1b[2Jverified" in done.stdout


# -- a terminal -------------------------------------------------------------------------------------------------------


class Terminal:
    """A child whose standard error is a terminal; its standard output is a small pipe that is not read until its end."""

    def __init__(self, tree: Path, *more: object) -> None:
        self.master, slave = pty.openpty()
        self.out, out = os.pipe()
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
        self.child = subprocess.Popen(
            [sys.executable, "-m", "issuer", *arguments(tree, *more)], stdout=out, stderr=slave, start_new_session=True
        )
        os.close(slave)
        os.close(out)
        self.shown = self.said = b""

    def until_it_waits(self) -> None:
        """Wait until it cannot go on: what it has found fills the pipe. A chunk's lines are far longer."""
        until(lambda: waiting(self.out) == 4096 and not running_now(self.child.pid))

    def end(self) -> int:
        """Read the rest, and return the exit code."""
        open_ends = [self.master, self.out]
        while open_ends:
            for end in select.select(open_ends, [], [])[0]:
                try:
                    part = os.read(end, 65_536)
                except OSError:  # the terminal's other end is closed
                    part = b""
                if not part:
                    open_ends.remove(end)
                    os.close(end)
                elif end == self.master:
                    self.shown += part
                else:
                    self.said += part
        return self.child.wait(60)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.said.splitlines()]


def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waiting(pipe: int) -> int:
    """Return how many bytes are in the pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def running_now(pid: int) -> bool:
    """Say whether a process has something to do; one that sleeps in a call waits for others."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thousand good entries: about a second of two processes."""
    folder = tmp_path_factory.mktemp("large")
    write_trust(folder)
    for path in write_tree(folder / "tree", 2000):
        assert path.exists()
    return folder / "tree"


@pytest.mark.long
def test_a_terminal_shows_how_many_how_fast_and_how_long_still(large: Path) -> None:
    terminal = Terminal(large, "--json", "--jobs", 1)
    assert terminal.end() == 0
    assert re.search(rb"[0-9,]+ entries, [0-9,]+/s, [0-9]+%, [0-9]+ s left", terminal.shown)
    assert terminal.shown.endswith(b"\r\x1b[K"), "nothing of it is left standing"
    assert len(terminal.lines()) == 2001


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_with_what_was_found_so_far(large: Path, whole_group: bool) -> None:
    terminal = Terminal(large, "--json", "--jobs", 2)
    terminal.until_it_waits()
    workers = children(terminal.child.pid)
    assert len(workers) == 2
    # A terminal's Ctrl-C goes to every process of the group; `kill -INT` to one.
    os.killpg(terminal.child.pid, signal.SIGINT) if whole_group else terminal.child.send_signal(signal.SIGINT)
    assert terminal.end() == 4
    assert b"Traceback" not in terminal.shown
    *reports, last = terminal.lines()
    summary = last["summary"]
    assert summary["interrupted"] is True
    assert 0 < summary["entries"] < 2000
    assert len(reports) == summary["entries"]
    assert {report["verdict"] for report in reports} == {"verified"}
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_ctrl_c_cuts_no_line_short_that_waits_for_a_slow_reader(large: Path) -> None:
    """A container sets PYTHONUNBUFFERED, and then a write that a signal interrupts is for the writer to go on with."""
    command = [sys.executable, "-m", "issuer", *arguments(large, "--json", "--jobs", 1)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        pipe = child.stdout
        assert pipe
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        until(lambda: waiting(pipe.fileno()) == 4096)
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)  # longer than from one sight of progress to the next
        out, err = child.communicate(timeout=60)
    assert err == b"", "no progress where standard error is no terminal"
    *reports, last = map(json.loads, out.splitlines())
    assert len(reports) == last["summary"]["entries"] > 0
    assert last["summary"]["interrupted"] is True


def test_what_is_wrong_outweighs_that_it_was_interrupted(large: Path) -> None:
    bad = write_result(large, "a/first", "task_0.yaml", entry_text("a/first", 5000).replace("0.5", "0.6"))
    try:
        terminal = Terminal(large, "--json", "--jobs", 1)
        terminal.until_it_waits()
        terminal.child.send_signal(signal.SIGINT)
        assert terminal.end() == 1
        assert terminal.lines()[-1]["summary"]["interrupted"] is True
    finally:
        bad.unlink()


def test_a_second_ctrl_c_ends_at_once(large: Path) -> None:
    terminal = Terminal(large, "--json", "--jobs", 1)
    terminal.until_it_waits()
    workers = children(terminal.child.pid)
    assert caught(terminal.child.pid, signal.SIGINT)
    terminal.child.send_signal(signal.SIGINT)
    until(lambda: not caught(terminal.child.pid, signal.SIGINT))
    terminal.child.send_signal(signal.SIGINT)
    assert terminal.child.wait(60) == -signal.SIGINT, "though it has not all written"
    terminal.end()
    assert b"Traceback" not in terminal.shown
    until(lambda: not any(map(is_running, workers)))


def caught(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def test_a_reader_that_stops_reading_gets_no_traceback_and_leaves_no_process(large: Path) -> None:
    command = [sys.executable, "-m", "issuer", *arguments(large, "--json", "--jobs", 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.readline()
        workers = children(child.pid)
        child.stdout.close()
        assert child.stderr.read() == b""
        child.wait(60)
    assert workers
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
