"""The texts of a leaderboard for all of its files, and the leaderboard as JSON, CSV and Markdown. Pure.

A stranger's text is made visible here, and escaped when it is written: a spreadsheet computes no cell, and in Markdown
it is code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import msgspec
from msgspec import Struct

from issuer.formats.display import code_span, csv_table, markdown_table, visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard.ranking import (
    NOT_NAMED,
    SMALL_SAMPLE,
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

NOT_SAID = "not said"
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


def titles_of(board: Leaderboard) -> list[str]:
    """Return the titles of the tables, in their order. No two are equal: where the subjects look the same, the commit
    of the benchmark tells tables apart, and then their number."""
    titles = [_title_of(table.subject) for table in board.tables]
    commits = [f"benchmark commit {visible(table.benchmark_revisions[0])[:12] or NOT_SAID}" for table in board.tables]
    numbers = [f"table {number}" for number, _ in enumerate(board.tables, 1)]
    for more in chain([commits], repeat(numbers)):
        count = Counter(titles)
        if len(count) == len(titles):
            break
        titles = [f"{one}, {other}" if count[one] > 1 else one for one, other in zip(titles, more, strict=True)]
    return titles


def _title_of(subject: TableSubject) -> str:
    parts = (
        ("", subject.benchmark), ("task ", subject.task or NOT_SAID), ("", subject.metric or f"metric {NOT_NAMED}"),
        ("slice ", subject.slice), ("only ", subject.subset), ("normalized ", subject.normalization),
        ("value type ", subject.value_type),
    )  # fmt: skip
    return " ".join(visible(", ".join(f"{name}{said}" for name, said in parts if said)).split())


class TableNote(Struct, frozen=True):
    """A sentence of this program, followed by a stranger's text or ""."""

    text: str
    said: str = ""


def notes_of(table: BoardTable, board: Leaderboard) -> Iterator[TableNote]:
    """Yield what a reader must know before comparing two rows of a table."""
    yield TableNote(_direction(table))
    if table.other_slice:
        rule = "with this slice" if table.subject.slice else "without a slice"
        yield TableNote(f"The benchmark's definition does not name this metric {rule}.")
    if any(is_small(row) for row in table.rows):
        rule = "chance alone can change a share by 10 points"
        yield TableNote(f"A number of samples below {SMALL_SAMPLE} is marked as few: {rule}.")
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
    samples = f"fewer than {SMALL_SAMPLE} samples" if setting.small else ""
    return visible(", ".join(filter(None, (framework, selection, complete, samples))))


def is_small(row: BoardRow) -> bool:
    """Say whether a row's result is of few samples."""
    return row.samples is not None and row.samples < SMALL_SAMPLE


def samples_text(row: BoardRow) -> str:
    """Return the number of samples, "" if the file does not say it; the mark is for few."""
    return "" if row.samples is None else f"{row.samples:,}{' (few)' if is_small(row) else ''}"


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


def left_out_of(board: Leaderboard) -> str:
    """Say how much is not listed, "" if all is."""
    counts = ", ".join(f"{count:,} {_LEFT_OUT[name]}" for name, count in board.left_out.items())
    return f"{counts}: too much for their files" if counts else ""


_LEFT_OUT = {"rows": "rows", "refuted": "refuted entries", "unread": "unreadable files or definitions"}


def as_json(board: Leaderboard) -> bytes:
    """Return one JSON document with the members of `ranking.Leaderboard`, on one line."""
    return msgspec.json.encode(board) + b"\n"


_COLUMNS = (
    "listed", "benchmark", "benchmark_revision", "task", "metric", "slice", "benchmark_subset", "normalization",
    "value_type", "definition", "direction", "rank", "setting", "rank_in_setting", "model", "model_revision", "value",
    "samples", "few_samples", "tier", "reason",
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
            yield {"listed": "refuted", **_entry_cells(entry, hub), **_score_cells(score)}
    for fault in board.unread:
        reason = f"{fault.code}: {fault.reason}"
        yield {"listed": "unread", "file": fault.file, "line": str(fault.line or ""), "reason": reason}


def _row_cells(table: BoardTable, row: BoardRow) -> dict[str, str]:
    subject = table.subject
    return {
        "benchmark": subject.benchmark, "task": subject.task, "metric": subject.metric, "slice": subject.slice,
        "benchmark_subset": subject.subset, "normalization": subject.normalization, "value_type": subject.value_type,
        "definition": subject.definition, "direction": subject.direction, "samples": _whole(row.samples),
        "few_samples": "yes" if is_small(row) else "no",
        "rank": str(row.rank or ""), "rank_in_setting": str(row.rank_in_setting or ""),
        "setting": setting_mark(row.setting), "selection": table.settings[row.setting].selection,
        "value": number_text(row.value), "chosen_from": str(row.chosen_from),
        "contradicted": "yes" if row.contradicted else "no",
    }  # fmt: skip


def _score_cells(score: BoardScore) -> dict[str, str]:
    return {
        "metric": score.metric, "slice": score.slice, "value": number_text(score.value), "selection": score.selection,
        "value_type": score.value_type, "samples": _whole(score.samples),
    }  # fmt: skip


def _whole(number: int | None) -> str:
    return "" if number is None else str(number)


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
    for title, table in zip(titles_of(board), board.tables, strict=True):
        notes = (f"{note.text} {code_span(note.said)}".rstrip() for note in notes_of(table, board))
        parts += [f"## {code_span(title)}", *notes]
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
        *(f"- Not listed: {said}" for said in filter(None, [left_out_of(board)])),
    ]
    return "\n".join(lines)


def _settings(table: BoardTable) -> str:
    if len(table.settings) == 1:
        return f"All rows: {code_span(setting_text(table.settings[0]))}"
    marks = enumerate(table.settings)
    return "\n".join(f"- {setting_mark(number)}: {code_span(setting_text(one))}" for number, one in marks)


_HEAD = (
    "rank", "model", "value", "samples", "tier", "setting", "in setting", "framework", "issuer", "attempt",
    "chosen from", "when", "run", "commit",
)  # fmt: skip


def _row(row: BoardRow, hub: str) -> Iterable[str]:
    entry = row.entry
    contradicted = " (contradicted)" if row.contradicted else ""
    return (
        str(row.rank or "-"), code_span(visible(entry.repo)), number_text(row.value) + contradicted,
        samples_text(row), f"{_SIGNS[entry.tier]} {entry.tier}", setting_mark(row.setting),
        str(row.rank_in_setting or "-"), code_span(framework_text(entry)), code_span(visible(entry.issuer)),
        attempt_text(entry), str(row.chosen_from),
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
