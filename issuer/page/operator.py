"""The operator's view: one read-only page about the state of the issuer, served only at the metrics' address. Pure.

It is complete without its script, which only shows times in the reader's zone. Each chart has its numbers beside it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template

from msgspec import Struct

from issuer.formats.display import visible
from issuer.formats.times import show_time

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; "
    "trusted-types 'none'; require-trusted-types-for 'script'"
)
HEADERS = (
    ("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)  # fmt: skip
# After so many seconds the page reloads itself.
AGAIN_S = 30
# The most rows of a table. A last row sums up or counts the rest.
MOST_ROWS = 50
_SORTS = (("issued", "Signed"), ("no", "Refused"), ("undecided", "Not decided"))
_WIDTH, _HEIGHT = 600, 60


class Condition(Struct, frozen=True):
    """The state of one part of the issuer, with a sentence about it."""

    name: str
    is_well: bool
    says: str


class AnswerCounts(Struct, frozen=True):
    """The number of answers in equal periods, oldest first, by sort of answer. The last period has not ended."""

    turn: str
    begins: int
    turn_s: int
    counts: dict[str, list[int]]


class NumbersLine(Struct, frozen=True):
    """A row of a table: an integration, code or provider with its numbers."""

    name: str
    numbers: tuple[int, ...]


class KeyView(Struct, frozen=True):
    """A published key: its state, and since when, in Unix seconds. `moves_from` is the time from which it may change to
    the next state: 0 for now, None if unknown."""

    kid: str
    state: str
    since: int
    moves_from: int | None


class Stand(Struct, frozen=True):
    """A measure against an identity, and its end in Unix seconds (0: no end)."""

    name: str
    says: str
    until: int


class Used(Struct, frozen=True):
    """The used part of a limit."""

    name: str
    used: int
    limit: int


class StandingsView(Struct, frozen=True):
    """The measures against identities, most severe first, and the most used limits. `left_out` is the number of
    identities that were not looked up in the store. `unknown` is the reason if the store could not answer, else ""."""

    unknown: str
    stands: Sequence[Stand] = ()
    used: Sequence[Used] = ()
    left_out: int = 0


class Unneeded(Struct, frozen=True):
    """An integration's policy: `never` has the places of entries that matched nothing, `entries` the number of all."""

    name: str
    never: Sequence[str]
    entries: int


class Unmatched(Struct, frozen=True):
    """The entries of policies that matched nothing since a time in Unix seconds. `silent` policies made no decision.
    `unread` is the number of batches whose results are too large for the audit."""

    since: int
    policies: Sequence[Unneeded] = ()
    silent: Sequence[str] = ()
    unread: int = 0


class Overview(Struct, frozen=True):
    """The state of an issuer. Times are Unix seconds; `since` is the start of its history."""

    version: str
    at: int
    since: int
    conditions: Sequence[Condition]
    spans: Sequence[AnswerCounts]
    integrations: Sequence[NumbersLine]
    codes: Sequence[NumbersLine]
    held: StandingsView
    signals: Sequence[NumbersLine]
    unmatched: Unmatched
    providers: Sequence[NumbersLine]
    keys: Sequence[KeyView]


