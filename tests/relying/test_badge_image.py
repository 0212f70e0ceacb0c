"""Badges as pictures: the words that they say, to eyes and to screen readers, and nothing of a stranger's but text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from issuer.relying.badge_image import COLOURS, label_of, message_of, shields, svg
from issuer.results.entry import Dataset, read_entries, write_entry
from issuer.verify import Context, verify_entries
from issuer.verify.report import TIERS, Report
from issuer.verify.tiers import HubFacts
from tests.support import make
from tests.support.in_process import Done, run

URL = "https://huggingface.co/spaces/acme/runs"
SAID = make.submission({"source": {"url": URL}})
HUB = HubFacts(open_pull_request=False, registered=True)
SVG = "{http://www.w3.org/2000/svg}"


def judged(text: str = make.file_for(SAID), hub: HubFacts | None = HUB) -> Report:
    known = {(make.BENCHMARK, str(make.claims()["benchmark_revision"])): make.benchmark()}
    context = Context(make.NOW, hub=hub, benchmarks=known)
    return verify_entries(
        read_entries(text.encode(), make.PATH), make.REPO, make.PATH, make.trust(), make.NOW, context
    )[0]


def test_a_badge_says_what_was_earned_in_the_words_of_the_hub_and_the_tier_where_it_says_more() -> None:
    good = judged()
    assert (label_of(good), message_of(good)) == ("gsm8k", "verified, leaderboard, source")
    assert message_of(replace(good, tier="logged")) == "verified, leaderboard, source (logged)"
    assert message_of(judged(write_entry(SAID.form))) == "leaderboard, source (self-reported)"
    assert message_of(judged(hub=None)) == "verified"
    forged = judged(make.file_for(SAID).replace("20.9", "99.9"), HubFacts())
    assert message_of(forged) == "source (refuted)"


def test_the_picture_says_it_to_eyes_and_to_screen_readers() -> None:
    root = ElementTree.fromstring(svg(judged()))
    said = "gsm8k: verified, leaderboard, source"
    assert (root.get("role"), root.get("aria-label"), root.findtext(f"{SVG}title")) == ("img", said, said)
    assert [text.text for text in root.iter(f"{SVG}text")] == said.split(": ")


def test_the_endpoint_document_says_the_same() -> None:
    assert shields(judged()) == {
        "schemaVersion": 1, "label": "gsm8k", "message": "verified, leaderboard, source", "color": "#1a6f2e",
        "isError": False,
    }  # fmt: skip


@pytest.mark.parametrize("task", ["</title><script>alert(1)</script>", '"><x y="', "a\x00b\ud800\u202e", "x" * 5000])
def test_what_a_stranger_wrote_is_text_and_no_markup(task: str) -> None:
    good = judged()
    report = replace(good, said=replace(good.said, dataset=Dataset(id="acme/x", task_id=task)))
    drawn = svg(report)
    root = ElementTree.fromstring(drawn)
    assert {child.tag for child in root.iter()} == {SVG + name for name in ("svg", "title", "rect", "g", "text")}
    assert len(label_of(report)) <= 60
    assert all(sign.isprintable() or sign == "\n" for sign in drawn)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))


def test_white_text_is_read_on_the_colour_of_each_tier() -> None:
    assert set(COLOURS) == set(TIERS)
    assert all(1.05 / (_luminance(colour) + 0.05) >= 4.5 for colour in COLOURS.values())


# -- issuer verify --badge ------------------------------------------------------------------------------------------------


def verify(folder: Path, *arguments: str, text: str = make.file_for(SAID)) -> Done:
    (folder / "trust.json").write_text(
        json.dumps(
            {
                "version": 1,
                "audience": make.AUDIENCE,
                "issuers": [{"issuer": make.ISSUER, "keys": {"inline": json.loads(make.jwks())}}],
            }
        )
    )
    (folder / ".eval_results").mkdir(exist_ok=True)
    (folder / ".eval_results" / "gsm8k.yaml").write_text(text)
    where = [str(folder / ".eval_results" / "gsm8k.yaml"), "--repo", make.REPO, "--trust", str(folder / "trust.json")]
    return run(["verify", *where, *arguments], folder)


def test_each_entry_gets_a_picture_and_its_data(tmp_path: Path) -> None:
    done = verify(tmp_path, "--at", str(make.NOW), "--badge", str(tmp_path / "out"), text=make.file_for(SAID) * 2)
    assert done.code in {0, 4}, done.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"gsm8k-{entry}.{kind}" for entry in (0, 1) for kind in ("json", "svg")
    ]
    written: dict[str, Any] = json.loads((tmp_path / "out" / "gsm8k-0.json").read_text())
    assert written["label"] == "gsm8k"
    assert "source" in written["message"]


def test_json_has_the_badges_as_far_as_it_is_said_what_only_the_hub_knows(tmp_path: Path) -> None:
    (report,) = json.loads(verify(tmp_path, "--json").out)["reports"]
    assert {report["badges"][name] for name in ("community", "leaderboard")} == {"unknown"}
    (report,) = json.loads(verify(tmp_path, "--json", "--open-pull-request", "--not-registered").out)["reports"]
    assert (report["badges"]["community"], report["badges"]["leaderboard"]) == ("yes", "no")


def test_a_broken_definition_is_told_in_every_form(tmp_path: Path) -> None:
    """Not in that alone which has badges: the exit code is the same in each."""
    definition = tmp_path / "benchmarks" / make.BENCHMARK / str(make.claims()["benchmark_revision"]) / "eval.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text("name: [\n")
    for form in ((), ("--json",), ("--format", "csv"), ("--quiet",)):
        done = verify(tmp_path, "--at", str(make.NOW), "--benchmarks", str(tmp_path / "benchmarks"), *form)
        assert (form, done.code) == (form, 3)


@pytest.mark.parametrize("flags", [("--registered",), ("--on-main",), ("--badge", "out", "--format", "csv")])
def test_what_no_answer_would_show_is_a_usage_error(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert verify(tmp_path, *flags).code == 2
