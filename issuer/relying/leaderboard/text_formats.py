"""The texts of a leaderboard for all of its files, and the leaderboard as JSON, CSV and Markdown. Pure.

A stranger's text is made visible here, and escaped when it is written: a spreadsheet computes no cell, and in Markdown
it is code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from issuer.formats.display import code_span, csv_table, markdown_table, visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard.ranking import (
    NOT_NAMED,
    BoardEntry,
    BoardRow,
    BoardScore,
    BoardTable,
    Leaderboard,
    Setting,
    TableSubject,
    Unread,
)
from issuer.results.claims import REVISION, is_repo
from issuer.token.verify_token import MAX_ATTEMPTS
from issuer.verify.report import TIERS, AtFrom, Tier
from issuer.verify.tiers import RANKS

RECEIVED: dict[AtFrom, str] = {
    "clock": "received now, by this party's own clock",
    "receipt": "by a receipt of this party",
    "stated": "as stated by the party that judged them",
    "log": "by the witnesses of the issuer's log",
    "unknown": "their tokens had not expired",
}


def meaning_of(board: Leaderboard) -> str:
    """Explain rows without a token."""
    ranked = RANKS[board.rank_from] <= RANKS["self-reported"]
    rule = "such rows are marked, but ranked as well" if ranked else "such rows are marked, and have no rank"
    return f"Anyone can put a result without a token into a repository: {rule}."


def title_of(subject: TableSubject) -> str:
    """Return a table's title: benchmark, task and metric."""
    parts = (subject.benchmark, f"task {subject.task or 'not said'}", subject.metric or f"metric {NOT_NAMED}")
    return visible(", ".join(parts))


class TableNote(Struct, frozen=True):
    """A sentence of this program, followed by a stranger's text or ""."""

    text: str
    said: str = ""


def notes_of(table: BoardTable, board: Leaderboard) -> Iterator[TableNote]:
    """Yield what a reader must know before comparing two rows of a table."""
    subject = table.subject
    yield TableNote(_direction(table))
    for text, said in (
        ("Slice:", subject.slice),
        ("Only a part of the benchmark:", subject.subset),
        ("Normalized:", subject.normalization),
    ):
        if said:
            yield TableNote(text, visible(said))
    if len(table.settings) > 1:
        rule = "compare them with care. Each row is marked, and also ranked within its setting."
        yield TableNote(f"Rows of {len(table.settings)} settings are in this table: {rule}")
    if len(table.benchmark_revisions) > 1:
        yield TableNote(f"Rows are of {len(table.benchmark_revisions)} commits of the benchmark.")
    if any(row.contradicted for row in table.rows):
        yield TableNote("Verified results of one model commit and setting differ here. Each has a marked row.")
    if board.chosen == "best":
        yield TableNote("For each model and setting, the best result was chosen; the row says from how many.")


def _direction(table: BoardTable) -> str:
    if table.subject.direction == "unknown":
        return "Not ranked: no given definition of the benchmark says which direction of this metric is better."
    kind = "The benchmark's primary metric" if table.primary else "Metric"
    return f"{kind}; {table.subject.direction} is better."


def setting_mark(number: int) -> str:
    """Return the mark of a setting: A to Z, then A1 and so on."""
    letter, round_ = chr(ord("A") + number % 26), number // 26
    return f"{letter}{round_ or ''}"


def setting_text(setting: Setting) -> str:
    """Describe a setting."""
    framework = f"{setting.framework or 'framework not said'} {setting.major}".strip()
    selection = f"selection {setting.selection}" if setting.selection else ""
    complete = f"completeness {setting.completeness}" if setting.completeness else ""
    return visible(", ".join(filter(None, (framework, selection, complete))))


def score_text(score: BoardScore) -> str:
    """Return a metric, its slice in brackets, and its value."""
    of_slice = f" ({score.slice})" if score.slice else ""
    return visible(f"{score.metric or NOT_NAMED}{of_slice} {number_text(score.value)}")


def framework_text(entry: BoardEntry) -> str:
    """Return the framework and version of a result."""
    return visible(f"{entry.framework} {entry.framework_version}".strip())


