"""Run mutants: `python -m tests.mutants [--jobs N] [--list] [PATH ...]`, without a path those of all targets.

Each runs in a copy of the repository, by the tests of its file, until one of them fails. Prints every survivor with its
place, its diff and, where `survivors.toml` names it, the reason. Exit code 1 where one lives that is not named, one is
named that does not live, the tests fail without a mutant, or a file is not what they load.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.operators import Mutant, mutants
from tests.mutants.targets import SCRIPTS, TARGETS
from tests.mutants.warm import Warm

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "*.pyc")
# A mutant that makes the tests this much slower counts as noticed.
SLOWER = 5
AT_LEAST_S = 30.0


class Copy:
    """A copy of the repository, in which one mutant at a time lives, and the process that runs its tests."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self._written = 0
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT, symlinks=True)
        self.warm = Warm(self.root)

    def write(self, path: str, source: bytes) -> None:
        """Put a file in place. Its time is new in every second, so that no compiled one passes for it."""
        self._written += 1
        target = self.root / path
        target.write_bytes(source)
        os.utime(target, (self._written, self._written))

    def test(self, tests: Sequence[str], timeout_s: float) -> bool:
        code = self.warm.run(["-m", "not long", *tests], timeout_s)
        if code == 5:
            raise SystemExit(f"no test was found in {' '.join(tests)}")
        return code == 0


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Copy]]:
    """Make copies of the repository, which are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="issuer-mutants-") as folder, ExitStack() as stack:
        free: SimpleQueue[Copy] = SimpleQueue()
        for number in range(count):
            copy = Copy(Path(folder, str(number)))
            stack.callback(copy.warm.close)
            free.put(copy)
        yield free


def tests_of(path: str) -> tuple[str, ...]:
    """Name the tests that could notice a mutant of a file."""
    return {**TARGETS, **SCRIPTS}[path]


def mutants_of(path: str) -> list[Mutant]:
    """Make the mutants of a target: by the operators, or those of a script, which are written by hand."""
    source = (ROOT / path).read_bytes()
    if path in SCRIPTS:
        return list(script_mutants(path, source))
    found = list(mutants(path, source))
    for mutant in found:
        compile(mutant.source, path, "exec")  # one that does not even parse is a fault of operators.py
    return found


def script_mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Make the mutants of a part of the admission script, each a piece of its text for another."""
    by_hand = HERE / f"{Path(path).stem}.toml"
    for name, (old, new) in tomllib.loads(by_hand.read_text("utf-8")).items():
        assert source.count(old.encode()) == 1, f"{by_hand.name}: {name!r} is not found once"
        line = source.count(b"\n", 0, source.index(old.encode())) + 1
        yield Mutant(path, line, f"{path} {name}", source.replace(old.encode(), new.encode()), source)


def prove(free: SimpleQueue[Copy], path: str) -> float:
    """Return how long a target's tests take. Without a mutant they must pass, and without the file they must not."""
    copy = free.get()
    source = (copy.root / path).read_bytes()
    try:
        began = time.monotonic()
        if not copy.test(tests_of(path), 600):
            raise SystemExit(f"{path}: its tests fail without a mutant\n\n{copy.warm.output()}")
        taken_s = time.monotonic() - began
        copy.write(path, b"error('mutant')\n")
        if copy.test(tests_of(path), 600):
            raise SystemExit(f"{path}: its tests do not load it")
        return taken_s
    finally:
        copy.write(path, source)
        free.put(copy)


def survives(free: SimpleQueue[Copy], mutant: Mutant, proven_s: Future[float]) -> bool:
    timeout_s = max(AT_LEAST_S, SLOWER * proven_s.result())
    copy = free.get()
    try:
        copy.write(mutant.path, mutant.source)
        return copy.test(tests_of(mutant.path), timeout_s)
    finally:
        copy.write(mutant.path, mutant.original)
        free.put(copy)


def survivors_of(
    free: SimpleQueue[Copy], jobs: int, paths: Sequence[str]
) -> Iterator[tuple[list[Mutant], list[Mutant]]]:
    """Run the mutants of all targets; for each target yield all, and the survivors.

    A slow one holds up no other: all are begun before the first target is waited for, and their proofs before them.
    """
    pool = ThreadPoolExecutor(jobs)
    try:
        proofs = [pool.submit(prove, free, path) for path in paths]
        targets = [mutants_of(path) for path in paths]
        begun = [
            [pool.submit(survives, free, mutant, proven_s) for mutant in every]
            for every, proven_s in zip(targets, proofs, strict=True)
        ]
        for proven_s in proofs:
            proven_s.result()
        for every, lives in zip(targets, begun, strict=True):
            yield every, [mutant for mutant, alive in zip(every, lives, strict=True) if alive.result()]
    finally:
        pool.shutdown(cancel_futures=True)


def show(path: str, every: Sequence[Mutant], living: Sequence[Mutant], named: Mapping[str, str]) -> None:
    """Print which mutants of a target live, and why they may."""
    print(f"{path}: {len(every)} mutants, {len(living)} live", flush=True)
    for mutant in living:
        reason = named.get(mutant.name, "NOT NAMED")
        print(f"\n{path}:{mutant.line}: {mutant.name}\n{mutant.diff()}\n{reason}", flush=True)


def judge(living: Sequence[Mutant], named: Mapping[str, str], paths: Sequence[str]) -> int:
    """Print what is named and does not live, and how many live; return the exit code."""
    names = {mutant.name for mutant in living}
    gone = [name for name in named if name.split()[0] in paths and name not in names]
    for name in gone:
        print(f"\nsurvivors.toml names what does not live: {name}")
    print(f"\n{len(names)} live, {len(names - named.keys())} of them not named; {len(gone)} are named and do not live")
    return 1 if names - named.keys() or gone else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the names of the mutants, and run none")
    parser.add_argument("path", nargs="*", default=[*TARGETS, *SCRIPTS])
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{each.line}: {each.name}" for path in options.path for each in mutants_of(path)))
        return 0
    if os.geteuid() != 0:
        print("Tests that give files to other users need root. Without it, some mutants of files and keyring live.")
    named = tomllib.loads((HERE / "survivors.toml").read_text("utf-8"))
    living: list[Mutant] = []
    with copies(options.jobs) as free:
        for path, (every, alive) in zip(options.path, survivors_of(free, options.jobs, options.path), strict=True):
            show(path, every, alive, named)
            living += alive
    return judge(living, named, options.path)


if __name__ == "__main__":
    sys.exit(main())
