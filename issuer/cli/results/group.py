"""`issuer results build`, `fmt`, `digest`, `schema` and `export`: commands that make, read and export result files."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from issuer.adapters.plain_json import schema as run_schema
from issuer.cli.exits import Exit
from issuer.cli.options import A_FILE, json_option
from issuer.cli.results.compare import diff
from issuer.cli.results.lint import lint
from issuer.cli.results.options import (
    Failure,
    RunCommand,
    RunOptions,
    benchmark_option,
    check_repo,
    failures_of,
    find_result_files,
    paths_argument,
    primary_option,
    read_benchmark_file,
    read_bytes,
    read_entries_of,
    repo_option,
    reproduces_option,
    run_options,
    say_failures,
    say_note,
    warn_unread,
)
from issuer.cli.results.options import show_origin as show_origins
from issuer.cli.terminal import printable, render_json, say, say_document, shorten
from issuer.client.build import Result, build_each, write_results
from issuer.client.files import write_text
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Refused
from issuer.io import files
from issuer.results import edit
from issuer.results.benchmark import named_primary
from issuer.results.entry import PROFILES, Entry, Profile, claims_of, content_digest, entries_of, open_results
from issuer.results.every_eval_ever import (
    Relationship,
    SourceType,
    Statement,
    Verification,
    record_of,
    record_path,
    unheld,
)

if TYPE_CHECKING:
    from issuer.cli.verify.options import Judging
    from issuer.formats.strict_yaml import Document
    from issuer.results.benchmark import Benchmark
    from issuer.results.claims import RunClaims


@click.group()
def results() -> None:
    """Make, check, compare and export result files."""


results.add_command(diff)
results.add_command(lint)


@results.command(cls=RunCommand)
@click.option(
    "-o", "--out", required=True, type=A_FILE, metavar="OUT",
    help="A result file (*.yaml), or a folder for MODEL/.eval_results/BENCHMARK.yaml.",
)  # fmt: skip
@click.option(
    "--profile", type=click.Choice(PROFILES),
    help="The form of entries. Default: both if the primary metric is known, else target.",
)  # fmt: skip
@benchmark_option
@primary_option
@run_options
@reproduces_option
@click.option("--skip-failed", is_flag=True, help="Leave out runs that give no result.")
@click.option("--update", is_flag=True, help="Add new entries to existing files. Existing entries stay unchanged.")
@click.option("--show-origin", is_flag=True, help="List the origin of each value: the run, or its owner.")
def build(
    given_runs: RunOptions, out: Path, profile: Profile | None, benchmark_path: Path | None, primary: str | None,
    reproduces: str, skip_failed: bool, update: bool, show_origin: bool,
) -> None:  # fmt: skip
    """Build result files from finished runs, and the claims for token requests.

    The command invents no value. You supply values that a run lacks by option, environment variable or mapping file,
    and they must not contradict the run. Entries have no token yet. Their claims go to the folder `claims` in OUT, or
    beside the file, as JSON for `issuer token request --claims`. The command reads every run first. It writes files
    only if all runs are good, or if --skip-failed leaves the bad ones out.
    """
    options = given_runs.build_options(profile, read_benchmark_file(benchmark_path), reproduces, primary)
    runs, failures = given_runs.read()
    results, unbuilt = build_each(runs, out, options, tasks=given_runs.tasks)
    _end_failed([*failures, *failures_of(unbuilt)], len(results), skip=skip_failed)
    new = write_results(results, update=update)
    for each in results:
        _say_result(each, new)
        say_note(each.built)
        if show_origin:
            show_origins(each.built)
    warn_unread([each.unread for each in new if each.unread])


def _end_failed(failures: list[Failure], built: int, *, skip: bool) -> None:
    """Print the failures. End the command if there are any, unless `skip` is set and other runs were built."""
    say_failures(failures)
    if failures and not (skip and built):
        rest = f"; --skip-failed builds the other {built}" if built else ""
        say(f"issuer: no file was written: {len(failures)} of {len(failures) + built} runs failed{rest}", err=True)
        sys.exit(Exit.INPUT)


def _say_result(result: Result, new: Sequence[Result]) -> None:
    run = f"{shorten(result.run.task)} of {shorten(result.run.name)}"
    written = next((each for each in new if each.run is result.run), None)
    claims = f"claims in {printable(str(written.claims_file))}" if written else "unchanged, it already has this entry"
    say(f"{printable(str(result.file))}: {run}, {claims}")


@results.command()
@paths_argument
@click.option("--check", is_flag=True, help="Change no file; list files that would change, with exit code 1.")
@click.option("--profile", type=click.Choice(PROFILES), help="Write entries in this form. Default: keep their form.")
@benchmark_option
@primary_option
@click.option("--drop-comments", is_flag=True, help="Also rewrite files with comments, which removes the comments.")
def fmt(
    paths: tuple[Path, ...], check: bool, profile: Profile | None, benchmark_path: Path | None, primary: str | None,
    drop_comments: bool,
) -> None:  # fmt: skip
    """Rewrite result files canonically: members in order, text in double quotes, numbers that every reader accepts.

    The content and the digests of entries stay the same, except with `--profile hub`, which has no token and no
    metrics. The command reads all files before it writes the first.
    """
    primary = named_primary(read_benchmark_file(benchmark_path), primary, Place(str(benchmark_path)))
    changed: dict[Path, str] = {}
    for file in find_result_files(paths):
        after = _rewrite(file, profile, primary, drop_comments=drop_comments)
        if after.encode() != read_bytes(file):
            changed[file] = after
    for file, after in changed.items():
        if not check:
            write_text(file, after)
        say(f"{printable(str(file))}: {'would be' if check else 'is'} rewritten")
    sys.exit(Exit.NO if check and changed else Exit.GOOD)


def _rewrite(file: Path, profile: Profile | None, primary: str | None, *, drop_comments: bool) -> str:
    raw, name = read_bytes(file), str(file)
    document = open_results(raw, name)
    text = raw.decode()
    if not drop_comments and (place := document.first_comment(text)):
        rule = "rewriting would remove this comment: edit the file by hand, or give --drop-comments"
        raise InputError(Code.FILE_RULE, rule, place)
    return edit.rewrite(text, name, profile=profile, primary=primary)


@results.command()
@paths_argument
@repo_option
@json_option
def digest(paths: tuple[Path, ...], repo: str | None, as_json: bool) -> None:
    """Print the digests that a verify token binds: each entry's content_digest and, with --repo, its claims_digest."""
    rows = [_digests(file, entry, repo) for file in find_result_files(paths) for entry in read_entries_of(file)]
    if as_json:
        say_document({"version": 1, "entries": rows})
        return
    for row in rows:
        say(f"{printable(row['file'])}, entry {row['pointer'][1:]}:")
        say(f"  claims_digest   {printable(row['claims_digest'] or '- ' + row['reason'])}")
        say(f"  content_digest  {row['content_digest']}")


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


