"""What `issuer submit` says: lines for people as it goes, or one JSON document at its end; and files with that document
and a summary in Markdown, for a CI."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from issuer import files
from issuer.cli.checks import render_checks
from issuer.cli.runs import say_note, show_origin
from issuer.cli.summary import Summed, render_summary
from issuer.cli.terminal import is_read, printable, render_json, say, say_document, shorten, wrap
from issuer.client.batches import MAX_REFUSED
from issuer.client.files import STAND_IN
from issuer.client.proposal import Change, Item, Key
from issuer.client.submit import Outcome, Plan, Signed
from issuer.formats.strict_json import JSON
from issuer.formats.times import show_when
from issuer.wire import Explained, ShownCheck

VERSION = 1
# Of more runs than these, where each value comes from is shown with --verbose alone.
_FEW = 10


class Rows(Struct):
    """What became of each result and each repository, for the document."""

    issuer: str
    results: dict[Key, dict[str, Any]]
    pull_requests: list[dict[str, JSON]]


class Telling:
    """One run of the command. `as_json`: nothing is said until the end."""

    def __init__(self, issuer: str, *, as_json: bool, verbose: bool) -> None:
        self._as_json, self._verbose = as_json, verbose
        self._rows = Rows(issuer, {}, [])
        self._summed = Summed(issuer, fates=self._rows.results)

    def end(self, report: Path | None = None, summary: Path | None = None) -> None:
        """Write the document, and the files that are asked for, with the document and the summary. Raises OSError."""
        rows = self._rows
        document = {
            "version": VERSION,
            "issuer": rows.issuer,
            "results": list(rows.results.values()),
            "pull_requests": rows.pull_requests,
        }
        if self._as_json:
            say_document(document)
        if report is not None:
            files.replace(report, f"{render_json(document)}\n".encode(), mode=None, durable=False, follow=False)
        if summary is not None:
            files.replace(summary, render_summary(self._summed).encode(), mode=None, durable=False, follow=False)

    def _say(self, *lines: str) -> None:
        """Say texts, each on a line of its own: on a terminal broken between words."""
        if not self._as_json:
            for line in lines:
                say("\n".join(wrap(line, rest="  ")) if is_read() else printable(line))

    # -- before -------------------------------------------------------------------------------------------------------

    def plan(self, plan: Plan) -> None:
        """Say of each run where its values come from, and of each result where it goes and in which form."""
        for item in plan.items:
            built, run = item.result.built, item.result.run
            self._rows.results[item.key] = {
                "run": run.name, "task": run.task, "model_repo": item.repo, "path": item.path,
                "content_digest": item.said.content_digest, "claims_digest": item.said.claims_digest,
                "profile": item.profile, "profile_because": item.why, "origins": built.origins, "fate": "not sent",
            }  # fmt: skip
        self._summed.items = plan.items  # with a row each, though nobody may hear the rest
        for item in plan.items if not self._as_json and (self._verbose or len(plan.items) <= _FEW) else ():
            built, run = item.result.built, item.result.run
            say(f"{shorten(run.name)}: {shorten(run.task)}")
            show_origin(built)
            say(f"  content_digest: {item.said.content_digest}\n  claims_digest: {item.said.claims_digest}")
            say_note(built)
        forms = dict.fromkeys((item.repo, item.path, item.profile, item.why) for item in plan.items)
        for repo, path, profile, why in forms:
            count = sum(
                (item.repo, item.path, item.profile, item.why) == (repo, path, profile, why) for item in plan.items
            )
            self._say(f"{repo} {path}: {_count(count, 'result')}, profile {profile} ({why})")

    def change(self, change: Change) -> None:
        """Show how the files of a repository would change."""
        for path, raw in change.after.items():
            for line in () if self._as_json else _diff(change, path, raw.decode()):
                say(printable(line))

    def explained(self, item: Item, explained: Explained) -> None:
        """Say what the issuer would decide of a result."""
        refused = explained.verdict == "refused"
        row = self._rows.results[item.key]
        row["fate"] = "would be refused" if refused else "would be signed"
        self._summed.checks[item.key] = explained.checks
        if refused:
            self._refused(item, str(explained.code), explained.checks)
        for warning in explained.warnings:
            self._say(f"warning: {warning}")

    def rehearsed(self, asked: int, refused: int, lacking: int) -> None:
        """Sum up what was explained; `lacking` were not asked about."""
        self._summed.rehearsed = True
        self._say(f"the issuer would sign {asked - refused} of {asked}: nothing is asked for, nothing is changed")
        if lacking:
            rest = (
                f"not asked about the other {lacking}: refusals count against the identity, after {MAX_REFUSED} it ends"
            )
            self._say(rest)

    # -- after --------------------------------------------------------------------------------------------------------

    def signed(self, signed: Signed, items: Iterable[Item]) -> None:
        """Say which results have tokens, need none, or were refused."""
        for item in items:
            self._fate(item, signed)
        new = [token for key, token in signed.tokens.items() if key not in signed.again]
        if new:
            until = show_when(min(token.expires_at for token in new), int(time.time()))
            who = f"{new[0].integration}/{new[0].identity}"
            self._say(f"signed for {who}: {_count(len(new), 'result')}, until {until}")
        if signed.again:
            self._say(f"signed before, and used again: {_count(len(signed.again), 'result')}")
        for warning in dict.fromkeys(warning for token in new for warning in token.warnings):
            say("\n".join(wrap(warning, "warning: ", "  ")), err=True)

    def _fate(self, item: Item, signed: Signed) -> None:
        row = self._rows.results[item.key]
        if item.key in signed.there:
            row["fate"] = "on main"
            self._say(f"{_name(item)}: on main already, with a good token")
        elif (found := signed.open.get(item.key)) is not None:
            row |= {"fate": "proposed before", "pull_request": found.url}
            self._say(f"{_name(item)}: in an open pull request already: {printable(found.url)}")
        elif (refusal := signed.refusals.get(item.key)) is not None:
            row["fate"] = "refused"
            self._summed.checks[item.key] = refusal.checks
            self._refused(item, str(refusal.code), refusal.checks)
        elif (token := signed.tokens.get(item.key)) is not None:
            row |= {"fate": "signed", "jti": token.jti, "expires_at": token.expires_at}
            row["again"] = item.key in signed.again

    def _refused(self, item: Item, code: str, checks: Iterable[ShownCheck]) -> None:
        failed = [check for check in checks if not check.passed]
        self._rows.results[item.key] |= {"code": code, "checks": failed}
        if not self._as_json:
            say(f"{_name(item)}: refused, {printable(code)}", err=True)
            say(render_checks(failed), err=True)

    def outcome(self, outcome: Outcome) -> None:
        """Say where the results of a repository are now."""
        made, repo = outcome.pull_request, outcome.repo
        self._summed.reports |= outcome.reports
        count = _count(len(outcome.items), "result")
        if made is None:
            self._say(f"{repo}: unchanged, main has it all")
        elif not made.number:
            self._say(f"{printable(made.url)}: {count} written, verified by the issuer's keys")
        else:
            what = "open already" if made.existed else "opened"
            self._say(f"{printable(made.url)}: {what}, {count}, verified by the issuer's keys")
        if outcome.without_proof:
            lacking = f"warning: the log has no proof yet of {_count(outcome.without_proof, 'token')}"
            say(f"{lacking}; `issuer log proof` gets it later", err=True)
        for item in outcome.items:
            row = self._rows.results[item.key]
            row |= {"fate": "on main"} if made is None else {"fate": "proposed", "pull_request": made.url}
        self._rows.pull_requests.append({
            "model_repo": repo, "url": made.url if made else None, "number": made.number if made else None,
            "existed": made.existed if made else None, "results": len(outcome.items),
            "without_proof": outcome.without_proof,
        })  # fmt: skip


def _name(item: Item) -> str:
    run = item.result.run
    return f"{shorten(run.name)}, {shorten(run.task)}" if run.task else shorten(run.name)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _diff(change: Change, path: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff, without line ends; a token that is not there yet is named so."""
    shown = after.replace(STAND_IN, "(its token)")
    names = f"a/{change.repo}/{path}", f"b/{change.repo}/{path}"
    yield from difflib.unified_diff(change.before[path].splitlines(), shown.splitlines(), *names, lineterm="")
