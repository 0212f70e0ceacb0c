"""Ten thousand integrations: their start, a change of one, a decision of each. `python -m tests.bench.many_policies`.

The real service with two and with three workers, on a folder of 10,000 files with three identities and three tests
each. Compared values are measured in turn, and the median of seven pairs is printed. CPU is the sum of all processes of the
service, by the scheduler's count.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port, settings_for
from issuer.policy.authoring.load import load_policies
from issuer.service.signing.keyring import generate
from tests.bench.policy import URL, judging, write_many
from tests.support.http_load import Run, drive, request
from tests.support.processes import cpu_s, family
from tests.support.running import BODY, listening_on, serve, start
from tests.support.waiting import eventually

COUNT = int(os.environ.get("BENCH_POLICIES", "10000"))
PAIRS = 7
# A change is taken after two equal looks, a second apart; then every worker gets it.
WINDOW_S = 4.0
# The service looks at the folder every second, at half the cost of an edit: with one edit a window, two windows would differ
# by a look. So a window has several edits, and the other window is as long without one.
EDITS, EDIT_S = 5, 3.0
CONNECTIONS, PAUSE_S = 8, 0.02


def own_mb(pid: int) -> tuple[float, float]:
    """Return the private megabytes of a process, and its proportional set size."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    kb = {name: int(value) for name, value, _ in lines}
    return (kb["Private_Dirty:"] + kb["Private_Clean:"]) / 1024, kb["Pss:"] / 1024


def window(seconds: float) -> None:
    """Let a measured stretch of time pass."""
    threading.Event().wait(seconds)


@contextmanager
def service(folder: Path, workers: int, port: int) -> Iterator[tuple[int, float]]:
    """Run the service; yield its pid, and the CPU seconds until all of its workers listened."""
    settings = settings_for(folder, port)
    process = start(settings, folder, serve(workers))
    try:
        eventually(lambda: process.poll() is not None or listening_on(port) == workers, 600)
        assert process.poll() is None, (folder / "service.log").read_text()[-2000:]
        window(1.0)  # the first work of a worker
        yield process.pid, cpu_s(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def workers_of(pid: int) -> list[int]:
    """Return the children with an event loop: the process that follows the policies has none."""
    return [each for each in family(pid)[1:] if "anon_inode:[eventpoll]" in _opened_by(each)]


def _opened_by(pid: int) -> set[str]:
    return {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if os.path.lexists(path)}


def requests_of(provider: LocalProvider, port: int, numbers: Iterable[int]) -> list[bytes]:
    """Make a request of each of these integrations, with an identity token of now."""
    raw, url = msgspec.json.encode(BODY), settings_for(Path(), port).url
    claims = {"repository_owner_id": "6", "runner_environment": "github-hosted"}
    return [
        request("/tokens", provider.token(url, alg="ES256", repository_id=str(number), **claims), raw)
        for number in numbers
    ]


def bench_start(folder: Path, provider: LocalProvider) -> None:
    """Print the cost of a start, and the private memory of a worker after a request of every integration."""
    print(f"\n{COUNT} integrations with three tests each")
    for workers in (2, 3):
        port = free_port()
        with service(folder, workers, port) as (pid, started_s):
            fresh = [own_mb(each)[0] for each in workers_of(pid)]
            run = drive(port, requests_of(provider, port, range(COUNT)), CONNECTIONS)
            assert set(run.statuses) <= {200, 201}, run.statuses
            used = [own_mb(each) for each in workers_of(pid)]
        print(f"  {workers} workers: start {started_s:.1f} s of CPU in all processes")
        owned, shared = (_list(column) for column in zip(*used, strict=True))
        print(
            f"    of each worker's own: {_list(fresh)} MB at the start; {owned} MB (PSS {shared}) after {COUNT} asked"
        )


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values)


