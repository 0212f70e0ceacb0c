"""The operator's view, as one page that is whole without its script, which only shows times in the reader's zone. Pure.

It is served at the metrics' address alone: it says how the issuer is, and lets nobody change anything. What is drawn
stands beside it as numbers.
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
# Who asks for it shows the page anew so often.
AGAIN_S = 30
# Rows of a table of integrations or codes; the rest is one row.
MOST_ROWS = 50
_SORTS = (("issued", "Signed"), ("no", "Refused"), ("undecided", "Not decided"))
_WIDTH, _HEIGHT = 600, 60


class Condition(Struct, frozen=True):
    """One thing that is well, or not, and what there is to say of it."""

    name: str
    is_well: bool
    says: str


class AnswerCounts(Struct, frozen=True):
    """Answers of equal turns, oldest first, for each sort of answer; the last turn has not ended."""

    turn: str
    begins: int
    turn_s: int
    counts: dict[str, list[int]]


class NumbersLine(Struct, frozen=True):
    """One integration, code or provider, and its numbers."""

    name: str
    numbers: tuple[int, ...]


class KeyView(Struct, frozen=True):
    """A published key: its state, since Unix seconds; and from when it may come into the next one, 0 for at once, None
    where that is not known."""

    kid: str
    state: str
    since: int
    moves_from: int | None


class Stand(Struct, frozen=True):
    """What stands against an identity, and until when (Unix seconds; 0: for good)."""

    name: str
    says: str
    until: int


class Used(Struct, frozen=True):
    """How much of a limit is used."""

    name: str
    used: int
    limit: int


class StandingsView(Struct, frozen=True):
    """What the store holds against identities, the gravest first, and the limits of which most is used. `left_out` is
    how many identities it was not asked for. `unknown` says why nothing is known, "" where it is."""

    unknown: str
    stands: Sequence[Stand] = ()
    used: Sequence[Used] = ()
    left_out: int = 0


class Unneeded(Struct, frozen=True):
    """The entries of an integration's policy, by their places in it, that `never` matched, and how many it has."""

    name: str
    never: Sequence[str]
    entries: int


class Unmatched(Struct, frozen=True):
    """Entries that matched nothing since Unix seconds, of policies by which was decided; by the `silent` ones was not.
    `unread` batches are too large to be in the audit."""

    since: int
    policies: Sequence[Unneeded] = ()
    silent: Sequence[str] = ()
    unread: int = 0


class Overview(Struct, frozen=True):
    """How an issuer is. Times are Unix seconds; `since` is when this history began."""

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
<header><nav aria-label="Pages"><a href="./" $here>How it is</a><a href="./?again" $every>the same, every 30 seconds</a>
<a href="metrics">Metrics for Prometheus</a></nav></header>
<main id="main">
<h1>How the issuer is</h1>
$body</main>
</body></html>
""")


@functools.cache
def loaded() -> dict[str, tuple[bytes, str]]:
    """Return what the page loads, by its name beside the page: bytes and media type."""
    types = {"style.css": "text/css", "times.js": "text/javascript"}
    found = files("issuer.page") / "ui"
    return {name: ((found / name).read_bytes(), f"{kind}; charset=utf-8") for name, kind in types.items()}


def write_overview(overview: Overview, every_s: int | None = None) -> bytes:
    """Write the page; with `every_s` a browser asks for it again after so many seconds."""
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
    yield _table("Conditions", ("", "Part", "How it is"), map(_condition, overview.conditions), kind="results")
    yield "<h2>Answers</h2>\n"
    yield '<p class="quiet">Of the endpoints that sign; a batch is one answer. '
    yield f"Looked at since {_time(overview.since)}; Prometheus remembers longer.</p>\n"
    for span in overview.spans:
        yield from _span(span)
    yield "<h2>By integration and by code</h2>\n"
    yield _lines("Integrations: the last 24 hours", ("Integration", "Signed", "Refused", "Not decided"),
                 overview.integrations, "Nobody that is registered has asked yet.")  # fmt: skip
    yield _lines("Refusals, and what was not decided: the last 24 hours", ("Code", "Answers"), overview.codes,
                 "None.")  # fmt: skip
    yield "<h2>Limits and abuse</h2>\n"
    yield from _held(overview.held)
    yield _lines("Signals of abuse, since the service began", ("Integration: signal, and what followed", "Times"),
                 overview.signals, "None.")  # fmt: skip
    yield "<h2>Policies</h2>\n"
    yield from _unmatched(overview.unmatched)
    yield "<h2>Keys and providers</h2>\n"
    yield _table(
        "Published keys", ("Key", "State", "Since", "What comes next"), map(_key, overview.keys), kind="stacked"
    )
    yield _lines("Questions to providers, since the service began", ("Provider", "Answered", "Failed"),
                 overview.providers, "None was asked yet.")  # fmt: skip


def _held(held: StandingsView) -> Iterable[str]:
    if held.unknown:
        yield '<p class="note bad">Who is held back, and how much of the limits is used, is not known: '
        yield f"{_said(held.unknown)}.</p>\n"
        return
    if held.left_out:
        yield f'<p class="quiet">{held.left_out:,} identities are left out; <code>issuer abuse list</code> has all.'
        yield "</p>\n"
    heads = ("Identity", "What stands against it", "Until")
    yield _rows("Who is held back, or released", heads, list(map(_stand, held.stands)), "Nobody.")
    yield _rows("Limits: those of which most is used", ("Limit", "Used", "Of", "Share"), list(map(_used, held.used)),
                "Nothing is used of any.", numbers_from=1, kind="plain")  # fmt: skip
    yield '<p class="quiet">What is used of a rate comes back with time. Beyond a rate requests are refused, beyond '
    yield "its refusals an identity is quarantined, beyond a day's tokens or owners (UTC) a signal is raised.</p>\n"


# Names or places that one line has.
_MOST_NAMES = 20


def _unmatched(unmatched: Unmatched) -> Iterable[str]:
    yield '<p class="quiet">Identities, frameworks, globs and metrics of a policy that matched nothing, whatever was '
    yield f"decided, since {_time(unmatched.since)}, says this host's audit; a policy that changes begins anew.</p>\n"
    if unmatched.unread:
        yield f'<p class="quiet">The results of {unmatched.unread:,} large batches are not in the audit.</p>\n'
    heads = ("Policy", "Places", "Never", "Entries")
    rows = list(map(_unneeded, unmatched.policies))
    yield _rows("Rules that never fired", heads, rows, "None, of policies by which was decided.", 2)
    if unmatched.silent:
        yield f"<p>By {len(unmatched.silent):,} policies nothing was decided: {_names(unmatched.silent)}.</p>\n"


def _unneeded(policy: Unneeded) -> str:
    places = _cell("Places", _names(_together(policy.never)))
    numbers = _cell("Never", f"{len(policy.never):,}", "number") + _cell("Entries", f"{policy.entries:,}", "number")
    return f'<th scope="row" role="rowheader">{_said(policy.name)}</th>{places}{numbers}'


_ENTRY = re.compile(r"(.+)\[(\d+)\]")


def _together(places: Sequence[str]) -> list[str]:
    """Put the places of one list together, `grants.models[0, 3–7]`, in their order."""
    found: dict[str, list[list[int]]] = {}
    for place in places:
        entry = _ENTRY.fullmatch(place)
        runs = found.setdefault(entry[1] if entry else place, [])
        if entry is None:
            continue
        if runs and runs[-1][1] == int(entry[2]) - 1:
            runs[-1][1] += 1
        else:
            runs.append([int(entry[2])] * 2)
    shown = {name: ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in runs)
             for name, runs in found.items()}  # fmt: skip
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


# What a key comes to: where the time is known, and where it is not.
_NEXT = {
    "next": ("may sign", "may sign 15 min after every host has published it"),
    "active": ("may give way to the next key", "signs until a next key is made, by <code>issuer keys rotate</code>"),
    "retiring": ("may leave the key set, its last token having expired", "leaves the key set"),
}


def _key(key: KeyView) -> str:
    known, unknown = _NEXT.get(key.state, ("changes", "is as it is"))
    says = f"{known}, from {_time(key.moves_from)} on" if key.moves_from else f"{known} now"
    if key.moves_from is None:
        says = unknown
    cells = _cell("State", escape(key.state)) + _cell("Since", _time(key.since)) + _cell("Next", says)
    return f'<th scope="row" role="rowheader"><code>{_said(key.kid)}</code></th>{cells}'


def _stand(stand: Stand) -> str:
    until = _time(stand.until) if stand.until else "it is mended"
    cells = _cell("Stands", _said(stand.says)) + _cell("Until", until)
    return f'<th scope="row" role="rowheader">{_said(stand.name)}</th>{cells}'


def _cell(head: str, markup: str, kind: str = "") -> str:
    """Write a cell that says, where it stands below its row's others, what it is."""
    return f'<td role="cell" data-head="{head}"{f" class={kind}" if kind else ""}>{markup}</td>'


