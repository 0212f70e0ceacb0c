"""Reports for people: every check with its evidence, differing values side by side, and what the answer means."""

import click
import pytest
from click.testing import CliRunner

from issuer.cli.terminal import columns
from issuer.cli.verify.report import show
from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, verify_entries
from issuer.verify.report import NAMES, Report, Status
from issuer.verify.trust import Trust
from tests.support import make

SAID = make.submission()
FILE = make.file_for(SAID)


def judge(
    text: str = FILE, trust: Trust | None = None, at: int = make.NOW, *, witnessed: bool = True
) -> tuple[Report, ...]:
    entries = read_entries(text.encode(), make.PATH)
    return verify_entries(entries, make.REPO, make.PATH, trust or make.trust(), at, Context(at, witnessed=witnessed))


def shown(capsys: pytest.CaptureFixture[str], reports: tuple[Report, ...], name: str = "gsm8k.yaml") -> str:
    show(reports, name, make.NOW + 7200)
    return capsys.readouterr().out


def test_every_check_is_shown_with_its_status_and_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    reports = (*judge(), *judge(FILE.replace("20.9", "21")), *judge(trust=make.trust(keys=None)))
    text = shown(capsys, reports)
    for report in reports:
        for check in report.checks:
            word = "FAIL" if check.status is Status.FAIL else check.status.value
            assert f"  {check.number:>2}  {word:<8}{check.name:<26}{check.evidence}\n" in text
    assert all(name in text for name in NAMES.values())
    text = shown(capsys, judge(FILE.replace("value: 20.9", "value: 21")))
    assert "              token: 20.9\n              here:  21\n" in text, "side by side"
    missing = shown(capsys, judge(FILE.replace('    command: "inspect eval gsm8k"\n', "")))
    assert "token: inspect eval gsm8k\n              here:  absent\n" in missing


def test_each_answer_ends_with_what_it_proves_and_does_not_prove(capsys: pytest.CaptureFixture[str]) -> None:
    late = make.NOW + make.YEAR
    cases = {
        "verified": judge(),
        "not verified: checks 8 and 9 failed": judge(FILE.replace("20.9", "21")),
        "not verified: check 5 failed": judge(at=late),
        "undecided": judge(trust=make.trust(keys=None)),
        "unverified: no token": judge(write_entry(SAID.form)),
    }
    for headline, reports in cases.items():
        lines = shown(capsys, reports).splitlines()
        assert lines[-3] == f"  {headline}"
        assert lines[-2].startswith("  This proves")
        if "5" in headline:  # an expired token does not contradict the file
            assert lines[-2].startswith("  This proves: the file and the token say the same, but")
            assert "--receipts" in lines[-1]
        else:
            assert lines[-1].startswith("  It does not prove that ")
    undecided_value = FILE.replace("  metrics:", "  value: 20.9\n  metrics:", 1)
    assert "the file says" not in shown(capsys, judge(undecided_value, at=late))


def test_the_report_names_the_time_of_receipt_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert "judged as received at 2026-11-18T11:06:40Z:\n" in shown(capsys, judge(at=make.NOW))
    assert "2026-11-18T11:06:40Z, as stated:\n" in shown(capsys, judge(at=make.NOW, witnessed=False))
    assert "Unix second" in shown(capsys, judge(at=2**60))
    assert shown(capsys, ()) == "gsm8k.yaml: no entries\n"
    caller = {"provider": "p" * 5000, "run_id": "1\n  vouched for by another"}
    long = make.file_for(SAID, caller=caller, sub="s" * 2000)
    lines = shown(capsys, judge(long)).splitlines()
    assert (lines[1][:11], lines[2][:19]) == ("  run with ", "  vouched for by ht")
    assert max(map(len, lines[:3])) < 450, "an issuer's text about a caller stays one short line"
    assert "(2 h ago)" in lines[2]


def test_a_terminal_gets_colours_and_lines_that_are_broken_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = (*judge(), *judge(FILE.replace("20.9", "21")), *judge(write_entry(SAID.form)))
    whole = shown(capsys, reports)
    monkeypatch.setattr("issuer.cli.terminal.is_read", lambda: True)
    laid = shown(capsys, reports)
    assert laid.split() == whole.split()
    assert max(map(len, whole.splitlines())) > columns()
    wide = [line for line in laid.splitlines() if len(line) > columns()]
    assert all(len(line.split()) == 1 for line in wide), "a wider value has its own line, to be copied"
    assert all(line.startswith(("  ", "verified", "not verified", "unverified")) for line in laid.splitlines())
    command = click.command()(lambda: show(judge(), "gsm8k.yaml", make.NOW))
    out = CliRunner(env={"NO_COLOR": None}).invoke(command, color=True).stdout
    assert out.startswith("\x1b[32m\x1b[1mverified\x1b[0m: acme/open-model@")
    assert out.count("\x1b[32mpass    \x1b[0m") == 9
    assert out.count("\x1b[32m\x1b[1mverified\x1b[0m") == 2