@results.command()
def schema() -> None:
    """Print the JSON Schema of runs for `issuer results build --from json`.

    The schema only helps while you write. `issuer results build` decides.
    """
    say(run_schema().decode(), end="")


@results.command()
@click.argument("file", type=A_FILE, metavar="FILE")
@click.option("--to", expose_value=False, type=click.Choice(["eee"]), required=True, help="eee: Every Eval Ever 0.3.0.")
@click.option(
    "--repo", required=True, metavar="OWNER/NAME", callback=check_repo, help="The model repository that contains FILE."
)
@benchmark_option
@click.option(
    "-o", "--out", required=True, type=A_FILE, metavar="DIR",
    help="The folder for BENCHMARK/OWNER/MODEL/UUID.json.",
)  # fmt: skip
@click.option(
    "--source-type", required=True, type=click.Choice(get_args(SourceType)), help="The kind of source of the scores."
)
@click.option("--organization", required=True, metavar="NAME", help="The organization that provides the scores.")
@click.option("--organization-url", metavar="URL", help="The organization's page.")
@click.option(
    "--evaluator", "relationship", required=True, type=click.Choice(get_args(Relationship)),
    help="The relationship of the evaluator to the model.",
)  # fmt: skip
@click.option("--trust", type=A_FILE, metavar="FILE", help="Verify by this trust file, and record the verdicts.")
@click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust.")
@click.option("--audience", metavar="AUD", help="Without a trust file: your audience, which tokens must name.")
@click.option("--received-now", is_flag=True, help="The file is received now: an expired token is a no.")
@click.option("--offline", is_flag=True, help="Verify with documents that were fetched before, and fetch none.")
def export(
    file: Path, repo: str, benchmark_path: Path | None, out: Path, source_type: SourceType,
    organization: str, organization_url: str | None, relationship: Relationship, trust: Path | None,
    issuer: str | None, audience: str | None, received_now: bool, offline: bool,
) -> None:  # fmt: skip
    """Write one record for each entry, for a collection of results that is open to everybody.

    You state the source and the evaluator. --benchmark gives the direction of each metric. With --trust, or --issuer
    and --audience, the command verifies the file, and each record contains the verdict, the issuer and the digest of
    the token. The command makes all records before it writes the first. A repeated export replaces the same files.
    """
    from issuer.cli.verify.options import Judging

    benchmark = read_benchmark_file(benchmark_path)
    if benchmark is None:
        raise click.UsageError("only the benchmark says in which direction a metric is better: give --benchmark")
    now, raw = int(time.time()), read_bytes(file)
    document = open_results(raw, str(file))
    entries = entries_of(document)
    judging = Judging(trust=trust, issuer=issuer, audience=audience, received_now=received_now, offline=offline)
    wanted = (trust, issuer, audience) != (None, None, None)
    verified = _verify(judging, raw, file, repo, benchmark, now) if wanted else {}
    stated = Statement(
        source_type=source_type, organization=organization, relationship=relationship,
        organization_url=organization_url,
    )  # fmt: skip
    records = {}
    for entry in entries:
        claims = _claims(document, entry, repo)
        _demand_defined(document, entry, claims, benchmark)
        record = _record(document, entry, claims, benchmark, stated, verified.get(entry.pointer), now)
        records[out / record_path(entry, claims)] = render_json(record)
        for pointer in unheld(claims):
            say(f"warning: {printable(entry.pointer + pointer)}: this format has no member for it", err=True)
    for path, written in records.items():
        files.make_folder(path.parent, mode=0o777, follow=False)
        files.replace(path, f"{written}\n".encode(), mode=None, durable=False, follow=False)
        say(printable(str(path)))