def attempt_text(entry: BoardEntry) -> str:
    """Return the attempt that the token states, or ""; 64 can mean more."""
    if entry.attempt is None:
        return ""
    return f"{entry.attempt}{' or more' if entry.attempt == MAX_ATTEMPTS else ''}"


def time_text(moment: int | None) -> str:
    """Return Unix seconds as text, "" for None."""
    return "" if moment is None else show_time(moment)


def commit_url(entry: BoardEntry, hub: str) -> str:
    """Return the URL of the model's commit, or "" if the file does not have a full commit."""
    known = is_repo(entry.repo) and REVISION.fullmatch(entry.model_revision)
    return f"{hub}/{entry.repo}/commit/{entry.model_revision}" if known else ""


def place_of(entry: BoardEntry) -> str:
    """Return an entry's file and number."""
    return visible(f"{entry.file}, entry {entry.pointer.removeprefix('/')}")


def counts_of(board: Leaderboard) -> str:
    """Return the number of entries of each tier."""
    return ", ".join(f"{board.by_tier[tier]:,} {tier}" for tier in TIERS if board.by_tier.get(tier)) or "no entry"


def received_of(board: Leaderboard) -> str:
    """Return the sources of the time of receipt of the verified entries (check 5)."""
    known = [f"{board.by_received[how]:,} {words}" for how, words in RECEIVED.items() if board.by_received.get(how)]
    return "; ".join(known) or "no entry is verified"


def as_json(board: Leaderboard) -> bytes:
    """Return one JSON document with the members of `ranking.Board`."""
    return msgspec.json.format(msgspec.json.encode(board), indent=1) + b"\n"


_COLUMNS = (
    "listed", "benchmark", "benchmark_revision", "task", "metric", "slice", "benchmark_subset", "normalization",
    "direction", "rank", "setting", "rank_in_setting", "model", "model_revision", "value", "tier", "reason",
    "framework", "framework_version", "selection", "completeness", "issuer", "integration", "attempt",
    "attempts_since", "chosen_from", "contradicted", "when", "received", "freshness", "run_url", "commit_url", "file",
    "entry", "line", "trust", "judged_at",
)  # fmt: skip


def as_csv(board: Leaderboard, hub: str) -> str:
    """Return a row for each row of a table, each refuted number and each unreadable file; the column `listed` says
    which. Each row has the digest of the trust file and the time of the judgement."""
    basis = {"trust": board.basis.trust, "judged_at": show_time(board.basis.judged_at)}
    rows = ([visible(cells.get(name, basis.get(name, ""))) for name in _COLUMNS] for cells in _cells(board, hub))
    return csv_table([_COLUMNS, *rows])


def _cells(board: Leaderboard, hub: str) -> Iterator[dict[str, str]]:
    for table in board.tables:
        for row in table.rows:
            yield {"listed": "table", **_entry_cells(row.entry, hub), **_row_cells(table, row)}
    for entry in board.refuted:
        for score in entry.scores:
            number = {"metric": score.metric, "slice": score.slice, "value": number_text(score.value)}
            yield {"listed": "refuted", **_entry_cells(entry, hub), **number, "selection": score.selection}
    for fault in board.unread:
        reason = f"{fault.code}: {fault.reason}"
        yield {"listed": "unread", "file": fault.file, "line": str(fault.line or ""), "reason": reason}


def _row_cells(table: BoardTable, row: BoardRow) -> dict[str, str]:
    subject = table.subject
    return {
        "metric": subject.metric, "slice": subject.slice, "direction": subject.direction,
        "rank": str(row.rank or ""), "rank_in_setting": str(row.rank_in_setting or ""),
        "setting": setting_mark(row.setting), "selection": table.settings[row.setting].selection,
        "value": number_text(row.value), "chosen_from": str(row.chosen_from),
        "contradicted": "yes" if row.contradicted else "no",
    }  # fmt: skip


def _entry_cells(entry: BoardEntry, hub: str) -> dict[str, str]:
    return {
        "benchmark": entry.benchmark, "benchmark_revision": entry.benchmark_revision, "task": entry.task,
        "benchmark_subset": entry.subset, "normalization": entry.normalization, "model": entry.repo,
        "model_revision": entry.model_revision, "tier": entry.tier, "reason": entry.tier_reason,
        "framework": entry.framework, "framework_version": entry.framework_version, "completeness": entry.completeness,
        "issuer": entry.issuer, "integration": entry.integration, "attempt": str(entry.attempt or ""),
        "attempts_since": time_text(entry.attempts_since), "when": time_text(entry.when),
        "received": entry.received, "freshness": entry.freshness, "run_url": entry.run_url,
        "commit_url": commit_url(entry, hub), "file": entry.file, "entry": entry.pointer.removeprefix("/"),
    }  # fmt: skip


