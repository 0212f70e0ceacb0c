"""A leaderboard as one HTML file that needs no server and loads no other file. Pure.

The page's own policy allows only its style and its script, by their hashes, so markup that got past the escaping would
not run. A stranger's text always passes `_said`. Without the script the page shows all rows; with it, a reader can sort
and filter them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from issuer.formats.display import visible
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.page.site import OWN_STYLE, STYLED, TIMES, Page, digest_source, policy_of
from issuer.relying.leaderboard import text_formats as wording
from issuer.relying.leaderboard.ranking import BoardEntry, BoardRow, BoardTable, Leaderboard
from issuer.verify.report import TIERS, Tier
from issuer.verify.tiers import RANKS

# -- plot --------------------------------------------------------------------------------------------------------------

# Each tier has a shape and a colour; the style has the colours for light and dark. Shapes fit a square of 16 with its
# centre at 8 8.
SHAPES: dict[Tier, str] = {
    "reproduced": "M8 1l2 4.6 5 .5-3.8 3.3 1.1 4.9L8 11.7l-4.3 2.6 1.1-4.9L1 6.1l5-.5z",
    "logged": "M3 3h10v10H3z",
    "verified": "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11z",
    "signed": "M8 2l6.2 11H1.8z",
    "self-reported": "M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10z",
    "undecided": "M8 2l6 6-6 6-6-6z",
    "refuted": "M3 3l10 10M13 3L3 13",
}
_HOLLOW: frozenset[Tier] = frozenset({"self-reported", "undecided", "refuted"})
_WIDTH, _HEIGHT = 480, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 464, 16, 180


def symbols() -> str:
    """Return the shapes as symbols, which plots and tables use."""
    styles = {tier: "hollow" if tier in _HOLLOW else "filled" for tier in SHAPES}
    return "".join(
        f'<symbol id="s-{tier}" viewBox="0 0 16 16"><path class="{styles[tier]}" d="{path}"/></symbol>'
        for tier, path in SHAPES.items()
    )


def plot(table: BoardTable, number: int) -> str:
    """Return a plot of the rows whose time is known; "" if they have fewer than two times."""
    dated = [(row.entry.when, row) for row in table.rows if row.entry.when is not None]
    times = [when for when, _ in dated]
    if len(set(times)) < 2:
        return ""
    values = [row.value for _, row in dated]
    across, up = _Axis(times, _LEFT, _RIGHT), _Axis(values, _BOTTOM, _TOP)
    points = "".join(_point(row, across.at(when), up.at(row.value)) for when, row in dated)
    said = f"Score over date of {len(dated)} results; the table has the same numbers"
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="plot-{number}">'
        f'<title id="plot-{number}">{said}</title>{_frame(across, up)}{points}</svg>'
    )


class _Axis:
    """Maps values between the smallest and the largest to pixels."""

    def __init__(self, values: Sequence[float], first: int, last: int) -> None:
        self.least, self.greatest = min(values), max(values)
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        # Halve both, because the difference of two large doubles may overflow.
        span = self.greatest / 2 - self.least / 2
        share = 0.5 if span <= 0 else (value / 2 - self.least / 2) / span
        return self._first + share * (self._last - self._first)


def _frame(across: _Axis, up: _Axis) -> str:
    days = (show_time(int(moment))[:10] for moment in (across.least, across.greatest))
    first, last = map(escape, days)
    lower, upper = (number_text(float(f"{value:.4g}")) for value in (up.least, up.greatest))
    labels = [
        (_LEFT - 12, _BOTTOM + 4, "end", lower), (_LEFT - 12, _TOP + 4, "end", upper if upper != lower else ""),
        (_LEFT, _BOTTOM + 28, "start", first), (_RIGHT, _BOTTOM + 28, "end", last if last != first else ""),
    ]  # fmt: skip
    texts = "".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in labels)
    return f'<path class="axis" d="M{_LEFT - 8} {_TOP - 8}V{_BOTTOM + 8}H{_RIGHT + 8}"/>{texts}'


def _point(row: BoardRow, x: float, y: float) -> str:
    entry = row.entry
    said = escape(visible(f"{entry.repo}: {number_text(row.value)}, {entry.tier}, {show_time(entry.when or 0)[:10]}"))
    return (
        f'<use href="#s-{entry.tier}" class="t-{entry.tier}" x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" '
        f'data-tier="{entry.tier}" data-framework="{escape(visible(entry.framework))}"><title>{said}</title></use>'
    )


# The script that every page uses to show times, then the one that sorts and filters.
_SCRIPT = TIMES + files("issuer.relying.leaderboard").joinpath("page.js").read_text("utf-8")
_POLICY = policy_of(OWN_STYLE, digest_source(_SCRIPT), "trusted-types 'none'")


def as_html(board: Leaderboard, hub: str) -> str:
    """Return the page. `hub` is the URL of the Hub that shows a model's commit."""
    titles = wording.titles_of(board)
    tables = "".join(_section(board, number, title, hub) for number, title in enumerate(titles))
    body = (
        '<h1>Leaderboard</h1>\n<p class="lead">Scores by benchmark, each with its evidence.</p>\n'
        f"<p>{wording.meaning_of(board)}</p>{_contents(board, titles)}{_choose(board)}{tables}"
        f"{_refuted(board)}{_unread(board)}{_basis(board)}"
    )
    return Page(
        title="Leaderboard",
        policy=_POLICY,
        head=STYLED,
        body=body,
        above=f'<svg class="defs" aria-hidden="true">{symbols()}</svg>\n',
        below=f'<script type="module">{_SCRIPT}</script>',
        attributes=' class="broad"',
    ).write()


