"""The size of a leaderboard: its input bounds it, so small hostile files make no huge page. Pure.

Rows with a rank are always listed. Other rows, refuted entries and unreadable files are listed as long as the four
files together have at most TIMES times the bytes of the input and FREE_BYTES; the others are counted. Ranks do not
change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from issuer.formats.display import visible
from issuer.relying.leaderboard.ranking import BoardEntry, BoardTable, Leaderboard, Unread

TIMES = 3
FREE_BYTES = 2 * 1024 * 1024
# The bytes of the four files together: for one byte of an item's JSON, for each score of a refuted entry, and for a
# table. Each is a little more than measured.
_COPIES = 5
_SCORE_BYTES = 512
_TABLE_BYTES = 4096
# What `html.escape` adds to a sign; in JSON a quotation mark has a backslash.
_ESCAPED = {"&": 4, "<": 3, ">": 3, "'": 5, '\\"': 4}
# One file may give hundreds of rows, which would repeat its long texts.
MAX_TEXT = 256

_Item = TypeVar("_Item", BoardEntry, Unread)


def bounded(text: str) -> str:
    """Return a text; of a long one, its beginning and its digest, so that different texts remain different."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT // 2]}… sha256:{sha256(text.encode()).hexdigest()}"


def fit(board: Leaderboard, input_bytes: int) -> Leaderboard:
    """Return the leaderboard without what is too much for an input of so many bytes."""
    room = TIMES * input_bytes + FREE_BYTES
    refuted, unread = tuple(_affordable(board.refuted, room // 4)), tuple(_affordable(board.unread, room // 4))
    tables = tuple(_affordable_rows(board.tables, room - sum(map(_cost, (*refuted, *unread)))))
    left_out = {
        "rows": board.left_out.get("rows", 0) + _count_rows(board.tables) - _count_rows(tables),
        "refuted": len(board.refuted) - len(refuted), "unread": len(board.unread) - len(unread),
    }  # fmt: skip
    counts = {name: count for name, count in left_out.items() if count}
    return replace(board, tables=tables, refuted=refuted, unread=unread, left_out=counts)


def _cost(item: object) -> int:
    text = visible(msgspec.json.encode(item).decode())
    escaped = sum(more * text.count(sign) for sign, more in _ESCAPED.items())
    scores = _SCORE_BYTES * len(item.scores) if isinstance(item, BoardEntry) else 0
    return _COPIES * (len(text.encode()) + escaped) + scores


def _affordable(items: Sequence[_Item], room: int) -> Iterator[_Item]:
    for item in items:
        room -= _cost(item)
        if room < 0:
            return
        yield item


def _affordable_rows(tables: Sequence[BoardTable], room: int) -> Iterator[BoardTable]:
    """Yield the tables with all ranked rows, and the others as long as there is room: the strongest first, then the
    first of each repository, then the second of each, and so on."""
    order: list[tuple[bool, int, int, int, int]] = []
    seen = Counter[tuple[str, int]]()
    for number, table in enumerate(tables):
        for at, row in enumerate(table.rows):
            kind = row.entry.repo, row.entry.strength
            seen[kind] += row.rank is None
            order.append((row.rank is None, -row.entry.strength, seen[kind], number, at))
    order.sort()
    kept: list[list[int]] = [[] for _ in tables]
    paid: set[tuple[int, int]] = set()
    for is_free, _, _, number, at in order:
        table, row = tables[number], tables[number].rows[at]
        if not kept[number]:
            room -= _TABLE_BYTES + _cost(table.subject)
        if (number, row.setting) not in paid:
            room -= _cost(table.settings[row.setting])
            paid.add((number, row.setting))
        room -= _cost(row)
        if is_free and room < 0:
            break
        kept[number].append(at)
    for table, rows in zip(tables, kept, strict=True):
        if rows:
            yield table if len(rows) == len(table.rows) else _with_rows(table, rows)


def _with_rows(table: BoardTable, kept: Sequence[int]) -> BoardTable:
    rows = [table.rows[at] for at in sorted(kept)]
    numbers = {old: new for new, old in enumerate(sorted({row.setting for row in rows}))}
    settings = tuple(table.settings[number] for number in numbers)
    return replace(table, settings=settings, rows=tuple(replace(row, setting=numbers[row.setting]) for row in rows))


def _count_rows(tables: Sequence[BoardTable]) -> int:
    return sum(len(table.rows) for table in tables)
