"""What `issuer submit` did, in Markdown, as a CI shows it at the end of a job. Pure.

What comes from a run, a policy or an answer stands in code only (`formats.markdown`): a task cannot draw a table of its
own, a link or a "verified".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from issuer.cli.checks import subject
from issuer.cli.runs import origins_of
from issuer.cli.terminal import printable
from issuer.client.proposal import Item, Key
from issuer.formats.markdown import code, table
from issuer.formats.strict_yaml import number_text
from issuer.results.claims import Metric
from issuer.verify.report import Report
from issuer.wire import ShownCheck

MAX_BYTES = 512 * 1024  # a step's summary has at most 1 MiB at GitHub
MAX_ROWS = 500

DONE = frozenset({"proposed", "proposed before", "on main"})


class Summed(Struct):
    """What is known at the end: the results, what became of each, what the issuer checked, and how each verified."""

    issuer: str
    items: Sequence[Item] = ()
    fates: Mapping[Key, Mapping[str, Any]] = {}
    checks: dict[Key, tuple[ShownCheck, ...]] = {}
    reports: dict[Key, Report] = {}
    rehearsed: bool = False


def render_summary(summed: Summed) -> str:
    """Write the summary: all results in one table, then of each its claims, digests and checks, as many as there is
    room for."""
    parts = [f"### {_heading(summed)}", f"Issuer: {_said(summed.issuer)}", _overview(summed)]
    left = MAX_BYTES - sum(len(part.encode()) for part in parts)
    for number, item in enumerate(summed.items, 1):
        block = _block(number, item, summed)
        left -= len(block.encode())
        if left < 0:
            parts.append(f"Of the results from number {number} on, the log of the job has more.")
            break
        parts.append(block)
    return "\n\n".join(parts) + "\n\n"


def _heading(summed: Summed) -> str:
    fates = {summed.fates[item.key]["fate"] for item in summed.items}
    if summed.rehearsed:
        refused = ", and the issuer would refuse results" if "would be refused" in fates else ""
        return f"A rehearsal: nothing was signed{refused}"
    return "Submitted" if fates and fates <= DONE else "Not everything was submitted"


def _overview(summed: Summed) -> str:
    rows = (
        (str(number), _said(item.repo), _said(item.said.claims.benchmark_repo), _said(item.said.claims.task_id),
         ", ".join(map(_metric, item.said.claims.metrics[:5])), _outcome(summed.fates[item.key]))
        for number, item in enumerate(summed.items[:MAX_ROWS], 1)
    )  # fmt: skip
    return table(("", "model", "benchmark", "task", "score", "outcome"), rows)


def _metric(metric: Metric) -> str:
    part = "" if metric.slice is UNSET else f" ({metric.slice})"
    return _said(f"{metric.metric_id}{part} {number_text(metric.value)}")


def _outcome(fate: Mapping[str, Any]) -> str:
    where, refused = str(fate.get("pull_request") or ""), str(fate.get("code", ""))
    if _LINK.fullmatch(where):
        return f"[{fate['fate']}]({where})"
    return f"{fate['fate']} {_said(where or refused)}".rstrip()


_LINK = re.compile(r"https?://[A-Za-z0-9._~:/-]+")


def _block(number: int, item: Item, summed: Summed) -> str:
    """Write what is known of one result."""
    claims = [(name, _said(value), origin) for name, value, origin in origins_of(item.result.built)]
    digests = [("claims digest", item.said.claims_digest), ("content digest", item.said.content_digest)]
    claims += [(name, code(digest), "") for name, digest in digests]
    parts = [
        f"#### {number}. {_said(item.result.run.name)} for {_said(item.repo)}, {_said(item.path)}",
        table(("claim", "value", "from"), claims),
        *_checks(summed.checks.get(item.key, ())),
        *_verified(summed.reports.get(item.key)),
    ]
    return "\n\n".join(parts)


def _checks(checks: Sequence[ShownCheck]) -> Iterator[str]:
    """Write what the issuer's policy says: first what to change."""
    failed = [check for check in checks if not check.passed]
    if failed:
        rows = (
            [*map(_said, (check.code, check.pointer or check.rule, check.actual, check.expected)), _said(check.hint)]
            for check in failed
        )
        yield table(("refused", "where", "yours", "wanted", "what to change"), rows)
    if passed := [check for check in checks if check.passed]:
        yield table(("passed", "yours"), ((_said(subject(check)), _said(check.actual)) for check in passed))


def _verified(report: Report | None) -> Iterator[str]:
    """Write the checks of a reader, as they were made before the entry left."""
    if report is not None:
        rows = ((f"{check.number}. {check.name}", check.status.value, _said(check.evidence)) for check in report.checks)
        yield table((report.verdict, "", "by the issuer's own keys"), rows)


def _said(text: str) -> str:
    return code(printable(text))
