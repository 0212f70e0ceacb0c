"""What a running service says at its metrics address, read by Prometheus' own parser; for tests."""

from collections.abc import Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.running import Running
from tests.support.waiting import eventually

# The name of a series, with its labels sorted: ("issuer_requests_total", ("code", "ok"), ...).
Series = tuple[str, frozenset[tuple[str, str]]]


def scraped(live: Running) -> dict[Series, float]:
    return read(httpx.get(f"http://127.0.0.1:{live.settings.metrics.port}/metrics", timeout=20).raise_for_status().text)


def read(text: str) -> dict[Series, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(series: Mapping[Series, float], name: str, **labels: str) -> float:
    """Add up the series of this name that have these labels."""
    wanted = labels.items()
    return sum(value for (found, has), value in series.items() if found == name and wanted <= set(has))


def until_scraped(live: Running, name: str, value: float) -> None:
    """Wait until a series, or the sum of all of that name, has a value."""
    eventually(lambda: total(scraped(live), name) == value)