def _said(text: str) -> str:
    """Escape a stranger's text so that it cannot add markup, end an attribute, or change the text direction."""
    return escape(visible(text))


def _basis(board: Leaderboard) -> str:
    basis = board.basis
    keys = (
        f"{_said(one.issuer)} (keys "
        + ("from a file" if one.keys_fetched_at is None else f"of {_time(one.keys_fetched_at, whole=True)}")
        + ")"
        for one in basis.issuers
    )
    lines = [
        ("Judged", f"{_time(basis.judged_at, whole=True)}, as <code>{_said(basis.audience)}</code>"),
        ("Trust file", f"<code>{_said(basis.trust)}</code>"),
        ("Issuers trusted", "; ".join(keys)),
        ("Entries", wording.counts_of(board)),
        ("Time of receipt of verified entries", f"{wording.received_of(board)} (check 5)"),
        ("A rank needs", f"the tier {board.rank_from} or a higher one"),
        *(("Unavailable", f"<code>{_said(absent)}</code>") for absent in basis.absent),
        *(("Not listed", said) for said in filter(None, [wording.left_out_of(board)])),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in lines)
    return f'<section aria-labelledby="basis"><h2 id="basis">Judged by</h2><dl class="facts">{listed}</dl></section>'


def _choose(board: Leaderboard) -> str:
    """Return the filters, hidden until the script runs."""
    verified = " ".join(tier for tier in TIERS if RANKS[tier] >= RANKS["verified"])
    others = ((tier, tier) for tier in TIERS if tier != "refuted")
    tiers = [("", "every tier"), (verified, "verified and above"), *others]
    names = sorted({row.entry.framework for table in board.tables for row in table.rows})
    frameworks = [("", "every framework"), *((f"={visible(name)}", name or "not said") for name in names)]
    return (
        f'<div class="choose" id="choose" hidden>{_select("tier", "Tier", tiers)}'
        f'{_select("framework", "Framework", frameworks)}<span id="count" role="status"></span></div>'
    )


def _select(name: str, label: str, options: Iterable[tuple[str, str]]) -> str:
    listed = "".join(f'<option value="{escape(value)}">{_said(text)}</option>' for value, text in options)
    return f'<label>{label} <select id="{name}" autocomplete="off">{listed}</select></label>'


