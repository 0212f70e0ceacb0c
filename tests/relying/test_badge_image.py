"""Badges as pictures: their words for eyes and screen readers, and no markup of a stranger."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from msgspec.structs import replace

from issuer.relying.badge_image import COLOURS, label_of, message_of, shields, svg
from issuer.results.entry import Dataset, write_entry
from issuer.verify.report import TIERS, Report
from issuer.verify.tiers import HubFacts
from tests.support import make, reports
from tests.support.in_process import Done, run
from tests.support.tree import write_result, write_trust

URL = "https://huggingface.co/spaces/acme/runs"
SUBMISSION = make.submission({"source": {"url": URL}})
HUB = HubFacts(open_pull_request=False, registered=True)
SVG = "{http://www.w3.org/2000/svg}"


def judged(text: str = make.file_for(SUBMISSION), hub: HubFacts | None = HUB) -> Report:
    known = {(make.BENCHMARK, str(make.claims()["benchmark_revision"])): make.benchmark()}
    return reports.judge(text, hub=hub, benchmarks=known)


def test_a_badge_has_the_hub_s_words_and_the_tier_if_it_says_more() -> None:
    good = judged()
    assert (label_of(good), message_of(good)) == ("gsm8k", "verified, leaderboard, source")
    assert message_of(replace(good, tier="logged")) == "verified, leaderboard, source (logged)"
    assert message_of(judged(write_entry(SUBMISSION.form))) == "leaderboard, source (self-reported)"
    assert message_of(judged(hub=None)) == "verified"
    forged = judged(make.file_for(SUBMISSION).replace("20.9", "99.9"), HubFacts())
    assert message_of(forged) == "source (refuted)"
    root, text = ElementTree.fromstring(svg(good)), "gsm8k: verified, leaderboard, source"
    assert (root.get("role"), root.get("aria-label"), root.findtext(f"{SVG}title")) == ("img", text, text)
    assert [part.text for part in root.iter(f"{SVG}text")] == text.split(": ")
    assert shields(good) == {
        "schemaVersion": 1, "label": "gsm8k", "message": "verified, leaderboard, source", "color": "#1a6f2e",
        "isError": False,
    }  # fmt: skip


def test_a_stranger_s_text_is_not_markup() -> None:
    good = judged()
    for task in ("</title><script>alert(1)</script>", '"><x y="', "a\x00b\ud800\u202e", "x" * 5000):
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


def verify(folder: Path, *arguments: str, text: str = make.file_for(SUBMISSION)) -> Done:
    file = write_result(folder, make.REPO, "gsm8k.yaml", text)
    return run(["verify", str(file), "--repo", make.REPO, "--trust", str(write_trust(folder)), *arguments], folder)


def test_each_entry_gets_a_picture_and_its_data(tmp_path: Path) -> None:
    done = verify(tmp_path, "--at", str(make.NOW), "--badge", str(tmp_path / "out"), text=make.file_for(SUBMISSION) * 2)
    assert done.code in {0, 4}, done.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"gsm8k-{entry}.{kind}" for entry in (0, 1) for kind in ("json", "svg")
    ]
    written: dict[str, Any] = json.loads((tmp_path / "out" / "gsm8k-0.json").read_text())
    assert written["label"] == "gsm8k"
    assert "source" in written["message"]


def test_json_has_the_badges_that_the_given_facts_of_the_hub_decide(tmp_path: Path) -> None:
    (report,) = json.loads(verify(tmp_path, "--json").out)["reports"]
    assert {report["badges"][name] for name in ("community", "leaderboard")} == {"unknown"}
    (report,) = json.loads(verify(tmp_path, "--json", "--open-pull-request", "--not-registered").out)["reports"]
    assert (report["badges"]["community"], report["badges"]["leaderboard"]) == ("yes", "no")


def test_a_broken_definition_or_a_flag_without_effect_has_one_exit_code(tmp_path: Path) -> None:
    definition = tmp_path / "benchmarks" / make.BENCHMARK / str(make.claims()["benchmark_revision"]) / "eval.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text("name: [\n")
    for form in ((), ("--json",), ("--format", "csv"), ("--quiet",)):
        done = verify(tmp_path, "--at", str(make.NOW), "--benchmarks", str(tmp_path / "benchmarks"), *form)
        assert (form, done.code) == (form, 3)
    # A flag without effect is a usage error.
    for flags in (("--registered",), ("--on-main",), ("--badge", "out", "--format", "csv")):
        assert verify(tmp_path, *flags).code == 2