def _used(one: Used) -> str:
    share = min(100, 100 * one.used // one.limit)
    drawn = (
        f'<svg class="share" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="bar" d="M0 0h{max(share, 1)}v4H0z"/></svg>'
    )
    numbers = "".join(
        f'<td class="number" role="cell">{text}</td>' for text in (f"{one.used:,}", f"{one.limit:,}", f"{share} %")
    )
    return f'<th scope="row" role="rowheader">{_said(one.name)}{drawn}</th>{numbers}'


def _line(line: NumbersLine) -> str:
    numbers = "".join(f'<td class="number" role="cell">{number:,}</td>' for number in line.numbers)
    return f'<th scope="row" role="rowheader">{_said(line.name)}</th>{numbers}'


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
    """Write a table of at most so many rows; the last one says how many there are besides."""
    if not rows:
        return f'<h3>{escape(caption)}</h3><p class="quiet">{escape(none)}</p>\n'
    rest = f'<th scope="row" role="rowheader">{len(rows) - MOST_ROWS:,} others</th>' + '<td role="cell"></td>' * (
        len(heads) - 1
    )
    shown = rows if len(rows) <= MOST_ROWS else [*rows[:MOST_ROWS], rest]
    return _table(caption, heads, shown, numbers_from, kind)


def _table(caption: str, heads: Sequence[str], rows: Iterable[str], numbers_from: int = 99, kind: str = "plain") -> str:
    """Write a table. On a phone the cells of one that is not plain stand below each other, and a browser forgets their
    roles: they are said."""
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


# -- what is drawn -----------------------------------------------------------------------------------------------------


def _span(span: AnswerCounts) -> Iterable[str]:
    """Draw each sort of answer by itself, so that no colour has to tell them apart, and give its numbers."""
    turns = max((len(counts) for counts in span.counts.values()), default=0)
    yield f"<h3>The last {turns} {escape(span.turn)}s</h3>\n"
    for sort, name in _SORTS:
        yield _bars(name, span, span.counts.get(sort, [0] * turns))
    rows = (
        f'<th scope="row" role="rowheader">{_time(span.begins + at * span.turn_s)}</th>'
        + "".join(
            f'<td class="number" role="cell">{span.counts.get(sort, [0] * turns)[at]:,}</td>' for sort, _ in _SORTS
        )
        for at in reversed(range(turns))
        if any(counts[at] for counts in span.counts.values())
    )
    numbers = _table(f"By the {span.turn}, newest first; one without an answer is left out",
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
