"""A leaderboard as one HTML file, which needs no server and loads nothing. Pure.

Its own policy lets exactly this style and this script run, by their hashes: markup that got past the escaping would be
dead. Whatever is a stranger's passes `_said`. Without the script it shows everything; with it rows can be sorted and
chosen.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html import escape
from importlib.resources import files

from issuer.formats.show import visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.relying.leaderboard import shown
from issuer.relying.leaderboard.listed import Listed
from issuer.relying.leaderboard.plot import plot, symbols
from issuer.relying.leaderboard.ranking import Board, Row, Table
from issuer.verify.report import TIERS, Tier
from issuer.verify.tiers import RANKS

_HERE = files("issuer.relying.leaderboard")
STYLE = _HERE.joinpath("page.css").read_text("utf-8")
SCRIPT = _HERE.joinpath("page.js").read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)


def as_html(board: Board, hub: str) -> str:
    """Write the page. `hub` is the URL of the Hub at which a model's commit can be looked at."""
    tables = "".join(_section(board, table, number, hub) for number, table in enumerate(board.tables))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Leaderboard</title><style>{STYLE}</style></head>\n<body>"
        f'<svg class="defs" aria-hidden="true">{symbols()}</svg><main><h1>Leaderboard</h1>'
        f"{_basis(board)}<p>{shown.meaning_of(board)}</p>{_choose(board)}{_contents(board)}{tables}{_refuted(board)}{_unread(board)}"
        f"</main><script>{SCRIPT}</script></body></html>\n"
    )


def _said(text: str) -> str:
    """Escape a stranger's text: it is no markup, ends no attribute, and turns no direction."""
    return escape(visible(text))


# -- what it is judged by ----------------------------------------------------------------------------------------------


def _basis(board: Board) -> str:
    basis = board.basis
    keys = (
        f"{_said(one.issuer)} (keys "
        + ("from a file" if one.keys_fetched_at is None else f"of {show_time(one.keys_fetched_at)}")
        + ")"
        for one in basis.issuers
    )
    lines = [
        ("Judged", f"{show_time(basis.judged_at)}, as <code>{_said(basis.audience)}</code>"),
        ("Trust file", f"<code>{_said(basis.trust)}</code>"),
        ("Issuers trusted", "; ".join(keys)),
        ("Entries", shown.counts_of(board)),
        ("Verified ones were received", f"{shown.received_of(board)} (check 5)"),
        ("A rank needs", f"the tier {board.rank_from}, or one above it"),
        *(("Not at hand", f"<code>{_said(absent)}</code>") for absent in basis.absent),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in lines)
    return f'<div class="basis"><dl>{listed}</dl></div>'


def _choose(board: Board) -> str:
    """Write the controls, hidden until the script is there that they need."""
    vouched = " ".join(tier for tier in TIERS if RANKS[tier] >= RANKS["verified"])
    tiers = [
        ("", "every tier"),
        (vouched, "verified and above"),
        *((tier, tier) for tier in TIERS if tier != "refuted"),
    ]
    names = sorted({row.entry.framework for table in board.tables for row in table.rows})
    frameworks = [("", "every framework"), *((f"={visible(name)}", name or "not said") for name in names)]
    return (
        f'<div class="choose" id="choose" hidden>{_select("tier", "Tier", tiers)}'
        f'{_select("framework", "Framework", frameworks)}<span id="count" role="status"></span></div>'
    )


def _select(name: str, label: str, options: Iterable[tuple[str, str]]) -> str:
    listed = "".join(f'<option value="{escape(value)}">{_said(text)}</option>' for value, text in options)
    return f'<label>{label} <select id="{name}" autocomplete="off">{listed}</select></label>'


def _contents(board: Board) -> str:
    links = "".join(
        f'<li><a href="#table-{number}">{_said(shown.title_of(table.subject))}</a> '
        f'<span class="quiet">{len(table.rows):,}</span></li>'
        for number, table in enumerate(board.tables)
    )
    summary = f"<summary>Tables: {len(board.tables):,}</summary>"
    return f'<nav aria-label="Tables"><details open>{summary}<ul>{links}</ul></details></nav>'


# -- tables ------------------------------------------------------------------------------------------------------------


def _section(board: Board, table: Table, number: int, hub: str) -> str:
    heading = f"table-{number}"
    title = f" ({_said(table.title)})" if table.title else ""
    notes = "".join(f"<p>{note.text} {_code(note.said)}</p>" for note in shown.notes_of(table, board))
    several = len(table.settings) > 1
    head = "".join(_heading(name) for name in _head(table, several=several))
    rows = "".join(f"{_row(table, row, hub, several=several)}\n" for row in table.rows)
    return (
        f'<section aria-labelledby="{heading}"><h2 id="{heading}">{_said(shown.title_of(table.subject))}{title}</h2>'
        f"{notes}{_settings(table)}{plot(table, number)}"
        f'<div class="wide" role="region" tabindex="0" aria-labelledby="{heading}"><table class="board">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>\n"
    )


def _settings(table: Table) -> str:
    if len(table.settings) == 1:
        return f"<p>All rows: {_code(shown.setting_text(table.settings[0]))}</p>"
    listed = (
        f"<li>{shown.setting_mark(number)}: {_code(shown.setting_text(one))}</li>"
        for number, one in enumerate(table.settings)
    )
    return f"<ul>{''.join(listed)}</ul>"