_WHOLE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">$again
<title>$title</title>
<link rel="stylesheet" href="style.css">
<script type="module" src="times.js"></script>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header><nav aria-label="Pages"><a href="./" $here>Status</a><a href="./?again" $every>the same, every 30 seconds</a>
<a href="metrics">Metrics for Prometheus</a></nav></header>
<main id="main">
<h1>Status of the issuer</h1>
$body</main>
</body></html>
""")


@functools.cache
def loaded() -> dict[str, tuple[bytes, str]]:
    """Return the bytes and media type of each file that the page loads, by name."""
    types = {"style.css": "text/css", "times.js": "text/javascript"}
    folder = files("issuer.page") / "ui"
    return {name: ((folder / name).read_bytes(), f"{kind}; charset=utf-8") for name, kind in types.items()}


def write_overview(overview: Overview, every_s: int | None = None) -> bytes:
    """Return the page. With `every_s`, a browser reloads it after so many seconds."""
    unwell = sum(not each.is_well for each in overview.conditions)
    return _WHOLE.substitute(
        again="" if every_s is None else f'\n<meta http-equiv="refresh" content="{every_s}">',
        here='aria-current="page"' if every_s is None else "",
        every='aria-current="page"' if every_s is not None else "",
        title=f"{unwell} not well" if unwell else "All is well",
        body="".join(_body(overview, unwell)),
    ).encode()


def _body(overview: Overview, unwell: int) -> Iterable[str]:
    kind, verdict = ("bad", f"{unwell} not well") if unwell else ("good", "All is well")
    yield f'<div class="verdict {kind}"><h2>{_sign(not unwell)} {verdict}</h2>'
    yield f"<p>At {_time(overview.at)}, of {escape(overview.version)}. Read only.</p></div>\n"
    yield _table("Conditions", ("", "Part", "State"), map(_condition, overview.conditions), kind="results")
    yield "<h2>Answers</h2>\n"
    yield '<p class="quiet">Answers of the endpoints that sign; a batch is one answer. '
    yield f"Counted since {_time(overview.since)}; Prometheus keeps them longer.</p>\n"
    for span in overview.spans:
        yield from _span(span)
    yield "<h2>By integration and by code</h2>\n"
    yield _lines("Integrations: the last 24 hours", ("Integration", "Signed", "Refused", "Not decided"),
                 overview.integrations, "No integration has sent a request yet.")  # fmt: skip
    yield _lines("Refusals and undecided requests: the last 24 hours", ("Code", "Answers"), overview.codes,
                 "None.")  # fmt: skip
    yield "<h2>Limits and abuse</h2>\n"
    yield from _held(overview.held)
    yield _lines("Signals of abuse, since the service began", ("Integration: signal and consequence", "Times"),
                 overview.signals, "None.")  # fmt: skip
    yield "<h2>Policies</h2>\n"
    yield from _unmatched(overview.unmatched)
    yield "<h2>Keys and providers</h2>\n"
    yield _table("Published keys", ("Key", "State", "Since", "Next step"), map(_key, overview.keys), kind="stacked")
    yield _lines("Questions to providers, since the service began", ("Provider", "Answered", "Failed"),
                 overview.providers, "None yet.")  # fmt: skip


def _held(held: StandingsView) -> Iterable[str]:
    if held.unknown:
        yield '<p class="note bad">Quarantines and the use of limits are unknown: '
        yield f"{_said(held.unknown)}.</p>\n"
        return
    if held.left_out:
        yield f'<p class="quiet">{held.left_out:,} identities are left out; <code>issuer abuse list</code> has all.'
        yield "</p>\n"
    heads = ("Identity", "Measure", "Until")
    yield _rows("Quarantines, throttles and releases", heads, list(map(_stand, held.stands)), "No identity.")
    yield _rows("The most used limits", ("Limit", "Used", "Of", "Share"), list(map(_used, held.used)),
                "No limit is used.", numbers_from=1, kind="plain")  # fmt: skip
    yield '<p class="quiet">The used part of a rate recovers with time. Above a rate, requests are refused; above '
    yield "that of refusals, the identity is quarantined; above a day's tokens or owners (UTC), it has a signal.</p>\n"


# The most names or places in one line.
_MOST_NAMES = 20


def _unmatched(unmatched: Unmatched) -> Iterable[str]:
    yield '<p class="quiet">Identities, frameworks, globs and metrics of policies that matched nothing, by the audit '
    yield f"of this host since {_time(unmatched.since)}. The count of a changed policy begins anew.</p>\n"
    if unmatched.unread:
        yield f'<p class="quiet">The results of {unmatched.unread:,} large batches are not in the audit.</p>\n'
    heads = ("Policy", "Places", "Never", "Entries")
    rows = list(map(_unneeded, unmatched.policies))
    yield _rows("Rules that never matched", heads, rows, "None, of the policies that made a decision.", 2)
    if unmatched.silent:
        yield f"<p>{len(unmatched.silent):,} policies made no decision: {_names(unmatched.silent)}.</p>\n"


def _unneeded(policy: Unneeded) -> str:
    places = _cell("Places", _names(_together(policy.never)))
    numbers = _cell("Never", f"{len(policy.never):,}", "number") + _cell("Entries", f"{policy.entries:,}", "number")
    return _head(_said(policy.name)) + places + numbers


_ENTRY = re.compile(r"(.+)\[(\d+)\]")


def _together(places: Sequence[str]) -> list[str]:
    """Join places in the same list, as `grants.models[0, 3–7]`, in their order."""
    runs_by_list: dict[str, list[list[int]]] = {}
    for place in places:
        entry = _ENTRY.fullmatch(place)
        runs = runs_by_list.setdefault(entry[1] if entry else place, [])
        if entry is None:
            continue
        if runs and runs[-1][1] == int(entry[2]) - 1:
            runs[-1][1] += 1
        else:
            runs.append([int(entry[2])] * 2)
    shown = {name: ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in runs)
             for name, runs in runs_by_list.items()}  # fmt: skip
    return [f"{name}[{numbers}]" if numbers else name for name, numbers in shown.items()]


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_NAMES:,} others" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(_said, names[:_MOST_NAMES])) + rest


# -- parts -------------------------------------------------------------------------------------------------------------


def _sign(is_well: bool) -> str:
    return f'<span class="sign" aria-hidden="true">{"✓" if is_well else "✗"}</span>'


def _time(moment: int) -> str:
    shown = show_time(moment)
    return f'<time datetime="{escape(shown)}">{escape(shown.replace("T", " ").replace("Z", " UTC"))}</time>'


def _said(text: str) -> str:
    return f"<bdi>{escape(visible(text))}</bdi>"


def _condition(condition: Condition) -> str:
    kind, word = ("good", "well") if condition.is_well else ("bad", "not well")
    return (
        f'<td class="result {kind}" role="cell">{_sign(condition.is_well)} {word}</td>'
        f'<th scope="row" role="rowheader">{escape(condition.name)}</th><td role="cell">{_said(condition.says)}</td>'
    )


# The next change of a key by its state: the texts for a known and for an unknown time.
_NEXT = {
    "next": ("may sign", "may sign 15 min after every host has published it"),
    "active": ("may give way to the next key", "signs until a next key is made, by <code>issuer keys rotate</code>"),
    "retiring": ("may leave the key set, its last token having expired", "leaves the key set"),
}


def _key(key: KeyView) -> str:
    known, unknown = _NEXT.get(key.state, ("changes", "unknown"))
    says = f"{known}, from {_time(key.moves_from)} on" if key.moves_from else f"{known} now"
    if key.moves_from is None:
        says = unknown
    cells = _cell("State", escape(key.state)) + _cell("Since", _time(key.since)) + _cell("Next", says)
    return _head(f"<code>{_said(key.kid)}</code>") + cells


def _stand(stand: Stand) -> str:
    until = _time(stand.until) if stand.until else "it is mended"
    cells = _cell("Stands", _said(stand.says)) + _cell("Until", until)
    return _head(_said(stand.name)) + cells


def _head(markup: str) -> str:
    return f'<th scope="row" role="rowheader">{markup}</th>'


def _numbers(texts: Iterable[str]) -> str:
    return "".join(f'<td class="number" role="cell">{text}</td>' for text in texts)


def _cell(head: str, markup: str, kind: str = "") -> str:
    """Return a cell with a label, which shows when the cells of a row are stacked."""
    return f'<td role="cell" data-head="{head}"{f" class={kind}" if kind else ""}>{markup}</td>'


def _used(one: Used) -> str:
    share = min(100, 100 * one.used // one.limit)
    drawn = (
        f'<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="bar" d="M0 0h{max(share, 1)}v4H0z"/></svg>'
    )
    return _head(_said(one.name) + drawn) + _numbers((f"{one.used:,}", f"{one.limit:,}", f"{share} %"))


def _line(line: NumbersLine) -> str:
    return _head(_said(line.name)) + _numbers(f"{number:,}" for number in line.numbers)


def _lines(caption: str, heads: Sequence[str], lines: Sequence[NumbersLine], none: str) -> str:
    if not lines:
        return f'<h3>{escape(caption)}</h3><p class="quiet">{escape(none)}</p>\n'
    shown, rest = list(lines[:MOST_ROWS]), lines[MOST_ROWS:]
    if rest:
        sums = tuple(map(sum, zip(*(line.numbers for line in rest), strict=True)))
        shown.append(NumbersLine(f"{len(rest):,} others", sums))
    return _table(caption, heads, map(_line, shown), numbers_from=1)


def _rows(
    caption: str, heads: Sequence[str], rows: Sequence[str], none: str, numbers_from: int = 99, kind: str = "stacked"
) -> str:
    """Return a table of at most MOST_ROWS rows. A further row has the number of the others."""
    if not rows:
        return f'<h3>{escape(caption)}</h3><p class="quiet">{escape(none)}</p>\n'
    rest = _head(f"{len(rows) - MOST_ROWS:,} others") + '<td role="cell"></td>' * (len(heads) - 1)
    shown = rows if len(rows) <= MOST_ROWS else [*rows[:MOST_ROWS], rest]
    return _table(caption, heads, shown, numbers_from, kind)


def _table(caption: str, heads: Sequence[str], rows: Iterable[str], numbers_from: int = 99, kind: str = "plain") -> str:
    """Return a table. On a phone, the cells of a table that is not plain are stacked. A browser then drops the implicit
    roles, so they are explicit."""
    head = "".join(
        f'<th scope="col" role="columnheader"{" class=number" if at >= numbers_from else ""}>{escape(name)}</th>'
        if name
        else '<td role="cell"></td>'
        for at, name in enumerate(heads)
    )
    body = "".join(f'<tr role="row">{row}</tr>\n' for row in rows)
    return (
        f'<div class="wide"><table role="table" class="{kind}"><caption>{escape(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>\n'
    )


# -- charts ------------------------------------------------------------------------------------------------------------


def _span(span: AnswerCounts) -> Iterable[str]:
    """Yield a chart for each sort of answer, so colours need not distinguish them, and a table of the numbers."""
    turns = max((len(counts) for counts in span.counts.values()), default=0)
    yield f"<h3>The last {turns} {escape(span.turn)}s</h3>\n"
    for sort, name in _SORTS:
        yield _bars(name, span, span.counts.get(sort, [0] * turns))
    rows = (
        _head(_time(span.begins + at * span.turn_s))
        + _numbers(f"{span.counts.get(sort, [0] * turns)[at]:,}" for sort, _ in _SORTS)
        for at in reversed(range(turns))
        if any(counts[at] for counts in span.counts.values())
    )
    numbers = _table(f"By {span.turn}, newest first, without those that have no answer",
                     (f"From ({span.turn})", *(name for _, name in _SORTS)), rows, numbers_from=1)  # fmt: skip
    yield f"<details><summary>The same as numbers</summary>{numbers}</details>\n"


def _bars(name: str, span: AnswerCounts, counts: Sequence[int]) -> str:
    most, width = max(counts, default=0), _WIDTH / max(len(counts), 1)
    path = "".join(
        f"M{at * width:g} {_HEIGHT}v-{max(count * (_HEIGHT - 2) / most, 1.5):.4g}h{width - 1:g}V{_HEIGHT}z"
        for at, count in enumerate(counts)
        if count
    )
    said = f"{name}: {sum(counts):,} in the last {len(counts)} {span.turn}s, at most {most:,} in one"
    return (
        f'<figure class="bars"><figcaption>{escape(said)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="ground" d="M0 {_HEIGHT - 0.5:g}H{_WIDTH}"/><path class="bar" d="{path}"/></svg></figure>\n'
    )
