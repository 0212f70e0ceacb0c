"""A run has the result of a new interpreter, and leaves neither a loaded module nor a running process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.warm import Warm
from tests.support.processes import is_running
from tests.support.waiting import eventually

pytestmark = pytest.mark.long  # starts processes

GOOD = "def answer():\n    return 42\n"
SLEEPER = "import subprocess\nstarted = subprocess.Popen(['sleep', '600'])\nprint(started.pid, file=open('pid', 'w'))\n"
TEST = "def test_the_answer():\n    from issuer.mutant import answer\n    assert answer() == 42\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "issuer").mkdir(parents=True)
    (root / "issuer" / "__init__.py").touch()
    (root / "test_mutant.py").write_text(TEST)
    return root


@pytest.fixture
def warm(root: Path) -> Iterator[Warm]:
    warm = Warm(root)
    yield warm
    warm.close()


def run(warm: Warm, root: Path, source: str, timeout_s: float = 60) -> int:
    """Run the test with such a file; each file has another time, as those of mutants have."""
    file = root / "issuer" / "mutant.py"
    seconds = file.stat().st_mtime + 1 if file.exists() else 1
    file.write_text(source)
    os.utime(file, (seconds, seconds))
    return warm.run(["test_mutant.py"], timeout_s)


def test_every_run_loads_the_current_files(warm: Warm, root: Path) -> None:
    sources = [GOOD, GOOD.replace("42", "43"), GOOD, "import nothing.of.that.name", "error('broken')", "1 +", GOOD]
    assert [run(warm, root, source) for source in sources] == [0, 1, 0, 1, 1, 1, 0]
    assert "1 passed" in warm.output()


def test_a_run_may_end_in_any_way(warm: Warm, root: Path) -> None:
    ends = ["import os\nos._exit(7)", "import os\nos.abort()", "raise SystemExit", "raise KeyboardInterrupt", GOOD]
    assert [run(warm, root, source) == 0 for source in ends] == [False, False, False, False, True]


def test_a_broken_test_file_and_one_without_a_test_have_different_exit_codes(warm: Warm, root: Path) -> None:
    assert run(warm, root, GOOD) == 0
    (root / "test_mutant.py").write_text(f"import nothing.of.that.name\n{TEST}")
    assert run(warm, root, GOOD) == 2
    (root / "test_mutant.py").write_text("")
    assert run(warm, root, GOOD) == 5


@pytest.mark.parametrize(("end", "timeout_s", "expected"), [("import signal\nsignal.pause()\n", 3, -9), (GOOD, 60, 0)])
def test_the_processes_of_a_run_end_with_it(warm: Warm, root: Path, end: str, timeout_s: float, expected: int) -> None:
    assert run(warm, root, SLEEPER + end, timeout_s) == expected
    started = int((root / "pid").read_text())
    eventually(lambda: not is_running(started))
    assert run(warm, root, GOOD) == 0


def test_a_run_ends_with_its_caller(warm: Warm, root: Path) -> None:
    assert run(warm, root, GOOD) == 0
    (root / "issuer" / "mutant.py").write_text(f"{SLEEPER}started.wait()\n")
    assert warm._process.stdin is not None
    warm._process.stdin.write('[["test_mutant.py"], 600]\n')
    eventually(lambda: (root / "pid").exists() and bool((root / "pid").read_text()))
    warm._process.stdin.close()
    started = int((root / "pid").read_text())
    eventually(lambda: not is_running(started))
    assert warm._process.wait(60) == 0
