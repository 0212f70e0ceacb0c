"""The files of a leaderboard: its basis, its marks for unsigned and refuted rows, and no markup of a stranger."""

import csv
import io
import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from issuer.relying.leaderboard.page import as_html
from issuer.relying.leaderboard.ranking import BoardScore, Leaderboard
from issuer.relying.leaderboard.text_formats import as_csv, as_json, as_markdown
from tests.support import make
from tests.support.boards import MODEL_REVISION, PAYLOADS, board, entry, hostile, only

HUB = "https://hub.example"
RUN = "https://github.com/acme/evals/actions/runs/1"


class Markup(HTMLParser):
    """The tags of a page with their attributes, and its text without style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.blocks: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in {"style", "script"} and self.tags[-1][0] not in self.blocks:
            self.blocks[self.tags[-1][0]] = data
        else:
            self.texts.append(data)


def example() -> Leaderboard:
    return board(
        entry("a/a", 2, run_url=RUN, issuer=make.ISSUER, integration="inspect-ai", issued_at=make.NOW, attempt=3,
              attempts_since=make.NOW - 86_400),
        entry("b/b", 3, tier="self-reported", tier_reason="no issuer vouches for it: it has no token", token_digest="",
              when=make.NOW - 86_400, issued_at=None),
        entry("c/c", 9, tier="refuted", tier_reason="check 8, metrics: accuracy differs"),
    )  # fmt: skip


def test_the_page_has_its_basis_and_each_row_its_evidence() -> None:
    page = as_html(example(), HUB)
    text = " ".join(Markup(page).texts)
    for part in ("sha256:" + "7" * 64, make.AUDIENCE, "2026-11-18T11:06:40Z",
                 "1 received now, by this party's own clock (check 5)"):  # fmt: skip
        assert part in text
    for part in (
        "inspect-ai 0.3.285", f"{make.ISSUER} for inspect-ai", "received in time",
        '3<br>since <time datetime="2026-11-17T11:06:40Z">2026-11-17</time>',
    ):  # fmt: skip
        assert part in page
    links = [attributes["href"] for tag, attributes in Markup(page).tags if tag == "a" and "rel" in attributes]
    assert links == [f"{HUB}/b/b/commit/{MODEL_REVISION}", RUN, f"{HUB}/a/a/commit/{MODEL_REVISION}"]


def test_unsigned_rows_are_marked_and_refuted_ones_separate_in_every_file() -> None:
    made = example()
    page = as_html(made, HUB)
    assert re.search(r'<tr class="open" data-tier="self-reported"[^>]*><td class="number" data-key="">–</td>', page)
    assert page.index("Refuted</h2>") < page.index("c/c")
    markdown = as_markdown(made, HUB)
    assert re.search(r"\| - \| `b/b` \| 3 \|  \| ○ self-reported \|", markdown)
    assert markdown.index("## Refuted") < markdown.index("`c/c`")
    rows = [(row["listed"], row["model"], row["rank"]) for row in csv.DictReader(io.StringIO(as_csv(made, HUB)))]
    assert rows == [("table", "b/b", ""), ("table", "a/a", "1"), ("refuted", "c/c", "")]
    document = json.loads(as_json(made))
    assert [row["rank"] for row in document["tables"][0]["rows"]] == [None, 1]
    assert document["refuted"][0]["repo"] == "c/c"
    assert document["basis"]["trust"] == made.basis.trust


def test_each_tier_has_a_separate_shape_in_the_plot() -> None:
    page = as_html(example(), HUB)
    plotted = re.search(r'<svg class="plot".*?</svg>', page)
    assert plotted
    assert re.findall(r'<use href="#s-([a-z-]+)"', plotted[0]) == ["self-reported", "verified"]
    shapes = re.findall(r'<symbol id="s-([a-z-]+)" [^>]*><path class="\w+" d="([^"]+)"', page)
    assert len(dict(shapes)) == len({path for _, path in shapes}) == 7
    assert 'class="plot"' not in as_html(board(entry("a/a"), entry("b/b")), HUB), "all rows are of one time"


def test_settings_choice_and_ranks_of_unsigned_rows_are_noted_in_page_and_markdown() -> None:
    made = board(entry("a/a", 2), entry("b/b", 1, framework="lm-eval"), best=True)
    for written in (as_html(made, HUB), as_markdown(made, HUB)):
        assert "Rows of 2 settings are in this table: compare them with care" in written
        assert "the best result was chosen" in written
    rows, no = (entry("a/a", 2), entry("b/b", 1, tier="self-reported")), "and have no rank"
    for tier, note, rank in (("verified", no, None), ("signed", no, None), ("self-reported", "but ranked as well", 2)):
        made = board(*rows, rank_from=tier)
        assert [row.rank for row in only(made).rows] == [1, rank]
        assert all(f"such rows are marked, {note}." in text for text in (as_html(made, HUB), as_markdown(made, HUB)))


def test_a_row_of_the_json_has_its_own_number_and_nothing_of_other_rows() -> None:
    scores = tuple(BoardScore(f"m{number}", "", number, "", "int", number) for number in range(1, 257))
    made = board(entry(scores=scores, normalization="x" * 200))
    document = json.loads(as_json(made))
    rows = [row for table in document["tables"] for row in table["rows"]]
    assert sorted(row["value"] for row in rows) == sorted(row["samples"] for row in rows) == list(range(1, 257))
    assert not any({"scores", "normalization"} & row["entry"].keys() for row in rows)


def test_the_number_of_samples_is_shown_and_few_are_marked() -> None:
    made = board(*(
        entry(repo, 1, scores=(BoardScore("accuracy", "", 1, "", "", samples),))
        for repo, samples in (("a/a", 1319), ("b/b", 99), ("c/c", None), ("d/d", 100))
    ))  # fmt: skip
    rows = {
        row["model"]: (row["samples"], row["few_samples"]) for row in csv.DictReader(io.StringIO(as_csv(made, HUB)))
    }
    assert rows == {"a/a": ("1319", "no"), "b/b": ("99", "yes"), "c/c": ("", "no"), "d/d": ("100", "no")}
    for written in (as_html(made, HUB), as_markdown(made, HUB)):
        assert "A number of samples below 100 is marked as few" in written
        assert re.search(r">99 \(few\)<|\| 99 \(few\) \|", written)
        assert "100 (few)" not in written
        assert "1,319" in written


def test_the_page_allows_only_its_own_style_and_script() -> None:
    markup = Markup(as_html(example(), HUB))
    policies = [each["content"] for _, each in markup.tags if each.get("http-equiv") == "Content-Security-Policy"]
    policy = str(policies[0])
    hashes = {name: b64encode(sha256(text.encode()).digest()).decode() for name, text in markup.blocks.items()}
    assert policy.split("; ")[:3] == [
        "default-src 'none'", f"style-src 'sha256-{hashes['style']}'", f"script-src 'sha256-{hashes['script']}'",
    ]  # fmt: skip
    assert "unsafe" not in policy


def test_a_stranger_s_text_is_text_in_every_file() -> None:
    """The page has the tags and attributes that it has with harmless texts, and a spreadsheet computes nothing."""
    plain = Markup(as_html(hostile("harmless"), HUB))
    for payload in PAYLOADS:
        made = hostile(payload)
        written = as_html(made, HUB)
        page = Markup(written)
        shapes = [[(tag, sorted(attributes)) for tag, attributes in each.tags] for each in (page, plain)]
        assert shapes[0] == shapes[1]
        urls = {each[name] for _, each in page.tags for name in ("href", "src") if name in each}
        assert all(str(url).startswith("#") for url in urls), urls
        assert not {sign for sign in written if not sign.isprintable()} - {"\n"}
        markdown = as_markdown(made, HUB)
        outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown)
        assert not re.search(r"[<\[]", outside), outside
        assert markdown.count("\n# ") == 0
        for row in csv.reader(io.StringIO(as_csv(made, HUB))):
            assert not any(cell.startswith(("=", "+", "@")) for cell in row)
        document = json.loads(as_json(made))
        assert document["refuted"][0]["repo"] == document["unread"][0]["file"] == payload