def bench_edit(folder: Path, provider: LocalProvider) -> None:
    """Print the cost of one changed file, in CPU and in others' latency."""
    file = folder / "policies" / f"framework-{COUNT // 2}.yaml"
    text, turns = file.read_text("utf-8"), iter(range(1000))

    def edit() -> None:
        file.write_text(text.replace("ttl_s: 3600", f"ttl_s: {3000 + next(turns)}"), "utf-8")

    port = free_port()
    with service(folder, 2, port) as (pid, _):
        requests = requests_of(provider, port, range(0, COUNT, max(1, COUNT // 2000)))
        drive(port, requests, CONNECTIONS)
        spent = [(_spent(pid, edit) - _spent(pid, lambda: None)) / EDITS for _ in range(PAIRS)]
        per_window = int(CONNECTIONS * WINDOW_S / (PAUSE_S + 0.003))
        quiet, busy = [], []
        for turn in range(PAIRS):
            batch = [requests[(turn * 2 * per_window + at) % len(requests)] for at in range(2 * per_window)]
            quiet.append(_worst_p99(drive(port, batch[:per_window], CONNECTIONS, PAUSE_S)))
            edit()
            busy.append(_worst_p99(drive(port, batch[per_window:], CONNECTIONS, PAUSE_S)))
    own_ms = _own_ms(folder, file)
    ratios = [after / before for before, after in zip(quiet, busy, strict=True)]
    print(f"\none file of {COUNT} is edited (2 workers)")
    print(
        f"  CPU of all processes, an edit of {EDITS}: {statistics.median(spent) * 1000:.0f} ms, the file's own {own_ms:.0f} ms;"
        f" single pairs {_list(each * 1000 for each in sorted(spent))}"
    )
    print(
        f"  p99 of the worst second: {statistics.median(quiet):.1f} ms without, {statistics.median(busy):.1f} ms with;"
        f" ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def _spent(pid: int, work: Callable[[], object]) -> float:
    """Return the CPU seconds of all processes in a window with several calls of this function."""
    before = cpu_s(pid)
    for _ in range(EDITS):
        work()
        window(EDIT_S)
    return cpu_s(pid) - before


def _worst_p99(run: Run) -> float:
    """Return the p99 in milliseconds of the second in which it was the worst."""
    size = max(1, int(run.per_s))
    seconds = [sorted(run.taken_s[at : at + size]) for at in range(0, len(run.taken_s) - size + 1, size)]
    return max(second[int(len(second) * 0.99)] for second in seconds) * 1000


def _own_ms(folder: Path, file: Path) -> float:
    """Return the cost of reading, judging and testing one file alone, in milliseconds of CPU."""
    with tempfile.TemporaryDirectory() as name:
        for path in (folder / "policies" / "providers.yaml", file):
            Path(name, path.name).write_bytes(path.read_bytes())
        taken = []
        for _ in range(PAIRS):
            began = time.process_time()
            load_policies(Path(name), URL, development=True)
            taken.append(time.process_time() - began)
    return statistics.median(taken) * 1000


def bench_decision(folder: Path) -> None:
    """Print the cost of decisions of many integrations, beside those of one, in turn."""
    policies = load_policies(folder / "policies", URL, development=True)
    provider = next(each for each in policies.providers.values() if each.id == "github-actions")
    one = judging(policies, provider, [COUNT // 2])
    each = judging(policies, provider, list(range(COUNT)))
    _per_call_us(each, COUNT)  # an integration's first request costs more
    pairs = [(_per_call_us(one, COUNT), _per_call_us(each, COUNT)) for _ in range(PAIRS)]
    ones, others = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(other / same for same, other in pairs)
    print(f"\na decision among {COUNT}: {ones:.1f} us of one, {others:.1f} us of each in turn; ratio {ratio:.2f}")


def _per_call_us(work: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as name, LocalProvider() as provider:
        folder = Path(name)
        (folder / "policies").mkdir()
        write_many(folder / "policies", COUNT, tested=True)
        providers = f'version: 1\nproviders:\n  github-actions: {{profile: "github-actions", issuer: "{provider.issuer}", algorithms: ["ES256", "RS256"]}}\n'
        (folder / "policies" / "providers.yaml").write_text(providers, "utf-8")
        generate(folder / "keys", "active")
        bench_decision(folder)
        bench_start(folder, provider)
        bench_edit(folder, provider)


if __name__ == "__main__":
    main()
