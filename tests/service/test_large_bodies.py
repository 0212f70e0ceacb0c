"""14 MB of the worst bodies from one caller, beside a good one of another integration."""

from collections.abc import Iterator

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.large_bodies import CALLERS, beside, is_quarantined, register_callers, requests_of
from tests.support.running import Running, allow_es256, running, serve, write_folder

pytestmark = pytest.mark.long


@pytest.fixture
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("large")
    write_folder(folder, provider)
    allow_es256(folder)
    register_callers(folder)
    with running(folder, provider, command=serve(2)) as service:
        yield service


@pytest.mark.parametrize("caller", CALLERS)
def test_large_bodies_kill_no_worker_and_delay_no_other_caller(live: Running, caller: str) -> None:
    if caller == "quarantined":
        is_quarantined(live)
    refused = 0
    for connections in (1, 8, 64):
        sent = requests_of(live, caller, connections)
        good, other = beside(live, sent, connections)
        assert good.statuses.keys() == {201}, "each of the good caller's requests was granted"
        assert other.statuses.total() == len(sent), "each was answered"
        assert other.statuses.keys() <= {400, 403, 413, 422, 429}
        refused += other.statuses.total()
    assert live.process.poll() is None
    live.process.terminate()
    assert live.process.wait(60) == 0
    assert "worker hangs" not in live.log_text()
    assert live.log_text().count("worker started") == 2
    events = [event for event in live.audit() if event.get("integration") == caller.replace(" ", "-")]
    single = sum(event["event"] == "decision" and event["verdict"] == "refused" for event in events)
    counted = sum(sum(event["codes"].values()) for event in events if event["event"] == "refusals")
    assert single + counted >= refused
    if caller != "quarantined":  # which has further refusals, from before
        assert single + counted == refused