def _verify(
    judging: Judging, raw: bytes, file: Path, repo: str, benchmark: Benchmark, now: int
) -> dict[str, Verification]:
    """Return the verification of each entry by its pointer."""
    from issuer.cli.verify.options import read_trusted, received_at
    from issuer.relying.folders import OneBenchmark
    from issuer.relying.logs.proof import AskedLogs
    from issuer.relying.verifier import FileVerifier, path_in_repo
    from issuer.verify import Context

    trusted = read_trusted(judging, now)
    asked = {} if judging.offline else AskedLogs(trusted.trust, now)
    context = Context(now, witnessed=judging.received_now, benchmarks=OneBenchmark(benchmark), asked=asked)
    verifier = FileVerifier(trusted.trust, received_at(judging, now), context, renew=trusted.renew)
    reports = verifier.verify(raw, str(file), repo, path_in_repo(os.path.abspath(file)))
    return {each.pointer: Verification(each.verdict, each.issuer, each.token_digest, each.at) for each in reports}


def _claims(document: Document, entry: Entry, repo: str) -> RunClaims:
    try:
        return claims_of(entry, repo)
    except Refused as refusal:
        fault = refusal.faults[0]
        rule = "this entry has no valid run claims: " + f"{fault.pointer} {fault.detail}".strip()
        raise document.error(Code.RESULT_UNBOUND, entry.pointer, rule) from None


def _demand_defined(document: Document, entry: Entry, claims: RunClaims, benchmark: Benchmark) -> None:
    """Raise InputError if the definition lacks the task or a metric of the entry: its directions would be wrong."""
    for fault in benchmark.undefined(claims.task_id, [metric.metric_id for metric in claims.metrics]):
        place = "/dataset/task_id" if fault.pointer == "/task_id" else fault.pointer
        raise document.error(fault.code, f"{entry.pointer}{place}", fault.detail)


def _record(
    document: Document, entry: Entry, claims: RunClaims, benchmark: Benchmark, stated: Statement,
    verification: Verification | None, now: int,
) -> dict[str, object]:  # fmt: skip
    try:
        return dict(record_of(entry, claims, benchmark, stated, verification, now))
    except FormatError as error:
        raise document.locate(error, entry.pointer) from None
