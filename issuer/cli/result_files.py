"""Finds and reads the files that the commands of `issuer results` are given; and the options that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats import strict_yaml
from issuer.results.benchmark import Benchmark, read_benchmark
from issuer.results.claims import is_repo
from issuer.results.entry import PROFILES, Entry, Profile, entries_of, open_results

REPORT_VERSION = 1
FOLDER = ".eval_results"
BENCHMARK_FILE = "eval.yaml"

paths_argument = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
benchmark_option = click.option(
    "--benchmark", "benchmark_path", type=click.Path(path_type=Path), metavar="FILE", help="The benchmark's eval.yaml."
)

readers_option = click.option(
    "--profile", type=click.Choice(PROFILES), default="target", show_default=True,
    help="Whose readers the files are for: of the target form, of today's Hub, or of both.",
)  # fmt: skip


def check_repo(_context: click.Context, _option: click.Parameter, repo: str | None) -> str | None:
    """Return what `--repo` is given, where it is a repository. Raises click.BadParameter."""
    if repo is not None and not is_repo(repo):
        raise click.BadParameter("give OWNER/NAME by the Hub's rules, in ASCII")
    return repo


repo_option = click.option(
    "--repo", metavar="OWNER/NAME", callback=check_repo, help="The model repository of the files."
)


def find_files(path: Path, *, only: str = "") -> Iterator[Path]:
    """Yield a file, or the result files and benchmarks of a folder, or `only` those of this name.

    Raises InputError where it has none.
    """
    if not path.is_dir() or (path.name == FOLDER and path.is_symlink()):
        yield path
        return
    found = [file for file in files.find(path) if _is_meant(file) and only in {"", file.name}]
    if not found:
        rule = f"holds no {only or f'{FOLDER}/*.yaml and no {BENCHMARK_FILE}'}: name the files"
        raise InputError(Code.FILE_UNREADABLE, rule, Place(str(path)))
    yield from found


def _is_meant(file: Path) -> bool:
    """Say whether a file has a name of ours; the folder of results is among the files where it is a link."""
    if file.name in {FOLDER, BENCHMARK_FILE}:
        return True
    return file.suffix == ".yaml" and file.parent.name == FOLDER


def find_result_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the files that are meant, without benchmarks. Raises InputError."""
    return (file for path in paths for file in find_files(path) if file.name != BENCHMARK_FILE)


def read_entries_of(file: Path) -> tuple[Entry, ...]:
    """Read the entries of a result file. Raises InputError."""
    return entries_of(open_results(read_bytes(file), str(file)))


def read_benchmark_file(path: Path | None) -> Benchmark | None:
    """Read the benchmark that `--benchmark` names, if it does. Raises InputError."""
    return None if path is None else read_benchmark(files.read(path, strict_yaml.MAX_BYTES), str(path))


def benchmark_for(path: Path | None, profile: Profile | None) -> Benchmark | None:
    """Return the benchmark that `--benchmark` names; None without one.

    Raises click.UsageError where the profile needs it: `both` and `hub` have its primary metric's score as `value`.
    """
    benchmark = read_benchmark_file(path)
    if profile not in {None, "target"} and benchmark is None:
        raise click.UsageError(
            f"--profile {profile} writes the primary metric's score as `value`: give --benchmark eval.yaml"
        )
    return benchmark


def read_bytes(path: Path) -> bytes:
    """Read a file of a checkout, which is somebody else's: no link. Raises InputError."""
    return files.read(path, strict_yaml.MAX_BYTES, follow=False)
