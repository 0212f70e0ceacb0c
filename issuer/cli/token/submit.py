"""`issuer submit`: get finished runs signed, and open pull requests in the repositories of their models.

The command prints lines while it works, or one JSON document at the end. For a CI, it writes the document and a summary
in Markdown into files.
"""

from __future__ import annotations

import difflib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET, Struct

from issuer.cli.exits import Exit
from issuer.cli.options import A_FOLDER, audience_option, integration_option, issuer_option, json_option, verbose_option
from issuer.cli.render import counted, render_checks, say_text, say_wrapped, subject
from issuer.cli.results.options import (
    RunCommand,
    RunOptions,
    benchmark_option,
    failures_of,
    origins_of,
    primary_option,
    read_benchmark_file,
    reproduces_option,
    run_options,
    say_failures,
    say_note,
    show_origin,
    warn_unread,
)
from issuer.cli.terminal import printable, render_json, say, say_document, shorten
from issuer.cli.token.credentials import CredentialOptions, credential_options, explaining
from issuer.client.batches import FOLDER, MAX_REFUSED, IssuerAccess, ResumeState, explain_each
from issuer.client.build import Result, build_each
from issuer.client.credential import Credential
from issuer.client.files import STAND_IN
from issuer.client.hub import Hub, describe_entry
from issuer.client.proposal import Destination, InFolder, OnHub, ProposedResult, RepoChange, ResultKey, earlier
from issuer.client.submit import Outcome, SignedResults, SubmissionPlan, plan_of, propose, sign
from issuer.codes import Code
from issuer.errors import InputError
from issuer.errors import Place as InFile
from issuer.formats.display import code_span, markdown_table
from issuer.formats.strict_json import JSON
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_when
from issuer.io import files
from issuer.io.http_client import check_url
from issuer.results.benchmark import Benchmark
from issuer.results.claims import Metric
from issuer.results.entry import Entry
from issuer.token.wire import Explained, ShownCheck
from issuer.verify.report import Report

