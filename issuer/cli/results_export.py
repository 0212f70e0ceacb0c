"""`issuer results export`: entries of a result file as records of another format."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click
from msgspec import Struct

from issuer import files
from issuer.cli.result_files import benchmark_option, check_repo, read_benchmark_file, read_bytes
from issuer.cli.terminal import printable, render_json, say
from issuer.codes import Code
from issuer.errors import FormatError, Refused
from issuer.results.entry import Entry, claims_of, entries_of, open_results
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
    from issuer.formats.strict_yaml import Document
    from issuer.results.benchmark import Benchmark
    from issuer.results.claims import RunClaims


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--to",
    expose_value=False,
    type=click.Choice(["eee"]),
    required=True,
    help="eee: Every Eval Ever 0.3.0.",
)
@click.option(
    "--repo", required=True, metavar="OWNER/NAME", callback=check_repo, help="The model repository that FILE sits in."
)
@benchmark_option
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="The folder for BENCHMARK/OWNER/MODEL/UUID.json.",
)  # fmt: skip
@click.option(
    "--source-type", required=True, type=click.Choice(get_args(SourceType)), help="What the scores are, as you know it."
)
@click.option("--organization", required=True, metavar="NAME", help="Who provides the scores.")
@click.option("--organization-url", metavar="URL", help="Their page.")
@click.option(
    "--evaluator", "relationship", required=True, type=click.Choice(get_args(Relationship)),
    help="What whoever evaluated is to the model.",
)  # fmt: skip
@click.option("--trust", type=click.Path(path_type=Path), metavar="FILE", help="Verify by this trust file, and say so.")
@click.option("--issuer", metavar="URL", help="Without a trust file: the one issuer to trust.")
@click.option("--audience", metavar="AUD", help="Without a trust file: who is asking, as tokens must name it.")
@click.option("--received-now", is_flag=True, help="It is being received now: a token that has ended is a no.")
@click.option("--offline", is_flag=True, help="Verify with what was fetched before, and fetch nothing.")
def export(
    file: Path, repo: str, benchmark_path: Path | None, out: Path, source_type: SourceType,
    organization: str, organization_url: str | None, relationship: Relationship, trust: Path | None,
    issuer: str | None, audience: str | None, received_now: bool, offline: bool,
) -> None:  # fmt: skip
    """Write one record an entry, for a collection of results that takes them from anyone.

    The source and the evaluator are yours to state; the direction of each metric is that of --benchmark. With --trust,
    or --issuer and --audience, the file is verified, and each record says what came of it, by which issuer and of which
    token. All records are made before one is written; an entry that was written before keeps its place.
    """
    benchmark = read_benchmark_file(benchmark_path)
    if benchmark is None:
        raise click.UsageError("the direction of a metric is its benchmark's to say: give --benchmark eval.yaml")
    now, raw = int(time.time()), read_bytes(file)
    document = open_results(raw, str(file))
    entries = entries_of(document)
    trusted = _Trusted(trust, issuer, audience, received_now, offline)
    verified = trusted.verify(raw, file, repo, benchmark, now) if trusted.asked else {}
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


class _Trusted(Struct, frozen=True):
    """What to verify by, as `issuer verify` is given it."""

    file: Path | None
    issuer: str | None
    audience: str | None
    received_now: bool
    offline: bool

    @property
    def asked(self) -> bool:
        """Whether the file is to be verified."""
        return (self.file, self.issuer, self.audience) != (None, None, None)

    def verify(self, raw: bytes, file: Path, repo: str, benchmark: Benchmark, now: int) -> dict[str, Verification]:
        """Return what came of each entry, by its pointer; the benchmark is vouched for."""
        from issuer.relying.asked_logs import AskedLogs  # opens connections, which nothing else here does
        from issuer.relying.documents import Documents, default_folder
        from issuer.relying.folders import OneBenchmark
        from issuer.relying.seen import SeenLists, default_state
        from issuer.relying.trusted import Trusted
        from issuer.relying.verifier import Verifier, path_in_repo
        from issuer.verify import Context

        state = default_state()
        seen = None if state is None else SeenLists(state)
        documents = Documents(default_folder(), now, offline=self.offline)
        if self.file is not None and (self.issuer, self.audience) == (None, None):
            trusted = Trusted.by_file(self.file, documents, seen)
        elif self.file is None and self.issuer and self.audience:
            trusted = Trusted.in_issuer(self.issuer, self.audience, documents, seen)
        else:
            raise click.UsageError("give --trust FILE, or --issuer URL with --audience AUD")
        asked = {} if self.offline else AskedLogs(trusted.trust, now)
        context = Context(now, witnessed=self.received_now, benchmarks=OneBenchmark(benchmark), asked=asked)
        verifier = Verifier(trusted.trust, now if self.received_now else None, context, renew=trusted.renew)
        reports = verifier.verify(raw, str(file), repo, path_in_repo(os.path.abspath(file)))
        return {
            report.pointer: Verification(report.verdict, report.issuer, report.token_digest, report.at)
            for report in reports
        }


def _claims(document: Document, entry: Entry, repo: str) -> RunClaims:
    try:
        return claims_of(entry, repo)
    except Refused as refusal:
        fault = refusal.faults[0]
        rule = "this entry names no run: " + f"{fault.pointer} {fault.detail}".strip()
        raise document.error(Code.RESULT_UNBOUND, entry.pointer, rule) from None


def _demand_defined(document: Document, entry: Entry, claims: RunClaims, benchmark: Benchmark) -> None:
    """Raise InputError where the benchmark is not the one of this entry: its directions would be another's."""
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
