"""`issuer verify`: judge a result file, or a folder of repositories, and exit with the answer.

Exit codes (contract section 6), the same in every output format, the worst wins: 2 usage, 6 local state, 3 a file that
is missing or malformed, 1 no (also: an entry without a token, unless --allow-unsigned; no token at all), 4 could not
decide, 0 all good.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click
from msgspec import Struct

from issuer import files
from issuer.cli.exits import exit_for_summary
from issuer.cli.report import show
from issuer.cli.terminal import describe_error, printable, say, say_document
from issuer.cli.times import read_time
from issuer.formats import strict_yaml
from issuer.relying.asked_logs import AskedLogs
from issuer.relying.documents import Documents, default_folder
from issuer.relying.folders import BenchmarkFolder, OneBenchmark, ReceiptFolder
from issuer.relying.seen import SeenLists, default_state
from issuer.relying.trusted import Trusted
from issuer.relying.verifier import Verifier, path_in_repo
from issuer.results.benchmark import read_benchmark
from issuer.verify import Context
from issuer.verify.report import REPORT_VERSION, Reports, json_schema
from issuer.verify.summary import Summary, tally

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from issuer.results.benchmark import Benchmark
    from issuer.verify.trust import Trust

_FILE = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, file_okay=False)


class Options(Struct, frozen=True):
    """What was asked for, by the names of the options."""

    in_repo: str | None
    trust: Path | None
    issuer: str | None
    audience: str | None
    at: str | None
    received_now: bool
    receipts: Path | None
    receipt_key: Path | None
    benchmark: Path | None
    benchmarks: Path | None
    cache: Path | None
    state: Path | None
    offline: bool


@click.command()
@click.argument("path", type=_FILE, required=False)
@click.option("--repo", metavar="OWNER/NAME", help="The model repository that the FILE sits in.")
@click.option("--path", "in_repo", metavar="PATH", help="Where a FILE that is a copy lies in the repository.")
@click.option("--trust", type=_FILE, metavar="FILE", help="The trust file to judge by.")
@click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust.")
@click.option("--audience", metavar="AUD", help="Without a trust file: who is asking, as tokens must name it.")
@click.option("--at", metavar="TIME", help="When it was received: ISO 8601 with an offset, or Unix seconds.")
@click.option("--received-now", is_flag=True, help="It is being received now: a token that has ended is a no.")
@click.option(
    "--require-token/--allow-unsigned", default=True, show_default=True,
    help="Whether an entry without a token is a no. One must have a token, either way.",
)  # fmt: skip
@click.option("--receipts", type=_FOLDER, metavar="DIR", help="Receipts to use; with --receipt-key, also to write.")
@click.option(
    "--receipt-key", type=_FILE, metavar="FILE", help="A key under `receipt_keys`: write receipts of what verifies."
)
@click.option("--benchmark", type=_FILE, metavar="EVAL.YAML", help="The benchmark's definition; you vouch for it.")
@click.option("--benchmarks", type=_FOLDER, metavar="DIR", help="Definitions: DIR/OWNER/NAME/REVISION/eval.yaml.")
@click.option(
    "--offline", is_flag=True, help="Fetch nothing: use what was fetched before, however old; its age is said."
)
@click.option("--cache", type=_FOLDER, metavar="DIR", help="Where fetched key sets are kept.")
@click.option("--state", type=_FOLDER, metavar="DIR", help="Where the newest revocation lists seen are remembered.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Of a folder: how many processes judge.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one document for a file, lines for a folder.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the reports, and nothing else.")
def verify(
    path: Path | None,
    repo: str | None,
    require_token: bool,
    jobs: int | None,
    as_json: bool,
    schema: bool,
    **more: object,
) -> None:
    """Check every entry of a result FILE, or of DIR/OWNER/NAME/.eval_results/*.yaml on all cores.

    Signature, issuer, freshness, every field. The audience is yours to say; it is never taken from the issuer or from
    the token. PATH is a FILE (with --repo) or a DIR.
    """
    if schema:
        say_document(json_schema())
        return
    options = msgspec.convert(more, Options)
    folder = path is not None and path.is_dir()
    _check_usage(path, repo, options, folder=folder, jobs=jobs)
    verifier = _verifier(options, folder=folder)
    if folder:
        from issuer.cli.verify_folder import verify_folder  # processes, which one file does not need

        summary = verify_folder(Path(str(path)), verifier, jobs=jobs or 0, as_json=as_json)
    else:
        place = options.in_repo or path_in_repo(os.path.abspath(str(path)))
        summary = _verify_file(Path(str(path)), str(repo), place, verifier, as_json=as_json)
    unsigned = summary.verdicts["unverified"]
    if require_token and unsigned:
        what = f"{unsigned:,} of {summary.entries:,} entries have no token that could be checked"
        say(f"issuer: {what}: that is a no. --allow-unsigned leaves them out", err=True)
    sys.exit(exit_for_summary(summary, require_token=require_token))


def _check_usage(path: Path | None, repo: str | None, options: Options, *, folder: bool, jobs: int | None) -> None:
    if path is None:
        raise click.UsageError("give a FILE with --repo OWNER/NAME, or a DIR of repositories")
    if not folder and repo is None:
        raise click.UsageError("give --repo OWNER/NAME: a file does not say which repository it sits in")
    if not folder and jobs is not None:
        raise click.UsageError("--jobs is for a DIR")
    if folder and (repo, options.in_repo, options.benchmark) != (None, None, None):
        what = "--repo, --path and --benchmark are for one FILE; for a DIR, --benchmarks has many definitions"
        raise click.UsageError(what)
    if options.benchmark is not None and options.benchmarks is not None:
        raise click.UsageError("give --benchmark or --benchmarks, not both")
    if options.at is not None and options.received_now:
        raise click.UsageError("give --at TIME or --received-now, not both")
    if options.receipt_key is not None and options.receipts is None:
        raise click.UsageError("--receipt-key signs receipts: say where they go with --receipts DIR")


def _verify_file(file: Path, repo: str, place: str, verifier: Verifier, *, as_json: bool) -> Summary:
    reports = verifier.verify(files.read(file, strict_yaml.MAX_BYTES), str(file), repo, place)
    if as_json:
        say_document(Reports(REPORT_VERSION, reports))
    else:
        show(reports, str(file))
    faults = verifier.take_faults()
    for fault in faults:
        say(f"issuer: {describe_error(fault)}", err=True)
    summary = Summary()
    summary.add(1, Counter(map(tally, reports)).items(), [fault.code for fault in faults])
    return summary


# -- what to judge by -------------------------------------------------------------------------------------------------


def _verifier(options: Options, *, folder: bool) -> Verifier:
    now = int(time.time())
    trusted = _trusted(options, now)
    receipts = None if options.receipts is None else ReceiptFolder(options.receipts)
    asked = {} if folder or options.offline else AskedLogs(trusted.trust, now)
    context = Context(
        now, witnessed=options.received_now, benchmarks=_benchmarks(options), receipts=receipts or {}, asked=asked
    )
    key = _receipt_key(options.receipt_key, trusted.trust)
    return Verifier(trusted.trust, _received_at(options, now), context, receipts, key, trusted.renew)


def _received_at(options: Options, now: int) -> int | None:
    """Return when the file was received; None for a reader, who cannot know."""
    if options.at is not None:
        return read_time(options.at, "--at")
    return now if options.received_now else None


def _trusted(options: Options, now: int) -> Trusted:
    state = options.state or default_state()
    seen = None if state is None else SeenLists(state)
    documents = Documents(options.cache or default_folder(), now, offline=options.offline)
    if options.trust is not None:
        if options.issuer or options.audience:
            raise click.UsageError("give --trust, or --issuer with --audience, not both")
        trusted = Trusted.by_file(options.trust, documents, seen)
    elif options.issuer and options.audience:
        trusted = Trusted.in_issuer(options.issuer, options.audience, documents, seen)
    else:
        raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")
    for issuer in trusted.trust.unlimited:
        rule = "may speak for every framework, as other issuers here may: name its `frameworks`"
        say(f"issuer: warning: {printable(issuer)} {rule}", err=True)
    for absence in trusted.trust.absent:
        say(f"issuer: warning: {absence.pointer} of the trust file: {printable(absence.reason)}", err=True)
    return trusted


def _benchmarks(options: Options) -> Mapping[tuple[str, str], Benchmark]:
    if options.benchmarks is not None:
        return BenchmarkFolder(options.benchmarks)
    if options.benchmark is not None:
        return OneBenchmark(
            read_benchmark(files.read(options.benchmark, strict_yaml.MAX_BYTES), str(options.benchmark))
        )
    return {}


def _receipt_key(path: Path | None, trust: Trust) -> Ed25519PrivateKey | None:
    if path is None:
        return None
    from issuer import keyfile
    from issuer.verify.receipts import check_key

    key = keyfile.read(path)
    check_key(trust, key)
    return key
