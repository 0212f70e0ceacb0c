"""`issuer results lint`, `fmt`, `digest` and `diff`: what result files say, before anybody signs or judges it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from issuer import files
from issuer.cli import printable
from issuer.cli.findings import FORMATS, exit_code, render
from issuer.client.files import write_text
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place, Refused
from issuer.formats import strict_yaml
from issuer.results import edit
from issuer.results.benchmark import Benchmark, is_benchmark, lint_benchmark, read_benchmark
from issuer.results.claims import is_repo
from issuer.results.diff import Difference, differences, matched
from issuer.results.entry import PROFILES, Entry, Profile, claims_of, content_digest, entries_of, open_results
from issuer.results.lint import lint_results

REPORT_VERSION = 1
_FOLDER = ".eval_results"
_PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
_BENCHMARK = click.option(
    "--benchmark", "benchmark_path", type=click.Path(path_type=Path), metavar="FILE", help="The benchmark's eval.yaml."
)


def _checked_repo(_context: click.Context, _option: click.Parameter, repo: str | None) -> str | None:
    if repo is not None and not is_repo(repo):
        raise click.BadParameter("give OWNER/NAME by the Hub's rules, in ASCII")
    return repo


_REPO = click.option("--repo", metavar="OWNER/NAME", callback=_checked_repo, help="The model repository of the files.")


# -- lint -------------------------------------------------------------------------------------------------------------


@click.command()
@_PATHS
@_REPO
@_BENCHMARK
@click.option("--format", "form", type=click.Choice(FORMATS), default="human", show_default=True, help="How to say it.")
def lint(paths: tuple[Path, ...], repo: str | None, benchmark_path: Path | None, form: str) -> None:
    """Say everything that is wrong with result files and with benchmarks' eval.yaml.

    A folder is searched for `.eval_results/*.yaml` and `eval.yaml`. Any other file is taken for what it looks like.
    """
    benchmark = _benchmark(benchmark_path)
    named: list[str] = []
    findings: list[Finding] = []
    for path in paths:
        try:
            for file in _files(path):
                named.append(str(file))
                findings += _lint(file, repo, benchmark)
        except InputError as error:
            findings.append(error.finding)
    if told := render(findings, named, "issuer results lint", form):
        click.echo(told)
    if form == "human":
        errors = sum(finding.severity == "error" for finding in findings)
        click.echo(f"{len(named)} files: {errors} errors, {len(findings) - errors} warnings", err=True)
    sys.exit(exit_code(findings))


def _lint(file: Path, repo: str | None, benchmark: Benchmark | None) -> tuple[Finding, ...]:
    raw = _read(file)
    if file.parent.name != _FOLDER and (file.name == "eval.yaml" or _is_map(raw)):
        return lint_benchmark(raw, str(file))
    return lint_results(raw, str(file), path=str(file), repo=repo, benchmark=benchmark)


def _is_map(raw: bytes) -> bool:
    document, _ = strict_yaml.examine(raw, "")
    return document is not None and (isinstance(document.value, dict) or is_benchmark(document.value))


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files of a folder that are of these kinds. Raises InputError where it has none."""
    if not path.is_dir():
        yield path
        return
    found = [file for file in sorted(path.rglob("*.yaml")) if file.parent.name == _FOLDER or file.name == "eval.yaml"]
    if path.name == _FOLDER:
        found = sorted(path.glob("*.yaml"))
    if not found:
        rule = f"holds no {_FOLDER}/*.yaml and no eval.yaml: name the files"
        raise InputError(Code.FILE_UNREADABLE, rule, Place(str(path)))
    yield from found


# -- fmt --------------------------------------------------------------------------------------------------------------


@click.command()
@_PATHS
@click.option("--check", is_flag=True, help="Write nothing; say which files would change, and exit with 1.")
@click.option("--profile", type=click.Choice(PROFILES), help="Write entries in this profile, not their own shape.")
@_BENCHMARK
@click.option("--drop-comments", is_flag=True, help="Rewrite files with comments, too; they are lost.")
def fmt(
    paths: tuple[Path, ...], check: bool, profile: Profile | None, benchmark_path: Path | None, drop_comments: bool
) -> None:
    """Rewrite result files canonically: members in order, text in double quotes, numbers as every reader reads them.

    What entries say stays the same, and so do their digests, except under `--profile hub`, which has no token and no
    metrics. All files are read before one is written.
    """
    benchmark = _benchmark(benchmark_path)
    changed: dict[Path, str] = {}
    for file in (file for path in paths for file in _files(path) if file.name != "eval.yaml"):
        after = _formatted(file, profile, benchmark, drop_comments=drop_comments)
        if after.encode() != _read(file):
            changed[file] = after
    for file, after in changed.items():
        if not check:
            write_text(file, after)
        click.echo(f"{printable(str(file))}: {'would be' if check else 'is'} rewritten")
    sys.exit(1 if check and changed else 0)


