"""Large bodies from one caller, the worst that are known, and a good caller of another integration beside it."""

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import msgspec

from issuer.token.wire import MAX_BYTES, MAX_RESULTS, MAX_VALUES, Kind
from tests.support.http_load import Run, drive, request
from tests.support.running import BODY, Running, body, rewrite, singles
from tests.support.waiting import eventually

SENT_BYTES = 14 * 1024 * 1024
# The senders: a caller in good standing, and four refused ones. Each is a separate integration.
CALLERS = ("known", "quarantined", "suspended", "expired", "of another branch")
_NARROW = """limits:
  identity: {count: 1000000, per_s: 60, burst: 50000}
  integration: {count: 1000000, per_s: 60, burst: 50000}
  refusals: {count: 1, per_s: 3600, burst: 1}
"""


def register_callers(folder: Path) -> None:
    policy = (folder / "policies" / "inspect-ai.yaml").read_text("utf-8")
    for number, caller in enumerate(CALLERS):
        name = caller.replace(" ", "-")
        text = policy.replace("integration: inspect-ai", f"integration: {name}")
        text = text.replace('repository_id: "700000001"', f'repository_id: "{number + 5}"')
        if caller == "quarantined":
            text = text.partition("limits:")[0] + _NARROW
        (folder / "policies" / f"{name}.yaml").write_text(text, "utf-8")
    rewrite(folder, "mode: active", "mode: suspended", "suspended.yaml")
    rewrite(folder, "^    require:", "    expires: 2026-01-01\n    require:", "expired.yaml")


def worst(kind: Kind) -> list[bytes]:
    """Return bodies of the largest size and the highest cost of reading. All are refused."""
    claims = msgspec.json.encode(body(benchmark_repo="not/granted")["claims"])

    def of_one(value: bytes) -> bytes:
        """Return one result whose details are full of a value."""
        start = b'{"claims":%b,"details":{"artifacts":[' % claims
        start, end = (b'{"results":[' + start, b"]}}]}") if kind == "batch" else (start, b"]}}")
        times = (MAX_BYTES[kind] - 64 - len(start + end + value)) // (len(value) + 1)
        return start + (value + b",") * times + value + end

    def of_many(value: bytes) -> bytes:
        """Return as many values as are read, in as many results as there may be."""
        most = min(
            MAX_VALUES - 30, (MAX_BYTES[kind] // (MAX_RESULTS if kind == "batch" else 1) - 600) // (len(value) + 1)
        )
        results = [
            b'{"claims":%b,"details":{"notes":"%d","artifacts":[%b]}}' % (claims, number, b",".join([value] * most))
            for number in range(MAX_RESULTS if kind == "batch" else 1)
        ]
        return b'{"results":[%b]}' % b",".join(results) if kind == "batch" else results[0]

    def of_texts(text: bytes) -> bytes:
        """Return results that are as large as one may be, in as many as a body has room for."""
        size = MAX_BYTES["single"] - 1000
        results = [
            b'{"claims":%b,"details":{"notes":"%d %b"}}' % (claims, number, (text * size)[:size])
            for number in range(MAX_BYTES[kind] // MAX_BYTES["single"])
        ]
        return b'{"results":[%b]}' % b",".join(results) if kind == "batch" else results[0]

    full = [of_one(value) for value in (b"0", b"0.1", b"[]", b'{"a":0}', b'"\\u0041"', b"[[[[[0]]]]]")]
    read = [of_many(value) for value in (b"[]", b"1e-7", b"[[[[[[0]]]]]]", b'"\\u0041"')]
    texts = [of_texts(text) for text in (b"eyJ", b"token=", b"a")]
    return [*full, *read, *texts, full[0][:-1], full[1].replace(b'"claims"', b'"claims":{},"claims"', 1)]


def requests_of(live: Running, caller: str, connections: int) -> list[bytes]:
    """Return `SENT_BYTES` of requests of one caller; of `/tokens` where there are more connections than batches."""
    kind: Kind = "batch" if connections < 64 else "single"
    branch = {"ref": "refs/heads/evil"} if caller == "of another branch" else {}
    identity = live.token(repository_id=str(CALLERS.index(caller) + 5), **branch)
    path = "/tokens/batch" if kind == "batch" else "/tokens"
    bodies = worst(kind)
    return [request(path, identity, bodies[at % len(bodies)]) for at in range(SENT_BYTES // MAX_BYTES[kind])]


def beside(live: Running, sent: Sequence[bytes], connections: int, at_least: int = 0) -> tuple[Run, Run]:
    """Send a good caller's requests, some fifty a second, for as long as others are sent, and `at_least` so many.

    Returns the good caller's run and the other one.
    """
    good = Run()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(abs, (1,))  # it has started
        sending = pool.apply_async(drive, (live.settings.listen.port, sent, connections))
        while not sending.ready() or len(good.taken_s) < at_least:
            good += drive(live.settings.listen.port, singles(live, "ES256", 10), 2, pause_s=0.04)
        return good, sending.get()


def quiet(live: Running, count: int) -> Run:
    """Send a good caller's requests alone."""
    return drive(live.settings.listen.port, singles(live, "ES256", count), 2, pause_s=0.04)


def is_quarantined(live: Running) -> None:
    """Bring the caller of that name into quarantine."""
    identity = live.token(repository_id=str(CALLERS.index("quarantined") + 5))
    eventually(lambda: live.post(identity, {**BODY, "nonce": "no"}).json()["code"] == "abuse.quarantined")
