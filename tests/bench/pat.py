"""The cost of a personal access token, and the timing of guesses: an unknown id against a wrong secret."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from issuer.errors import Refused
from issuer.identity import pat
from issuer.identity.table import Provider
from issuer.identity.token import Caller
from issuer.limits.sources import Allowance
from issuer.service.authn.bounds import RACY_NS
from issuer.service.authn.pat_records import DAY_S, Order, create
from issuer.service.authn.pats import Pats, PatVerifier

URL = "https://issuer.example"
NOW = 1_795_251_600
TOKENS = 300
CALLS = 10_000
PROVIDER = Provider("pat", "pat", URL, URL, (), 0, 0, 1, "discovery", ())


def bench_pats(cpu_us: Callable[[Callable[[], object]], float], row: Callable[..., None]) -> None:
    """Print both. The two guesses are taken in turns, so that whatever the machine does meets both."""
    print(f"\npersonal access tokens ({TOKENS} of them)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pats"
        known = [_made(folder) for _ in range(TOKENS)]
        verifier = PatVerifier(Pats(folder, lambda: time.time_ns() + 2 * RACY_NS))
        row("digest alone (the floor)", floor := cpu_us(lambda: pat.digest(known[0])))
        row("a good token", cpu_us(lambda: judged(verifier, known[0])), floor)
        unknown, wrong = guess_times(verifier, known)
        row(f"an unknown id, mean of {CALLS:,}", unknown, floor)
        row(f"a wrong secret, mean of {CALLS:,}", wrong, floor)
        print(f"  {'wrong secret / unknown id':<58}{wrong / unknown:9.3f}")


def _made(folder: Path) -> str:
    random = os.urandom(pat.RANDOM_BYTES)
    return create(folder, Order("nightly", ("tokens:issue",), (), DAY_S), now=NOW, random=random)[0]


def guess_times(verifier: PatVerifier, known: list[str]) -> tuple[float, float]:
    """Return the mean CPU microseconds of guesses at unknown ids, and at secrets of known ones.

    CPU with the system's: a wall clock would include a neighbour's time slices.
    """
    unknown = [pat.make(os.urandom(pat.RANDOM_BYTES)) for _ in range(CALLS)]
    wrong = [_with_id(known[number % len(known)], guess) for number, guess in enumerate(unknown)]
    spent: tuple[list[int], list[int]] = ([], [])
    for number, pair in enumerate(zip(unknown, wrong, strict=True)):
        for kind in (0, 1) if number % 2 else (1, 0):  # the second one finds a warmer cache
            began = time.thread_time_ns()
            judged(verifier, pair[kind])
            spent[kind].append(time.thread_time_ns() - began)
    return fmean(spent[0]) / 1000, fmean(spent[1]) / 1000


def _with_id(token: str, guess: str) -> str:
    """Return a well-formed guess at the secret of a token."""
    body = token[:20] + guess[20:-6]
    return body + pat._checksum(body)


def judged(verifier: PatVerifier, bearer: str) -> Caller | None:
    """Verify, as a request does; None where it is refused."""
    try:
        verifier.verify(bearer, PROVIDER, NOW, Allowance("192.0.2.7")).send(None)
    except StopIteration as done:
        caller: Caller = done.value
        return caller
    except Refused:
        return None
    raise AssertionError("it waited")