def _formatted(file: Path, profile: Profile | None, benchmark: Benchmark | None, *, drop_comments: bool) -> str:
    raw, name = _read(file), str(file)
    document = open_results(raw, name)
    text = raw.decode()
    if not drop_comments and (place := document.first_comment(text)):
        rule = "a comment, which rewriting would lose: edit by hand, or give --drop-comments"
        raise InputError(Code.FILE_RULE, rule, place)
    return edit.rewrite(text, name, profile=profile, primary=benchmark.primary if benchmark else None)


# -- digest -----------------------------------------------------------------------------------------------------------


@click.command()
@_PATHS
@_REPO
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def digest(paths: tuple[Path, ...], repo: str | None, as_json: bool) -> None:
    """Print each entry's content_digest and, with --repo, its claims_digest: what a verify token binds."""
    rows = [_digests(file, entry, repo) for path in paths for file in _result_files(path) for entry in _entries(file)]
    if as_json:
        click.echo(_json({"version": REPORT_VERSION, "entries": rows}))
        return
    for row in rows:
        click.echo(f"{printable(row['file'])}, entry {row['pointer'][1:]}:")
        click.echo(f"  claims_digest   {printable(row['claims_digest'] or '- ' + row['reason'])}")
        click.echo(f"  content_digest  {row['content_digest']}")


def _digests(file: Path, entry: Entry, repo: str | None) -> dict[str, str]:
    claims, reason = "", "(the run claims name the model repository: give --repo)"
    if repo is not None:
        try:
            claims, reason = claims_of(entry, repo).digest, ""
        except Refused as refusal:
            reason = f"(no run claims: {refusal.detail})"
    return {
        "file": str(file), "pointer": entry.pointer, "claims_digest": claims, "reason": reason,
        "content_digest": content_digest(entry.form),
    }  # fmt: skip


# -- diff -------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
@click.option("--entry", "index", type=click.IntRange(0), help="Compare only these entries, counted from 0.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def diff(left: Path, right: Path, index: int | None, as_json: bool) -> None:
    """Say how the entries of two files differ, and which differences a token would notice.

    Entries are matched by benchmark, task and model commit. Spelling, order and comments are no differences. Exits
    with 1 where a difference is material: the content digest is another.
    """
    ours, theirs = _entries(left), _entries(right)
    chosen = None if index is None else (_at(ours, index, left), _at(theirs, index, right))
    pairs = [chosen] if chosen else list(matched(ours, theirs))
    told = [_compared(one, other) for one, other in pairs]
    if as_json:
        click.echo(_json({"version": REPORT_VERSION, "left": str(left), "right": str(right), "entries": told}))
    else:
        for each in told:
            _show(each)
    sys.exit(1 if any(each["material"] for each in told) else 0)


def _at(entries: tuple[Entry, ...], index: int, path: Path) -> Entry:
    if index >= len(entries):
        raise InputError(Code.FILE_RULE, f"has no entry {index}: there are {len(entries)}, from 0", Place(str(path)))
    return entries[index]


def _compared(one: Entry | None, other: Entry | None) -> dict[str, Any]:
    found = differences(one, other) if one is not None and other is not None else ()
    alone = one is None or other is None
    return {
        "left": one.pointer if one else None,
        "right": other.pointer if other else None,
        "material": alone or any(difference.material for difference in found),
        "differences": found,
    }


def _show(each: dict[str, Any]) -> None:
    sides = [f"{side} {each[side][1:] if each[side] else 'has none'}" for side in ("left", "right")]
    click.echo(f"entry {', '.join(sides)}: {_verdict(each)}")
    for difference in each["differences"]:
        click.echo(f"  {printable(difference.pointer)} ({'material' if difference.material else 'not material'})")
        click.echo(f"    left:  {_side(difference.left)}\n    right: {_side(difference.right)}")


def _verdict(each: dict[str, Any]) -> str:
    found: tuple[Difference, ...] = each["differences"]
    if None in (each["left"], each["right"]):
        return "only one file has it"
    return "the same" if not found else "differ" if each["material"] else "the same but for what no digest binds"


def _side(value: str) -> str:
    return printable(value if len(value) <= 200 else f"{value[:200]}...") or "(absent)"


# -- files ------------------------------------------------------------------------------------------------------------


def _result_files(path: Path) -> Iterator[Path]:
    return (file for file in _files(path) if file.name != "eval.yaml")


def _entries(file: Path) -> tuple[Entry, ...]:
    return entries_of(open_results(_read(file), str(file)))


def _benchmark(path: Path | None) -> Benchmark | None:
    return None if path is None else read_benchmark(_read(path), str(path))


def _read(path: Path) -> bytes:
    return files.read(path, strict_yaml.MAX_BYTES)


def _json(document: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(document)).decode()