_NUMBERS = ("Rank", "Score", "Chosen")


def _heading(name: str) -> str:
    number = ' class="number"' if name.startswith(_NUMBERS) else ""
    return f'<th scope="col"{number}>{name}</th>'


def _head(table: Table, *, several: bool) -> Iterator[str]:
    unit = f" ({_said(table.unit)})" if table.unit else ""
    yield from ("Rank", "Model", f"Score{unit}", "Tier")
    if several:
        yield from ("Setting", "Rank in setting")
    yield from ("Framework", "Issuer", "Attempt", "Chosen from", "Date", "Look at")


def _row(table: Table, row: Row, hub: str, *, several: bool) -> str:
    entry = row.entry
    cells = [
        _number(row.rank),
        _cell(_said(entry.repo), entry.repo, "name"),
        _score(row),
        _cell(_tier(entry), _rank(entry), "short"),
    ]
    if several:
        cells += [_cell(_mark(table, row), f"{row.setting}"), _number(row.rank_in_setting)]
    date = (
        ""
        if entry.when is None
        else f"{show_time(entry.when)[:10]}{'' if entry.issued_at is not None else '<br>(as it says)'}"
    )
    cells += [
        _cell(_said(shown.framework_text(entry)), shown.framework_text(entry), "said"),
        _cell(_issuer(entry), entry.issuer, "said"), _cell(_attempt(entry), f"{entry.attempt or ''}", "short"),
        _number(row.chosen_from), _cell(date, "" if entry.when is None else f"{entry.when}", "short"),
        _cell(_links(entry, hub), ""),
    ]  # fmt: skip
    kind = "" if entry.standing >= RANKS["verified"] else ' class="open"'
    return f'<tr{kind} data-tier="{entry.tier}" data-framework="{_said(entry.framework)}">{"".join(cells)}</tr>'


def _cell(inner: str, key: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<td{named} data-key="{_said(key)}">{inner}</td>'


def _number(value: int | None) -> str:
    return _cell("–" if value is None else f"{value:,}", "" if value is None else f"{value}", "number")


def _score(row: Row) -> str:
    text = number_text(row.value)
    contradicted = "<br>contradicted" if row.contradicted else ""
    return _cell(f"{text}{contradicted}", text, "number")


def _tier(entry: Listed) -> str:
    said = "".join(
        f"<p>{_said(text)}</p>" for text in (entry.tier_reason, f"check 5: {entry.freshness}", shown.place_of(entry))
    )
    return f"<details><summary>{_shape(entry.tier)} {entry.tier}</summary>{said}</details>"


def _shape(tier: Tier) -> str:
    return f'<svg class="shape t-{tier}" viewBox="0 0 16 16" aria-hidden="true"><use href="#s-{tier}"></use></svg>'


def _rank(entry: Listed) -> str:
    """Return by what tiers are sorted: the first is the one with the most behind it."""
    return f"{TIERS.index(entry.tier)}"


def _mark(table: Table, row: Row) -> str:
    selection = table.settings[row.setting].selection
    return f"{shown.setting_mark(row.setting)}{f' {_code(selection)}' if selection else ''}"


def _issuer(entry: Listed) -> str:
    return f"{_said(entry.issuer)} for {_said(entry.integration)}" if entry.issuer else ""


def _attempt(entry: Listed) -> str:
    since = "" if entry.attempts_since is None else f"<br>since {show_time(entry.attempts_since)[:10]}"
    return f"{shown.attempt_text(entry)}{since}"


def _links(entry: Listed, hub: str) -> str:
    links = (("run", entry.run_url), ("commit", shown.commit_url(entry, hub)))
    return " ".join(
        f'<a href="{escape(url)}" rel="noreferrer nofollow" aria-label="{name} of {_said(entry.repo)}">{name}</a>'
        for name, url in links
        if url.startswith(("https://", "http://"))
    )


def _code(text: str) -> str:
    return f"<code>{_said(text)}</code>" if text else ""


# -- what stands apart -------------------------------------------------------------------------------------------------


def _refuted(board: Board) -> str:
    if not board.refuted:
        return ""
    rows = (
        (entry.repo, entry.benchmark, entry.task, ", ".join(map(shown.score_text, entry.scores)), shown.place_of(entry),
         entry.tier_reason)
        for entry in board.refuted
    )  # fmt: skip
    rule = "Anybody may put such an entry into a pull request: it says nothing of the model&#x27;s other results."
    return _apart(
        "refuted",
        f"{_shape('refuted')} Refuted",
        rule,
        ("Model", "Benchmark", "Task", "Values", "Place", "Reason"),
        rows,
    )


def _unread(board: Board) -> str:
    if not board.unread:
        return ""
    rows = (
        (f"{one.file}:{one.line}:{one.column}" if one.line else one.file, f"{one.code}: {one.reason}")
        for one in board.unread
    )
    return _apart("unread", "Not read", "These files, or definitions, are in no table.", ("Place", "Reason"), rows)


def _apart(name: str, title: str, rule: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = "".join(f'<th scope="col">{one}</th>' for one in head)
    cells = ("".join(f'<td class="text">{_said(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2><p>{rule}</p>'
        f'<div class="wide" role="region" tabindex="0" aria-labelledby="{name}"><table>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></section>\n"
    )