def _contents(board: Leaderboard, titles: Sequence[str]) -> str:
    if not board.tables:
        return (
            '<div class="note open"><p>No result was found. Results are read from '
            "<code>DIR/OWNER/NAME/.eval_results/*.yaml</code>.</p></div>"
        )
    links = "".join(
        f'<li><a href="#table-{number}">{_said(title)}</a> '
        f'<span class="quiet">{len(board.tables[number].rows):,}</span></li>'
        for number, title in enumerate(titles)
    )
    summary = f"<summary>Tables: {len(board.tables):,}</summary>"
    return f'<nav aria-label="Tables"><details open>{summary}<ul>{links}</ul></details></nav>'


def _section(board: Leaderboard, number: int, title: str, hub: str) -> str:
    table, heading = board.tables[number], f"table-{number}"
    metric = f" ({_said(table.title)})" if table.title else ""
    notes = "".join(f"<p>{note.text} {_code(note.said)}</p>" for note in wording.notes_of(table, board))
    columns = _columns(table)
    head = "".join(_heading(name, table.unit) for name in columns)
    rows = "".join(f"{_row(table, row, hub, columns)}\n" for row in table.rows)
    return (
        f'<section aria-labelledby="{heading}"><h2 id="{heading}">{_said(title)}{metric}</h2>'
        f"{notes}{_settings(table)}{plot(table, number)}"
        f'<div class="wide" role="region" tabindex="0" aria-labelledby="{heading}"><table class="plain board">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>\n"
    )


def _settings(table: BoardTable) -> str:
    if len(table.settings) == 1:
        return f"<p>All rows: {_code(wording.setting_text(table.settings[0]))}</p>"
    listed = "".join(
        f"<li>{wording.setting_mark(number)}: {_code(wording.setting_text(one))}</li>"
        for number, one in enumerate(table.settings)
    )
    return f"<ul>{listed}</ul>"


_NUMBERS = {"Rank", "Score", "Samples", "Rank in setting", "Chosen from"}
_COLUMNS = (
    "Rank", "Model", "Score", "Samples", "Tier", "Setting", "Rank in setting", "Framework", "Issuer", "Attempt",
    "Chosen from", "Date",
)  # fmt: skip


def _columns(table: BoardTable) -> list[str]:
    """Return the columns of a table without those that are empty in every row."""
    entries, several = [row.entry for row in table.rows], len(table.settings) > 1
    is_said = {
        "Samples": any(row.samples is not None for row in table.rows),
        "Setting": several,
        "Rank in setting": several,
        "Issuer": any(entry.issuer for entry in entries),
        "Attempt": any(entry.attempt is not None for entry in entries),
        "Chosen from": any(row.chosen_from > 1 for row in table.rows),
    }
    return [name for name in _COLUMNS if is_said.get(name, True)]


def _heading(name: str, unit: str) -> str:
    number = ' class="number"' if name in _NUMBERS else ""
    return f'<th scope="col"{number}>{name}{f" ({_said(unit)})" if unit and name == "Score" else ""}</th>'


def _row(table: BoardTable, row: BoardRow, hub: str, columns: Iterable[str]) -> str:
    entry = row.entry
    framework = wording.framework_text(entry)
    issuer = f"{_said(entry.issuer)} for {_said(entry.integration)}" if entry.issuer else ""
    cells = {
        "Rank": _number(row.rank),
        "Model": _cell(f"{_said(entry.repo)}{_links(entry, hub)}", entry.repo, "name"),
        "Score": _score(row),
        "Samples": _cell(wording.samples_text(row), f"{row.samples or ''}", "number"),
        "Tier": _cell(_tier(entry), f"{TIERS.index(entry.tier)}", "short"),
        "Setting": _cell(_mark(table, row), f"{row.setting}"),
        "Rank in setting": _number(row.rank_in_setting),
        "Framework": _cell(_said(framework), framework, "said"),
        "Issuer": _cell(issuer, entry.issuer, "said"),
        "Attempt": _cell(_attempt(entry), f"{entry.attempt or ''}", "date"),
        "Chosen from": _number(row.chosen_from),
        "Date": _date(entry),
    }
    kind = "" if entry.strength >= RANKS["verified"] else ' class="open"'
    said = "".join(cells[name] for name in columns)
    return f'<tr{kind} data-tier="{entry.tier}" data-framework="{_said(entry.framework)}">{said}</tr>'