_SIGNS: dict[Tier, str] = {
    "reproduced": "★", "logged": "■", "verified": "●", "signed": "▲", "self-reported": "○", "undecided": "◇",
    "refuted": "✕",
}  # fmt: skip


def as_markdown(board: Leaderboard, hub: str) -> str:
    """Return the tables, then refuted entries and unreadable files."""
    parts = ["# Leaderboard", _basis(board), meaning_of(board)]
    for table in board.tables:
        notes = (f"{note.text} {code_span(note.said)}".rstrip() for note in notes_of(table, board))
        parts += [f"## {code_span(title_of(table.subject))}", *notes]
        parts += [_settings(table), markdown_table(_HEAD, (_row(row, hub) for row in table.rows))]
    if board.refuted:
        parts += ["## Refuted", REFUTED_RULE, markdown_table(REFUTED_HEAD, map(_refuted, board.refuted))]
    if board.unread:
        rows = ([code_span(visible(cell)) for cell in unread_cells(fault)] for fault in board.unread)
        parts += ["## Not read", markdown_table(("place", "reason"), rows)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _basis(board: Leaderboard) -> str:
    basis = board.basis
    lines = [
        f"- Judged at {show_time(basis.judged_at)} as {code_span(visible(basis.audience))}",
        f"- Trust file: {code_span(basis.trust)}",
        f"- Entries: {counts_of(board)}",
        f"- Time of receipt of the verified entries (check 5): {received_of(board)}",
        *(f"- Unavailable: {code_span(visible(absent))}" for absent in basis.absent),
    ]
    return "\n".join(lines)


def _settings(table: BoardTable) -> str:
    if len(table.settings) == 1:
        return f"All rows: {code_span(setting_text(table.settings[0]))}"
    marks = enumerate(table.settings)
    return "\n".join(f"- {setting_mark(number)}: {code_span(setting_text(one))}" for number, one in marks)


_HEAD = (
    "rank", "model", "value", "tier", "setting", "in setting", "framework", "issuer", "attempt", "chosen from", "when",
    "run", "commit",
)  # fmt: skip


def _row(row: BoardRow, hub: str) -> Iterable[str]:
    entry = row.entry
    contradicted = " (contradicted)" if row.contradicted else ""
    return (
        str(row.rank or "-"), code_span(visible(entry.repo)), number_text(row.value) + contradicted,
        f"{_SIGNS[entry.tier]} {entry.tier}", setting_mark(row.setting), str(row.rank_in_setting or "-"),
        code_span(framework_text(entry)), code_span(visible(entry.issuer)), attempt_text(entry),
        str(row.chosen_from),
        time_text(entry.when), _link("run", entry.run_url), _link("commit", commit_url(entry, hub)),
    )  # fmt: skip


def _link(text: str, url: str) -> str:
    """Return a link. `url` has been checked: it consists of names and numbers."""
    return f"[{text}](<{url}>)" if url else ""


REFUTED_HEAD = ("model", "benchmark", "task", "values", "place", "reason")
REFUTED_RULE = "Anyone can put such an entry into a pull request: it says nothing about the model's other results."


def _refuted(entry: BoardEntry) -> Iterable[str]:
    return (code_span(visible(cell)) for cell in refuted_cells(entry))


def refuted_cells(entry: BoardEntry) -> tuple[str, ...]:
    """Return the cells of a refuted entry, under REFUTED_HEAD."""
    values = ", ".join(map(score_text, entry.scores))
    return entry.repo, entry.benchmark, entry.task, values, place_of(entry), entry.tier_reason


def unread_cells(fault: Unread) -> tuple[str, str]:
    """Return the place of an unreadable file, and the reason."""
    place = f"{fault.file}:{fault.line}:{fault.column}" if fault.line else fault.file
    return place, f"{fault.code}: {fault.reason}"
