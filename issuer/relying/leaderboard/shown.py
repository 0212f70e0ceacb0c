"""The words in which a leaderboard's files say things to people, the same in each of them. Pure.

What is a stranger's is made visible here, and escaped where it is written: in Markdown and in HTML.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from issuer.formats.show import visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard.listed import Listed, Score, commit_path
from issuer.relying.leaderboard.ranking import NOT_NAMED, Board, Setting, Subject, Table
from issuer.verify.report import TIERS, AtFrom
from issuer.verify.tiers import RANKS
from issuer.verify_token import MAX_ATTEMPTS

RECEIVED: dict[AtFrom, str] = {
    "clock": "received now, by this party's own clock",
    "receipt": "by a receipt of this party",
    "stated": "as whoever judged them stated",
    "log": "by the witnesses of the issuer's log",
    "unknown": "their tokens had not ended",
}


def meaning_of(board: Board) -> str:
    """Say what rows are that nobody vouches for."""
    ranked = RANKS[board.rank_from] <= RANKS["self-reported"]
    rule = "such rows are marked, and ranked all the same" if ranked else "such rows are marked, and have no rank"
    return f"Anybody may put a result without a token into a repository: {rule}."


def title_of(subject: Subject) -> str:
    """Return what a table is of: benchmark, task and metric."""
    parts = (subject.benchmark, f"task {subject.task or 'not said'}", subject.metric or f"metric {NOT_NAMED}")
    return visible(", ".join(parts))


class Note(Struct, frozen=True):
    """A sentence of ours, and the text of a stranger that it ends with, or ""."""

    text: str
    said: str = ""


def notes_of(table: Table, board: Board) -> Iterator[Note]:
    """Say what a reader has to know before comparing two rows of a table."""
    subject = table.subject
    yield Note(_direction(table))
    for text, said in (
        ("Slice:", subject.slice),
        ("Only a part of the benchmark:", subject.subset),
        ("Normalized:", subject.normalization),
    ):
        if said:
            yield Note(text, visible(said))
    if len(table.settings) > 1:
        rule = "which compare with care: each is marked, and ranked once more within its setting."
        yield Note(f"Rows of {len(table.settings)} settings are in this table, {rule}")
    if len(table.benchmark_revisions) > 1:
        yield Note(f"Rows are of {len(table.benchmark_revisions)} commits of the benchmark.")
    if any(row.contradicted for row in table.rows):
        yield Note("Verified results of one model commit and setting differ here: each has a row, marked.")
    if board.chosen == "best":
        yield Note("Of each model and setting the best result was chosen, from as many as its row says.")


def _direction(table: Table) -> str:
    if table.subject.direction == "unknown":
        return "Not ranked: no definition of the benchmark at hand says which way this metric is better."
    kind = "The benchmark's primary metric" if table.primary else "Metric"
    return f"{kind}; {table.subject.direction} is better."


def setting_mark(number: int) -> str:
    """Return the mark of a setting: A to Z, then A1 and so on."""
    letter, round_ = chr(ord("A") + number % 26), number // 26
    return f"{letter}{round_ or ''}"


def setting_text(setting: Setting) -> str:
    """Say what a setting is."""
    framework = f"{setting.framework or 'framework not said'} {setting.major}".strip()
    selection = f"selection {setting.selection}" if setting.selection else ""
    complete = f"completeness {setting.completeness}" if setting.completeness else ""
    return visible(", ".join(filter(None, (framework, selection, complete))))


def score_text(score: Score) -> str:
    """Say a metric, its slice in brackets, and its value."""
    of_slice = f" ({score.slice})" if score.slice else ""
    return visible(f"{score.metric or NOT_NAMED}{of_slice} {number_text(score.value)}")


def framework_text(entry: Listed) -> str:
    """Say by which framework and version a result was made."""
    return visible(f"{entry.framework} {entry.framework_version}".strip())


def attempt_text(entry: Listed) -> str:
    """Say which attempt a result was, where its token does: 64 stands for more, too."""
    if entry.attempt is None:
        return ""
    return f"{entry.attempt}{' or more' if entry.attempt == MAX_ATTEMPTS else ''}"


def time_text(moment: int | None) -> str:
    """Show Unix seconds, "" for None."""
    return "" if moment is None else show_time(moment)


def commit_url(entry: Listed, hub: str) -> str:
    """Return where the model's commit can be looked at, or ""."""
    path = commit_path(entry)
    return f"{hub}/{path}" if path else ""


def place_of(entry: Listed) -> str:
    """Say where an entry stands."""
    return visible(f"{entry.file}, entry {entry.pointer.removeprefix('/')}")


def counts_of(board: Board) -> str:
    """Say how many entries there are of each tier."""
    return ", ".join(f"{board.by_tier[tier]:,} {tier}" for tier in TIERS if board.by_tier.get(tier)) or "no entry"


def received_of(board: Board) -> str:
    """Say how it is known when the verified entries were received (check 5)."""
    known = [f"{board.by_received[how]:,} {words}" for how, words in RECEIVED.items() if board.by_received.get(how)]
    return "; ".join(known) or "nothing is verified"