def _date(entry: BoardEntry) -> str:
    if entry.when is None:
        return _cell("", "")
    claimed = "" if entry.issued_at is not None else "<br>(stated by the file)"
    return _cell(f"{_time(entry.when)}{claimed}", f"{entry.when}", "date")


def _time(moment: int, *, whole: bool = False) -> str:
    """Return a time or its day; the script shows all of it in the reader's zone, with UTC beside it."""
    said = show_time(moment)
    return f'<time datetime="{said}">{said if whole else said[:10]}</time>'


def _cell(inner: str, key: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<td{named} data-key="{_said(key)}">{inner}</td>'


def _number(value: int | None) -> str:
    return _cell("–" if value is None else f"{value:,}", "" if value is None else f"{value}", "number")


def _score(row: BoardRow) -> str:
    text = number_text(row.value)
    contradicted = "<br>contradicted" if row.contradicted else ""
    return _cell(f"{text}{contradicted}", text, "number")


def _tier(entry: BoardEntry) -> str:
    texts = entry.tier_reason, f"check 5: {entry.freshness}", wording.place_of(entry)
    said = "".join(f"<p>{_said(text)}</p>" for text in texts)
    return f"<details><summary>{_shape(entry.tier)} {entry.tier}</summary>{said}</details>"


def _shape(tier: Tier) -> str:
    return f'<svg class="shape t-{tier}" viewBox="0 0 16 16" aria-hidden="true"><use href="#s-{tier}"></use></svg>'


def _mark(table: BoardTable, row: BoardRow) -> str:
    selection = table.settings[row.setting].selection
    return f"{wording.setting_mark(row.setting)}{f' {_code(selection)}' if selection else ''}"


def _attempt(entry: BoardEntry) -> str:
    since = "" if entry.attempts_since is None else f"<br>since {_time(entry.attempts_since)}"
    return f"{wording.attempt_text(entry)}{since}"


def _links(entry: BoardEntry, hub: str) -> str:
    links = (("run", entry.run_url), ("commit", wording.commit_url(entry, hub)))
    written = " ".join(
        f'<a href="{escape(url)}" rel="noreferrer nofollow" aria-label="{name} of {_said(entry.repo)}">{name}</a>'
        for name, url in links
        if url.startswith(("https://", "http://"))
    )
    return f'<br><span class="quiet">{written}</span>' if written else ""


def _code(text: str) -> str:
    return f"<code>{_said(text)}</code>" if text else ""


def _refuted(board: Leaderboard) -> str:
    if not board.refuted:
        return ""
    head = [name.capitalize() for name in wording.REFUTED_HEAD]
    rows = map(wording.refuted_cells, board.refuted)
    return _apart("refuted", f"{_shape('refuted')} Refuted", escape(wording.REFUTED_RULE), head, rows)


def _unread(board: Leaderboard) -> str:
    if not board.unread:
        return ""
    rows = map(wording.unread_cells, board.unread)
    return _apart("unread", "Not read", "No table has these files or definitions.", ("Place", "Reason"), rows)


def _apart(name: str, title: str, rule: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = "".join(f'<th scope="col">{one}</th>' for one in head)
    cells = ("".join(f'<td class="text">{_said(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in cells)
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2><p>{rule}</p>'
        f'<div class="wide" role="region" tabindex="0" aria-labelledby="{name}"><table class="plain">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></section>\n"
    )
