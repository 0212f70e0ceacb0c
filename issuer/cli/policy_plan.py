"""`issuer policy plan`: which recorded decisions would change under other policies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from issuer.audit_reader import read_lines
from issuer.cli.exits import Exit
from issuer.cli.findings import format_finding
from issuer.cli.policy_explain import NOBODY, own_url
from issuer.cli.terminal import printable, say, say_document
from issuer.errors import Finding
from issuer.formats.times import show_time
from issuer.policy.authoring.load import load_for_plan, load_policies
from issuer.policy.authoring.plan import Group, Plan, make_plan
from issuer.policy.authoring.plan_signals import SignalGroup

_BECOMES = {"refused": "would be refused", "granted": "would be granted", "untold": "cannot tell"}


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--audit", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The audit file.")
@own_url
@click.option("--development", is_flag=True, help="Allow providers on plain http, at loopback addresses.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(old: Path, new: Path, audit: Path, url: str | None, development: bool, as_json: bool) -> None:
    """Show which decisions of an audit FILE would change if the policies in OLD were those in NEW.

    Each is judged again by both, as of its own time. Where NEW asks for what the audit does not hold, the answer is
    "cannot tell". Times, audiences and signatures of identity tokens are not judged again.

    Where tests of NEW fail, the plan is made all the same, and they are listed; the exit code is 1 then.
    """
    before = load_policies(old, url or NOBODY, development=development)
    after, failed = load_for_plan(new, url or NOBODY, development=development)
    made = make_plan(before, after, read_lines(audit))
    if as_json:
        tests = [{"place": str(finding.place), "detail": finding.detail} for finding in failed]
        say_document({"version": 1, **msgspec.to_builtins(made), "failed_tests": tests})
    else:
        say("\n".join([render_plan(made), *_render_failed(new, failed)]))
    if made.torn:
        say(f"warning: {made.torn} of its lines are no events, or half of one: skipped", err=True)
    sys.exit(Exit.NO if failed else Exit.GOOD)


def _render_failed(new: Path, failed: Sequence[Finding]) -> list[str]:
    if not failed:
        return []
    tests = "test fails" if len(failed) == 1 else "tests fail"
    return [f"no issuer takes {printable(str(new))} as it is: {len(failed)} {tests}", *map(format_finding, failed)]


def render_plan(made: Plan) -> str:
    """Say what would change, a line for each group and for each of its examples."""
    lines = [
        f"{made.decisions} decisions: {made.unchanged} unchanged, {made.refused} would be refused, "
        f"{made.granted} would be granted, {made.untold} cannot tell"
    ]
    if made.not_decided:
        lines.append(f"{made.not_decided} more were refused by no policy (limits, replays, bodies): not judged")
    if made.otherwise:
        lines.append(f"{made.otherwise} were decided otherwise than OLD decides: they were made under other policies")
    lines += [line for group in made.groups for line in _render_group(group)]
    return "\n".join([*lines, *(line for group in made.signals for line in _render_signals(group))])


def _render_group(group: Group) -> list[str]:
    whose = group.integration or "no integration"
    why = f"the audit does not hold {group.why}" if group.kind == "untold" else group.why
    lines = [f"{_BECOMES[group.kind]}: {group.count} of {whose}: {why}"]
    for example in group.examples:
        rule = f": {example.detail}; rule: {example.rule}" if example.rule else ""
        lines.append(f"  {show_time(example.time)} {example.request_id}{rule}")
    return [printable(line) for line in lines]


def _render_signals(group: SignalGroup) -> list[str]:
    lines = [f"{_signals_becomes(group)}: {group.count} of {group.integration}: {group.signal}{_signals_why(group)}"]
    for example in group.examples:
        counted = f": counted {example.counted}; rule: {example.rule}" if example.rule else ""
        lines.append(f"  {show_time(example.time)} {example.request_id}{counted}")
    return [printable(line) for line in lines]


def _signals_becomes(group: SignalGroup) -> str:
    if group.untold:
        return "cannot tell what signals"
    if group.before is None:
        return "would signal"
    return "would signal no longer" if group.after is None else "would have another consequence"


def _signals_why(group: SignalGroup) -> str:
    if group.untold:
        return f", by another {group.untold} than was counted by"
    if group.before is None or group.after is None:
        return f" ({group.before or group.after})"
    return f" ({group.after}, and not {group.before})"
