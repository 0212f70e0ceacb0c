"""`issuer verify DIR` as people and machines call it: lines, summary, exit codes, a terminal, Ctrl-C, a closed pipe."""

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
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import run
from tests.support.make import NOW, two_metrics
from tests.support.processes import is_running
from tests.support.tree import entry_text, write_result, write_tree, write_trust
from tests.support.waiting import eventually


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    list(write_tree(tmp_path / "tree", 5))
    write_trust(tmp_path)
    return tmp_path / "tree"


def arguments(tree: Path, *more: object) -> list[str]:
    return ["verify", str(tree), "--trust", str(tree.parent / "trust.yaml"), "--at", str(NOW), *map(str, more)]


LAST = entry_text("zz/last", 10_000)
FALSE = LAST.replace("0.5", "0.6")


def test_the_worst_entry_decides_the_exit_code_and_a_folder_that_is_no_tree_fails(tree: Path) -> None:
    bare = "\n".join(line for line in LAST.splitlines() if "verify_token" not in line) + "\n"
    rows: list[tuple[str, tuple[str, ...], int]] = [
        (LAST, (), 0), (bare, (), 1), (bare, ("--allow-unsigned",), 0), (two_metrics(model_repo="zz/last", benchmark_repo="bench/task-0"), (), 4),
        (FALSE, (), 1), ("- [", (), 3),
    ]  # fmt: skip
    for text, more, code in rows:
        write_result(tree, "zz/last", "task_0.yaml", text)
        for form in ((), ("--json",)):
            done = run(arguments(tree, "--jobs", 1, *form, *more), tree)
            assert (done.code, "have no token" in done.err) == (code, text == bare and not more), (text, done)
    (tree / "empty").mkdir()
    repo = next(tree.glob("*/*"))
    for folder, said in (
        (tree / "empty", f"{tree / 'empty'} contains no OWNER/NAME/.eval_results/*.yaml"),
        (repo, "It is one repository: give a file"),
        (repo.parent, "the folder of one OWNER"),
    ):
        done = run(["verify", str(folder), "--trust", "trust.yaml"], tree.parent)
        assert (done.code, said in done.err) == (1, True), done


def test_people_see_every_fault_and_a_summary(tree: Path) -> None:
    write_result(tree, "zz/last", "task_0.yaml", FALSE)
    write_result(tree, "zz/m\x1b[2Jverified", "task_0.yaml", "- [")
    out = run(arguments(tree, "--jobs", 1), tree).out
    for pattern in (
        r"zz/last/.*task_0.yaml, entry 0: not verified: 8 metrics: accuracy differs \(token: 0.5, here: 0.6\)",
        r"zz/m\\x1b\[2Jverified/.*task_0.yaml:1:3: file.syntax: ",
        "6 entries in 7 files: 5 verified, 1 failed, 0 undecided, 0 good when issued, 0 unverified",
        "https://issuer.example: 5 verified, 1 failed",
        "inspect-ai: 5 verified, 1 failed",
        "1  check 8, metrics",
        "1  file.syntax",
    ):
        assert re.search(pattern, out), pattern
    assert "\x1b" not in out


def test_json_has_one_report_a_line_and_the_summary_last(tree: Path) -> None:
    write_result(tree, "zz/other", "task_0.yaml", "- [")
    *found, last = map(json.loads, run(arguments(tree, "--jobs", 1, "--json"), tree).out.splitlines())
    assert [line["version"] for line in found] == [1] * 6
    assert sum("checks" in line for line in found) == 5
    (finding,) = [line["finding"] for line in found if "finding" in line]
    assert finding.keys() == {"code", "file", "line", "column", "pointer", "detail"}
    assert last["version"] == 1
    summary = last["summary"]
    assert (summary["entries"], summary["files"], summary["findings"], summary["interrupted"]) == (5, 6, 1, False)
    assert (summary["verdicts"], summary["by_framework"]) == ({"verified": 5}, {"inspect-ai": {"verified": 5}})


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
        self.shown = self.written = b""

    def until_it_waits(self) -> None:
        """Wait until it cannot continue: its output fills the pipe. A chunk's lines are far longer."""
        eventually(lambda: waiting(self.out) == 4096 and not running_now(self.child.pid))

    def end(self) -> int:
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
                    self.written += part
        return self.child.wait(60)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.written.splitlines()]


def waiting(pipe: int) -> int:
    """Return how many bytes are in the pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def running_now(pid: int) -> bool:
    """Return whether a process runs now and does not sleep in a system call."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two thousand good entries: about a second of two processes."""
    folder = tmp_path_factory.mktemp("large")
    write_trust(folder)
    list(write_tree(folder / "tree", 2000))
    return folder / "tree"


@pytest.mark.long
def test_a_terminal_shows_count_speed_and_remaining_time(large: Path) -> None:
    terminal = Terminal(large, "--json", "--jobs", 1)
    assert terminal.end() == 0
    assert re.search(rb"[0-9,]+ entries, [0-9,]+/s, [0-9]+%, [0-9]+ s left", terminal.shown)
    assert terminal.shown.endswith(b"\r\x1b[K"), "the line of progress is erased"
    assert len(terminal.lines()) == 2001


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_ctrl_c_ends_with_the_results_so_far(large: Path) -> None:
    terminal = Terminal(large, "--json", "--jobs", 2)
    terminal.until_it_waits()
    workers = children(terminal.child.pid)
    assert len(workers) == 2
    os.killpg(terminal.child.pid, signal.SIGINT)  # a terminal's Ctrl-C goes to every process of the group
    assert terminal.end() == 4
    assert b"Traceback" not in terminal.shown
    *reports, last = terminal.lines()
    summary = last["summary"]
    assert summary["interrupted"] is True
    assert 0 < summary["entries"] < 2000
    assert len(reports) == summary["entries"]
    assert {report["verdict"] for report in reports} == {"verified"}
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_ctrl_c_cuts_no_line_for_a_slow_reader(large: Path) -> None:
    """A container sets PYTHONUNBUFFERED; then the writer itself must repeat a write that a signal interrupted."""
    command = [sys.executable, "-m", "issuer", *arguments(large, "--json", "--jobs", 1)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as child:
        pipe = child.stdout
        assert pipe
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        eventually(lambda: waiting(pipe.fileno()) == 4096)
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)  # a slow peer: longer than between two updates of progress
        out, err = child.communicate(timeout=60)
    assert err == b"", "progress is only for a terminal"
    *reports, last = map(json.loads, out.splitlines())
    assert len(reports) == last["summary"]["entries"] > 0
    assert last["summary"]["interrupted"] is True


def test_a_failed_entry_decides_the_exit_code_of_an_interrupted_run(large: Path) -> None:
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
    eventually(lambda: not caught(terminal.child.pid, signal.SIGINT))
    terminal.child.send_signal(signal.SIGINT)
    assert terminal.child.wait(60) == -signal.SIGINT
    terminal.end()
    assert b"Traceback" not in terminal.shown
    eventually(lambda: not any(map(is_running, workers)))


def caught(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
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
