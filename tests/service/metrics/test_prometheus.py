"""A real Prometheus scrapes a real service under load: every rule, and every question of the dashboard, has an answer."""

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from tests.support.backing_up import backup
from tests.support.in_process import run
from tests.support.logged import Begun
from tests.support.running import Running, begin_history, listening, numbered, serve, write_folder
from tests.support.scraping import scraped, total, until_scraped
from tests.support.shared import ROOT
from tests.support.waiting import eventually
from tests.support.witnessing import witnessing

DEPLOY = ROOT / "deploy"
pytestmark = [pytest.mark.long, pytest.mark.needs_tool("prometheus")]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    """A service of two workers that has everything: a log with a witness, and a signed revocation list."""
    begun = Begun(tmp_path_factory.mktemp("watched"))
    write_folder(begun.folder, provider)
    begin_history(begun.folder)
    done = run(["revocations", "init", "--dir", "keys", "--data", "data"], begun.folder)
    assert done.code == 0, done.err
    with witnessing(begun.folder / "witness", [begun.vkey], "witness.example/w") as witness:
        begun.trust(witness, quorum=1)
        port = free_port()
        with begun.witnessed(provider, command=serve(2), metrics_port=port) as service:
            eventually(lambda: listening(service) == 2)
            backup(service, begun.folder / "backup", begun.folder / "bin")
            until_scraped(service, "issuer_workers", 2)
            yield service


@contextlib.contextmanager
def prometheus(folder: Path, target: int) -> Iterator[httpx.Client]:
    """Run Prometheus with deploy/prometheus/, except for another target and shorter intervals."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
    (scraped,) = config["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": ["issuer:9464"]}]
    scraped["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    own = f"127.0.0.1:{free_port()}"
    names = ("config.file=prometheus.yml", "storage.tsdb.path=tsdb", f"web.listen-address={own}", "log.level=warn")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *(f"--{name}" for name in names)], cwd=folder, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{own}", timeout=10) as http:
            eventually(lambda: is_ready(http))
            yield http
    finally:
        process.terminate()
        process.wait(60)


def is_ready(http: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return http.get("/-/ready").status_code == 200
    return False


def ask(http: httpx.Client, query: str) -> list[Any]:
    answer = http.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    return [each for each in answer["data"]["result"] if each["value"][1] != "NaN"]


def queries() -> list[str]:
    """Return what the dashboard asks, and the recording rules."""
    board = msgspec.json.decode((DEPLOY / "grafana" / "issuer.json").read_bytes())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))["groups"]
    return [*asked, *(rule["record"] for group in groups for rule in group["rules"])]


def test_every_query_of_the_dashboard_and_every_rule_has_an_answer(live: Running, tmp_path: Path) -> None:
    numbers = count()

    def load() -> None:
        for path, sent in (("/tokens", None), ("/tokens", b"{"), ("/tokens/explain", None)):
            live.post(live.token(), numbered(next(numbers)) if sent is None else sent, path)
        live.post("nonsense")

    with prometheus(tmp_path, live.settings.metrics.port) as http:
        left, until = set(queries()), time.monotonic() + 90
        while left and time.monotonic() < until:
            load()
            left = {query for query in left if not ask(http, query)}
        assert not left
        # Which alerts fire is their cases' business; that they are about series that are there is this test's.
        alerts = http.get("/api/v1/rules", params={"type": "alert"}).json()["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in alerts} == {"ok"}, [rule for rule in alerts if rule["health"] != "ok"]
        assert [rule["name"] for rule in alerts if rule["state"] != "inactive"] == []
        named = {name for rule in alerts for name in re.findall(r"\bissuer[_:][a-z0-9_:]+", rule["query"])}
        assert len(named) > 20
        assert not [name for name in named if not ask(http, name)]


def test_what_is_scraped_is_well_formed(live: Running) -> None:
    eventually(lambda: total(scraped(live), "issuer_backup_timestamp_seconds") > 0)
    text = httpx.get(f"http://127.0.0.1:{live.settings.metrics.port}/metrics").text
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert names == set(re.findall(r"^\| `(issuer_[a-z_]+)`", (DEPLOY / "METRICS.md").read_text("utf-8"), re.MULTILINE))
