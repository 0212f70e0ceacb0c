"""What watches a service: rules and alerts, the runbook, and the dashboard; each tried for its purpose."""

import re
import shlex
import shutil
import subprocess
import sys
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from issuer.cli import cli
from tests.support.shared import ROOT

DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus"
RUNBOOK = DEPLOY / "RUNBOOK.md"
# What the runbook types beside our own command.
OTHERS = {"curl", "df", "du", "free", "journalctl", "logrotate", "ls", "systemctl", "uptime", "valkey-cli"}


@cache
def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def sections() -> dict[str, str]:
    """Return the text under each heading of the runbook."""
    _, *parts = re.split(r"^## (.+)$", RUNBOOK.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def commands(section: str) -> list[str]:
    return [line for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    assert [alert["alert"] for alert in alerts()] == [*sections()]
    for alert in alerts():
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert (ROOT / page, anchor) == (RUNBOOK, alert["alert"].lower())
        assert alert["labels"]["severity"] in {"critical", "warning"}


def test_a_section_is_a_sequence_of_commands_that_are_there() -> None:
    for name, section in sections().items():
        typed = commands(section)
        assert len(typed) >= 2, name
        for line in typed:
            words = shlex.split(line.partition(" | ")[0])
            assert words[0] == "issuer" or words[0] in OTHERS, line
            if words[0] == "issuer":
                parse(words[1:])
    for line in ("keys lst", "keys list --confg x", "revocations renew --days 9"):  # this is how a fault is found
        with pytest.raises((AssertionError, click.ClickException)):
            parse(line.split())


def parse(words: list[str]) -> None:
    """Have our command read its words, without doing anything."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words
        command, words = found, words[1:]
    if words != ["--version"]:
        command.make_context("issuer", words)


def test_what_looks_is_typed_together_and_what_lifts_a_stop_apart_from_it() -> None:
    """An operator who pastes a block at night must not lift a stop that was made for a reason."""
    blocks = re.findall(r"```text\n(.*?)```", sections()["IssuerEverythingStopped"], re.DOTALL)
    assert [line.split()[0] for line in blocks[-1].splitlines()] == ["systemctl"]
    assert not any("systemctl" in block for block in blocks[:-1])
    down = commands(sections()["IssuerDown"])
    assert [line.split()[1] for line in down if line.startswith("issuer ")] == ["config", "doctor"]


def test_without_curl_a_page_is_asked_for_whatever_its_status_is() -> None:
    """Of the container's program, for readiness says what is wrong in an answer that is 503."""
    head = RUNBOOK.read_text("utf-8").partition("\n## ")[0]
    (line,) = re.findall(r"^docker compose exec issuer (python3 .*)$", head, re.MULTILINE)
    words = shlex.split(line)
    with HTTPServer(("127.0.0.1", 0), Unready) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        done = subprocess.run([sys.executable, *words[1:3], str(server.server_port), words[4]],
                              capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout == "not ready: /health/ready\n", done.stderr


class Unready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(f"not ready: {self.path}".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_each_alert_is_tried_where_it_fires_and_where_it_does_not() -> None:
    tests = yaml.safe_load((RULES / "rules_test.yml").read_text("utf-8"))["tests"]
    fires = {case["alertname"]: bool(case["exp_alerts"]) for test in tests for case in test["alert_rule_test"]}
    assert fires.keys() == {alert["alert"] for alert in alerts()}
    assert len(tests) == 2 * len(fires)


@pytest.mark.long
@pytest.mark.needs_tool("promtool")
class TestRules:
    def test_rules_and_alerts_do_what_their_cases_say(self, tmp_path: Path) -> None:
        shutil.copytree(RULES, tmp_path / "rules")
        done = promtool(tmp_path / "rules", "test", "rules", "rules_test.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert promtool(tmp_path / "rules", "check", "config", "prometheus.yml").returncode == 0

    @pytest.mark.parametrize("alert", [alert["alert"] for alert in alerts()])
    def test_an_alert_that_never_fires_or_always_does_is_found(self, tmp_path: Path, alert: str) -> None:
        for never in ("vector(1) > 2", "vector(1)"):
            folder = tmp_path / never.replace(" ", "")
            shutil.copytree(RULES, folder)
            text = (folder / "alerts.yml").read_text("utf-8")
            changed, count = re.subn(rf"(alert: {alert}\n +expr: ).*", rf"\g<1>{never}", text)
            assert count == 1
            (folder / "alerts.yml").write_text(changed, "utf-8")
            assert promtool(folder, "test", "rules", "rules_test.yml").returncode == 1


def promtool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_dashboard_asks_the_source_that_it_was_given() -> None:
    board = msgspec.json.decode((DEPLOY / "grafana" / "issuer.json").read_bytes())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {target["datasource"]["uid"] for panel in panels for target in panel["targets"]} == {"${datasource}"}
    assert all(panel["targets"] for panel in panels)