_A_NEW_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=RunCommand)
@issuer_option
@run_options
@reproduces_option
@benchmark_option
@primary_option
@integration_option
@audience_option
@credential_options
@click.option(
    "--state", type=A_FOLDER, metavar="DIR",
    help=f"The folder for received tokens.  [default: {FOLDER} beside the first PATH]",
)  # fmt: skip
@click.option(
    "--out", type=A_FOLDER, metavar="DIR",
    help="Write into DIR/OWNER/NAME/.eval_results, and open no pull request.",
)  # fmt: skip
@click.option("--keep-going", is_flag=True, help="Leave out runs that are unusable or refused.")
@click.option("--dry-run", is_flag=True, help="Show the changes and the issuer's decisions. Changes nothing.")
@verbose_option
@click.option("--report", type=_A_NEW_FILE, metavar="FILE", help="Write the document of --json into FILE.")
@click.option(
    "--summary", type=_A_NEW_FILE, metavar="FILE", help="Write a summary in Markdown into FILE, for a CI to show."
)
@json_option
def submit(
    issuer: str, given_runs: RunOptions, benchmark_path: Path | None, primary: str | None, reproduces: str,
    integration: str | None, audience: str | None, given: CredentialOptions, state: Path | None, out: Path | None,
    keep_going: bool, dry_run: bool, verbose: bool, report: Path | None, summary: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Get finished runs signed, and propose them to the repositories of their models on the Hub.

    Each model gets one pull request with the signed entries in its `.eval_results/*.yaml`. The command first verifies
    the entries by the issuer's keys. It opens pull requests with $HF_TOKEN at $HF_ENDPOINT, and finds the credential
    like `issuer token request`.

    Until the first pull request, either all results are signed or none is proposed. Start a killed job again with the
    same command: it reuses the tokens that it received, and proposes no result twice.
    """
    url = check_url(issuer)
    for path in filter(None, (report, summary)):
        files.demand_replaceable(path, follow=False)
    identities = _Identities(given, url)
    access = IssuerAccess(url, identities, integration, audience)
    received = ResumeState(state or given_runs.paths[0].parent / FOLDER)
    destination: Destination = InFolder(out) if out else OnHub(Hub.here())
    results, failed = _read(given_runs, reproduces, keep_going=keep_going)
    plan = plan_of(results, destination, _benchmark(benchmark_path, results), primary)
    output = Output(url, as_json=as_json, verbose=verbose)
    try:
        output.plan(plan)
        warn_unread([item.why for item in plan.items if item.profile == "target"])
        with explaining(url, identities.last):
            if dry_run:
                refused = _rehearse(plan, access, output)
            else:
                refused = _submit(plan, destination, received, access, output, keep_going=keep_going)
    finally:
        output.end(report, summary)
    sys.exit(Exit.INPUT if failed else Exit.REFUSED if refused else Exit.GOOD)


# -- input ------------------------------------------------------------------------------------------------------------


class _Identities:
    """Credentials: a new one for each request, which is neither expired nor used. Standard input supplies only one."""

    def __init__(self, given: CredentialOptions, issuer: str) -> None:
        self._given, self._issuer = given, issuer
        self._last: Credential | None = None

    def __call__(self) -> Credential:
        if self._last is None or not self._given.reads_standard_input:
            self._last = self._given.credential(self._issuer)
        return self._last

    def last(self) -> Credential:
        """Return the credential of the last request."""
        return self._last or self()


def _read(given: RunOptions, reproduces: str, *, keep_going: bool) -> tuple[tuple[Result, ...], int]:
    """Read the runs and return their results, and how many runs failed. A failure ends the command unless `keep_going`
    is set and other runs have results."""
    options = given.build_options(reproduces=reproduces)
    runs, failures = given.read()
    results, unbuilt = build_each(runs, Path(), options, tasks=given.tasks)
    failures += failures_of(unbuilt)
    say_failures(failures)
    if failures and not (keep_going and results):
        rest = f"; --keep-going submits the other {len(results)}" if results else ""
        say(
            f"issuer: no request was sent: {len(failures)} of {len(failures) + len(results)} runs failed{rest}",
            err=True,
        )
        sys.exit(Exit.INPUT)
    return results, len(failures)


def _benchmark(path: Path | None, results: Sequence[Result]) -> Benchmark | None:
    """Read the definition that --benchmark names. Raises InputError if the runs have several benchmarks."""
    repos = {each.built.claims.benchmark_repo for each in results}
    if path is not None and len(repos) > 1:
        rule = f"--benchmark is for runs of one benchmark, not of {', '.join(sorted(repos)[:5])}"
        raise InputError(Code.FILE_RULE, rule, InFile(str(path)))
    return read_benchmark_file(path)


# -- steps ------------------------------------------------------------------------------------------------------------


def _rehearse(plan: SubmissionPlan, access: IssuerAccess, output: Output) -> bool:
    """Show the changes and the issuer's decisions. Return whether the issuer would refuse a result."""
    for change in plan.changes:
        output.change(change)
    asked, refused = 0, 0
    for index, explained in explain_each(access, [item.said for item in plan.items]):
        item = plan.items[index]
        output.explained(item, explained, earlier(item, plan.changes, access.issuer, explained.integration))
        asked, refused = asked + 1, refused + (explained.verdict == "refused")
    output.rehearsed(asked, refused, len(plan.items) - asked)
    return refused > 0


def _submit(
    plan: SubmissionPlan, destination: Destination, received: ResumeState, access: IssuerAccess, output: Output, *,
    keep_going: bool,
) -> bool:  # fmt: skip
    """Get the results signed and propose them. Return whether the issuer refused a result."""
    signed = sign(plan, destination, access, received, keep_going=keep_going)
    output.signed(signed, plan.items)
    if signed.refusals and not signed.items:
        others = not keep_going and len(signed.refusals) < len(plan.items)
        rest = "; --keep-going leaves refused results out" if others else ""
        say(f"issuer: no result was proposed: {len(signed.refusals)} of {len(plan.items)} refused{rest}", err=True)
    for outcome in propose(signed, destination, access):
        output.outcome(outcome)
    return bool(signed.refusals)


# -- summary ----------------------------------------------------------------------------------------------------------

# Text from a run, a policy or an answer becomes a code span (`formats.markdown`), so that the name of a task cannot
# draw a table, a link or a "verified".

MAX_BYTES = 512 * 1024  # a step's summary has at most 1 MiB at GitHub
MAX_ROWS = 500
DONE = frozenset({"proposed", "proposed before", "on main"})
_LINK = re.compile(r"https?://[A-Za-z0-9._~:/-]+")


class Summed(Struct):
    """The content of a summary: the results and their outcomes, the issuer's checks, and the verification reports."""

    issuer: str
    items: Sequence[ProposedResult] = ()
    fates: dict[ResultKey, dict[str, Any]] = {}
    checks: dict[ResultKey, tuple[ShownCheck, ...]] = {}
    reports: dict[ResultKey, Report] = {}
    rehearsed: bool = False


def render_summary(summed: Summed) -> str:
    """Return Markdown: one table of all results, then the claims, digests and checks of each, as far as they fit."""
    parts = [f"### {_heading(summed)}", f"Issuer: {_code(summed.issuer)}", _overview(summed)]
    left = MAX_BYTES - sum(len(part.encode()) for part in parts)
    for number, item in enumerate(summed.items, 1):
        block = "\n\n".join(_block(number, item, summed))
        left -= len(block.encode())
        if left < 0:
            parts.append(f"For the results from number {number} on, see the job's log.")
            break
        parts.append(block)
    return "\n\n".join(parts) + "\n\n"


def _heading(summed: Summed) -> str:
    fates = {summed.fates[item.key]["fate"] for item in summed.items}
    if summed.rehearsed:
        refused = ", and the issuer would refuse results" if "would be refused" in fates else ""
        return f"A dry run without signatures{refused}"
    return "Submitted" if fates and fates <= DONE else "Not everything was submitted"


def _overview(summed: Summed) -> str:
    rows = (
        (str(number), _code(item.repo), _code(item.said.claims.benchmark_repo), _code(item.said.claims.task_id),
         ", ".join(map(_metric, item.said.claims.metrics[:5])), _outcome(summed.fates[item.key]))
        for number, item in enumerate(summed.items[:MAX_ROWS], 1)
    )  # fmt: skip
    return markdown_table(("", "model", "benchmark", "task", "score", "outcome"), rows)


def _metric(metric: Metric) -> str:
    part = "" if metric.slice is UNSET else f" ({metric.slice})"
    return _code(f"{metric.metric_id}{part} {number_text(metric.value)}")


def _outcome(fate: Mapping[str, Any]) -> str:
    where, refused = str(fate.get("pull_request") or ""), str(fate.get("code", ""))
    if _LINK.fullmatch(where):
        return f"[{fate['fate']}]({where})"
    return f"{fate['fate']} {_code(where or refused)}".rstrip()


def _block(number: int, item: ProposedResult, summed: Summed) -> Iterator[str]:
    """Yield the parts of one result: its claims, the policy's checks, and the report of verification."""
    yield f"#### {number}. {_code(item.result.run.name)} for {_code(item.repo)}, {_code(item.path)}"
    claims = [(name, _code(value), origin) for name, value, origin in origins_of(item.result.built)]
    digests = (("claims digest", item.said.claims_digest), ("content digest", item.said.content_digest))
    yield markdown_table(
        ("claim", "value", "from"), [*claims, *((name, code_span(digest), "") for name, digest in digests)]
    )
    yield from _checks(summed.checks.get(item.key, ()))
    if (report := summed.reports.get(item.key)) is not None:  # verified before the pull request
        rows = ((f"{check.number}. {check.name}", check.status.value, _code(check.evidence)) for check in report.checks)
        yield markdown_table((report.verdict, "", "by the issuer's own keys"), rows)


def _checks(checks: Sequence[ShownCheck]) -> Iterator[str]:
    """Yield tables of the policy's checks, the failed checks first."""
    if failed := [check for check in checks if not check.passed]:
        cells = ((each.code, each.pointer or each.rule, each.actual, each.expected, each.hint) for each in failed)
        yield markdown_table(
            ("refused", "where", "yours", "wanted", "what to change"), (map(_code, row) for row in cells)
        )
    if passed := [check for check in checks if check.passed]:
        yield markdown_table(("passed", "yours"), ((_code(subject(check)), _code(check.actual)) for check in passed))


def _code(text: str) -> str:
    return code_span(printable(text))


# -- lines and document -----------------------------------------------------------------------------------------------

# For more runs, only --verbose shows the origin of each value.
_FEW = 10


class Output:
    """The output of one run of the command. With `as_json`, it prints only the document at the end."""

    def __init__(self, issuer: str, *, as_json: bool, verbose: bool) -> None:
        self._as_json, self._verbose = as_json, verbose
        self._summed = Summed(issuer, fates={})
        self._rows, self._pull_requests = self._summed.fates, list[dict[str, JSON]]()

    def end(self, report: Path | None = None, summary: Path | None = None) -> None:
        """Print the document for `as_json`, and write the files of --report and --summary. Raises OSError."""
        results = list(self._rows.values())
        document = {
            "version": 1, "issuer": self._summed.issuer, "results": results, "pull_requests": self._pull_requests,
        }  # fmt: skip
        if self._as_json:
            say_document(document)
        if report is not None:
            files.replace(report, f"{render_json(document)}\n".encode(), mode=None, durable=False, follow=False)
        if summary is not None:
            files.replace(summary, render_summary(self._summed).encode(), mode=None, durable=False, follow=False)

    def _say(self, line: str) -> None:
        if not self._as_json:
            say_text(line)

    def plan(self, plan: SubmissionPlan) -> None:
        """Print the origins of each run's values, and the destination and form of each result."""
        for item in plan.items:
            built, run = item.result.built, item.result.run
            self._rows[item.key] = {
                "run": run.name, "task": run.task, "model_repo": item.repo, "path": item.path,
                "content_digest": item.said.content_digest, "claims_digest": item.said.claims_digest,
                "profile": item.profile, "profile_because": item.why, "origins": built.origins, "fate": "not sent",
            }  # fmt: skip
        self._summed.items = plan.items  # only now, because the summary needs a row for each item
        for item in plan.items if not self._as_json and (self._verbose or len(plan.items) <= _FEW) else ():
            built, run = item.result.built, item.result.run
            say(f"{shorten(run.name)}: {shorten(run.task)}")
            show_origin(built)
            say(f"  content_digest: {item.said.content_digest}\n  claims_digest: {item.said.claims_digest}")
            say_note(built)
        forms = Counter((item.repo, item.path, item.profile, item.why) for item in plan.items)
        for (repo, path, profile, why), count in forms.items():
            self._say(f"{repo} {path}: {counted(count, 'result')}, profile {profile} ({why})")

    def change(self, change: RepoChange) -> None:
        """Print a diff of a repository's files. `(its token)` replaces the stand-in for a missing token."""
        for path, raw in change.after.items():
            after = raw.decode().replace(STAND_IN, "(its token)")
            names = f"a/{change.repo}/{path}", f"b/{change.repo}/{path}"
            lines = difflib.unified_diff(change.before[path].splitlines(), after.splitlines(), *names, lineterm="")
            for line in () if self._as_json else lines:
                say(printable(line))

    def explained(self, item: ProposedResult, explained: Explained, replaced: Iterable[Entry]) -> None:
        """Print the issuer's decision about a result, and which results on main it would replace."""
        refused = explained.verdict == "refused"
        self._rows[item.key]["fate"] = "would be refused" if refused else "would be signed"
        self._summed.checks[item.key] = explained.checks
        if refused:
            self._refused(item, str(explained.code), explained.checks)
        for entry in () if refused else replaced:
            self._say(f"would replace, signed before for the same integration: {describe_entry(entry)}")
        for warning in explained.warnings:
            self._say(f"warning: {warning}")

    def rehearsed(self, asked: int, refused: int, lacking: int) -> None:
        """Print the counts of a dry run. `lacking` results have no decision."""
        self._summed.rehearsed = True
        self._say(f"the issuer would sign {asked - refused} of {asked}; no token was requested, no file was changed")
        if lacking:
            rest = f"refusals count against the identity, so the dry run ends after {MAX_REFUSED}"
            self._say(f"the other {lacking} were not checked: {rest}")

    def signed(self, signed: SignedResults, items: Iterable[ProposedResult]) -> None:
        """Print which results got tokens, need no token, or were refused."""
        for item in items:
            self._fate(item, signed)
        new = [token for key, token in signed.tokens.items() if key not in signed.again]
        if new:
            until = show_when(min(token.expires_at for token in new), int(time.time()))
            identity = f"{new[0].integration}/{new[0].identity}"
            self._say(f"signed for {identity}: {counted(len(new), 'result')}, until {until}")
        if signed.again:
            self._say(f"signed before, token reused: {counted(len(signed.again), 'result')}")
        for warning in dict.fromkeys(warning for token in new for warning in token.warnings):
            say_wrapped(warning, "warning: ", "  ", err=True)

    def _fate(self, item: ProposedResult, signed: SignedResults) -> None:
        row = self._rows[item.key]
        if item.key in signed.there:
            row["fate"] = "on main"
            self._say(f"{_name(item)}: on main already, with a good token")
        elif (pull_request := signed.open.get(item.key)) is not None:
            row |= {"fate": "proposed before", "pull_request": pull_request.url}
            self._say(f"{_name(item)}: in an open pull request already: {printable(pull_request.url)}")
        elif (refusal := signed.refusals.get(item.key)) is not None:
            row["fate"] = "refused"
            self._summed.checks[item.key] = refusal.checks
            self._refused(item, str(refusal.code), refusal.checks)
        elif (token := signed.tokens.get(item.key)) is not None:
            again = item.key in signed.again
            row |= {"fate": "signed", "jti": token.jti, "expires_at": token.expires_at, "again": again}

    def _refused(self, item: ProposedResult, code: str, checks: Iterable[ShownCheck]) -> None:
        failed = [check for check in checks if not check.passed]
        self._rows[item.key] |= {"code": code, "checks": failed}
        if not self._as_json:
            say(f"{_name(item)}: refused, {printable(code)}", err=True)
            say(render_checks(failed), err=True)

    def outcome(self, outcome: Outcome) -> None:
        """Print the destination of a repository's results."""
        made, repo = outcome.pull_request, outcome.repo
        self._summed.reports |= outcome.reports
        count = counted(len(outcome.items), "result")
        if made is None:
            self._say(f"{repo}: unchanged, main has every result")
        elif not made.number:
            self._say(f"{printable(made.url)}: {count} written, verified by the issuer's keys")
        else:
            what = "open already" if made.existed else "opened"
            self._say(f"{printable(made.url)}: {what}, {count}, verified by the issuer's keys")
        for entry in outcome.replaced if made is not None else ():
            self._say(f"replaced, signed before for the same integration: {describe_entry(entry)}")
        if outcome.without_proof:
            lacking = f"warning: the log has no proof yet of {counted(outcome.without_proof, 'token')}"
            say(f"{lacking}. Get it later with `issuer log proof`", err=True)
        for item in outcome.items:
            fate = {"fate": "on main"} if made is None else {"fate": "proposed", "pull_request": made.url}
            self._rows[item.key] |= fate
        self._pull_requests.append({
            "model_repo": repo, "url": made.url if made else None, "number": made.number if made else None,
            "existed": made.existed if made else None, "results": len(outcome.items),
            "without_proof": outcome.without_proof, "replaced": list(map(describe_entry, outcome.replaced)),
        })  # fmt: skip


def _name(item: ProposedResult) -> str:
    run = item.result.run
    return f"{shorten(run.name)}, {shorten(run.task)}" if run.task else shorten(run.name)
