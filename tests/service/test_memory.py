"""Memory: workers share one copy of the loaded policies, close together; and mixed traffic leaves nothing behind."""

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.large_bodies import CALLERS, beside, is_quarantined, register_callers, requests_of
from tests.support.policies import ISSUER_URL, POLICY, changed, write
from tests.support.running import Running, running, serve, write_folder
from tests.support.soak import judge, soak

# In its own process: other tests would leave holes in the heap.
MEASURED = """
import sys
from pathlib import Path
from issuer.policy.authoring.load import PolicySource
from issuer.service.policies.watcher import Follower
from issuer.service.process.server import settle

def anonymous_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

folder = Path(sys.argv[1])
before = anonymous_kb()
loaded = Follower(PolicySource(folder, sys.argv[2]), folder.parent / "kept")
after = anonymous_kb()
settle()
print(after - before, anonymous_kb() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_the_memory_of_reading_policies_is_freed_before_workers_are_forked(tmp_path: Path) -> None:
    count = 500
    texts = (changed(POLICY, "integration: inspect-ai", f"integration: name-{number}") for number in range(count))
    many = {f"name_{number}": changed(text, '"7"', f'"{number}"') for number, text in enumerate(texts)}
    (tmp_path / "policies").mkdir()
    folder = write(tmp_path / "policies", **many)
    done = subprocess.run([sys.executable, "-c", MEASURED, str(folder), ISSUER_URL], capture_output=True, check=True)
    read_kb, kept_kb = (int(word) / count for word in done.stdout.split())
    assert kept_kb < read_kb - 1.5, "the process frees the text of each file, and the bytes that its digest covers"
    assert kept_kb < 7, "an integration, with the state of its file"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This process")  # forked beside the provider's thread, which the children do not use
def test_twenty_thousand_mixed_requests_leave_nothing_behind(tmp_path: Path) -> None:
    """The short form of `make soak`: memory, descriptors and keys stay bounded, for traffic from many addresses."""
    assert judge(soak(tmp_path, 20_000)) == []


@pytest.fixture
def live(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("large")
    write_folder(folder, provider, es256=True)
    register_callers(folder)
    with running(folder, provider, command=serve(2)) as service:
        yield service


@pytest.mark.long
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
