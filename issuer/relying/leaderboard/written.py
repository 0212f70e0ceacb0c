"""A leaderboard as JSON, CSV and Markdown. Pure.

In none of them does a stranger's text mean anything: a spreadsheet computes no cell, and in Markdown it stands in code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from issuer.formats import markdown, spreadsheet
from issuer.formats.markdown import code
from issuer.formats.show import visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard import shown
from issuer.relying.leaderboard.listed import Listed
from issuer.relying.leaderboard.ranking import Board, Row, Table
from issuer.verify.report import Tier


def as_json(board: Board) -> bytes:
    """Write one JSON document; its members are those of `ranking.Board`."""
    return msgspec.json.format(msgspec.json.encode(board), indent=1) + b"\n"


# -- CSV ---------------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "listed", "benchmark", "benchmark_revision", "task", "metric", "slice", "benchmark_subset", "normalization",
    "direction", "rank", "setting", "rank_in_setting", "model", "model_revision", "value", "tier", "reason",
    "framework", "framework_version", "selection", "completeness", "issuer", "integration", "attempt",
    "attempts_since", "chosen_from", "contradicted", "when", "received", "freshness", "run_url", "commit_url", "file",
    "entry", "line", "trust", "judged_at",
)  # fmt: skip


def as_csv(board: Board, hub: str) -> str:
    """Write a row for each line of a table, each refuted number and each thing that could not be read; `listed` says
    which of them it is. Each says the trust file and the time that it was judged by."""
    basis = {"trust": board.basis.trust, "judged_at": show_time(board.basis.judged_at)}
    rows = ([visible(cells.get(name, basis.get(name, ""))) for name in _COLUMNS] for cells in _cells(board, hub))
    return spreadsheet.table([_COLUMNS, *rows])


def _cells(board: Board, hub: str) -> Iterator[dict[str, str]]:
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


def _row_cells(table: Table, row: Row) -> dict[str, str]:
    subject = table.subject
    return {
        "metric": subject.metric, "slice": subject.slice, "direction": subject.direction,
        "rank": str(row.rank or ""), "rank_in_setting": str(row.rank_in_setting or ""),
        "setting": shown.setting_mark(row.setting), "selection": table.settings[row.setting].selection,
        "value": number_text(row.value), "chosen_from": str(row.chosen_from),
        "contradicted": "yes" if row.contradicted else "no",
    }  # fmt: skip


def _entry_cells(entry: Listed, hub: str) -> dict[str, str]:
    return {
        "benchmark": entry.benchmark, "benchmark_revision": entry.benchmark_revision, "task": entry.task,
        "benchmark_subset": entry.subset, "normalization": entry.normalization, "model": entry.repo,
        "model_revision": entry.model_revision, "tier": entry.tier, "reason": entry.tier_reason,
        "framework": entry.framework, "framework_version": entry.framework_version, "completeness": entry.completeness,
        "issuer": entry.issuer, "integration": entry.integration, "attempt": str(entry.attempt or ""),
        "attempts_since": shown.time_text(entry.attempts_since), "when": shown.time_text(entry.when),
        "received": entry.received, "freshness": entry.freshness, "run_url": entry.run_url,
        "commit_url": shown.commit_url(entry, hub), "file": entry.file, "entry": entry.pointer.removeprefix("/"),
    }  # fmt: skip


# -- Markdown ----------------------------------------------------------------------------------------------------------

_SIGNS: dict[Tier, str] = {
    "reproduced": "★", "logged": "■", "verified": "●", "signed": "▲", "self-reported": "○", "undecided": "◇",
    "refuted": "✕",
}  # fmt: skip


def as_markdown(board: Board, hub: str) -> str:
    """Write the tables, and below them what is refuted and what could not be read."""
    parts = ["# Leaderboard", _basis(board), shown.meaning_of(board)]
    for table in board.tables:
        parts += [f"## {code(shown.title_of(table.subject))}", *map(_note, shown.notes_of(table, board))]
        parts += [_settings(table), _table(table, hub)]
    if board.refuted:
        parts += [
            "## Refuted",
            "Anybody may put such an entry into a pull request: it says nothing of the model's others.",
        ]
        parts.append(markdown.table(_REFUTED, (_refuted(entry) for entry in board.refuted)))
    if board.unread:
        parts += ["## Not read", markdown.table(("place", "reason"), _unread(board))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _basis(board: Board) -> str:
    basis = board.basis
    lines = [
        f"- Judged at {show_time(basis.judged_at)} as {code(visible(basis.audience))}",
        f"- By the trust file {code(basis.trust)}",
        f"- Entries: {shown.counts_of(board)}",
        f"- When the verified ones were received (check 5): {shown.received_of(board)}",
        *(f"- Not at hand: {code(visible(absent))}" for absent in basis.absent),
    ]
    return "\n".join(lines)


def _note(note: shown.Note) -> str:
    return f"{note.text} {code(note.said)}".rstrip()


def _settings(table: Table) -> str:
    if len(table.settings) == 1:
        return f"All rows: {code(shown.setting_text(table.settings[0]))}"
    marks = enumerate(table.settings)
    return "\n".join(f"- {shown.setting_mark(number)}: {code(shown.setting_text(one))}" for number, one in marks)


_HEAD = (
    "rank", "model", "value", "tier", "setting", "in setting", "framework", "issuer", "attempt", "chosen from", "when",
    "run", "commit",
)  # fmt: skip


def _table(table: Table, hub: str) -> str:
    return markdown.table(_HEAD, (_row(row, hub) for row in table.rows))


def _row(row: Row, hub: str) -> Iterable[str]:
    entry = row.entry
    contradicted = " (contradicted)" if row.contradicted else ""
    return (
        str(row.rank or "-"), code(visible(entry.repo)), number_text(row.value) + contradicted,
        f"{_SIGNS[entry.tier]} {entry.tier}", shown.setting_mark(row.setting), str(row.rank_in_setting or "-"),
        code(shown.framework_text(entry)), code(visible(entry.issuer)), shown.attempt_text(entry), str(row.chosen_from),
        shown.time_text(entry.when), _link("run", entry.run_url), _link("commit", shown.commit_url(entry, hub)),
    )  # fmt: skip


def _link(text: str, url: str) -> str:
    """Write a link; `url` was made of names and numbers by whoever found it good."""
    return f"[{text}](<{url}>)" if url else ""


_REFUTED = ("model", "benchmark", "task", "values", "place", "reason")


def _refuted(entry: Listed) -> Iterable[str]:
    values = ", ".join(map(shown.score_text, entry.scores))
    cells = (entry.repo, entry.benchmark, entry.task, values, shown.place_of(entry), entry.tier_reason)
    return (code(visible(cell)) for cell in cells)


def _unread(board: Board) -> Iterator[Iterable[str]]:
    for fault in board.unread:
        place = f"{fault.file}:{fault.line}:{fault.column}" if fault.line else fault.file
        yield code(visible(place)), code(visible(f"{fault.code}: {fault.reason}"))
