"""`make bench`: what the primitives and the line cost, as CPU per operation and as ratios within one run.

Compare rows, never absolutes: the machine's speed drifts from hour to hour, ratios do not.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import rfc8785
import yaml

from issuer.dev.provider import LocalProvider
from issuer.formats import jcs, jose
from issuer.formats.strict_json import loads
from issuer.io import keyfile
from issuer.issuance.counting import countable
from issuer.issuance.events import issued_event
from issuer.issuance.issue import answer, use_of
from issuer.issuance.judge import judge, read_request
from issuer.issuance.ports import Authority, NoLog
from issuer.issuance.steps import NO_SIGNALS, Arrival, Issued, Judged, Registered, StoreSecret
from issuer.limits.rate import Rate
from issuer.limits.sources import Allowance, Sources
from issuer.policy.authoring.load import load_policies
from issuer.policy.match import resolve
from issuer.results.entry import read_entries
from issuer.service.audit.sink import FileAudit
from issuer.service.authn.authenticator import ProviderAuthenticator, SignedTokens
from issuer.service.authn.keysets import KeySets, ProviderFetcher
from issuer.token.verify_token import compose
from issuer.verify import Context, verify_entries
from issuer.verify.report import Report
from issuer.verify.trust import Trust, TrustedIssuer
from tests.bench.adapters import bench_adapters
from tests.bench.bulk import bench_bulk, bench_logged
from tests.bench.interpreter import describe
from tests.bench.pat import bench_pats
from tests.bench.policy import bench_policies
from tests.support.keyrings import load_keyring
from tests.support.running import BODY, Running, numbered, running, write_folder

SECONDS = 0.4


def cpu_us(work: Callable[[], object]) -> float:
    """Return the median CPU microseconds of one call, over seven batches."""
    work()
    began, count = time.process_time(), 0
    while time.process_time() - began < SECONDS / 7:
        work()
        count += 1
    batches = []
    for _ in range(7):
        began = time.process_time()
        for _ in range(count):
            work()
        batches.append((time.process_time() - began) / count * 1e6)
    return sorted(batches)[3]


def row(name: str, us: float, floor: float | None = None) -> None:
    ratio = f"{us / floor:6.2f} x floor" if floor else ""
    print(f"  {name:<58}{us:9.1f} us  {ratio}")


def bench_primitives() -> tuple[float, float]:
    """Print what signatures cost alone; return sign and verify of Ed25519."""
    print("\nprimitives (CPU of one call)")
    key = keyfile.generate()
    message = os.urandom(1500)
    signature = key.sign(message)
    public = key.public_key()
    sign, check = cpu_us(lambda: key.sign(message)), cpu_us(lambda: public.verify(signature, message))
    row("Ed25519 sign", sign)
    row("Ed25519 verify", check)
    claims = BODY["claims"]
    row("RFC 8785 by the rfc8785 package", cpu_us(lambda: rfc8785.dumps(claims)))
    row("RFC 8785 by issuer.formats.jcs", cpu_us(lambda: jcs.canonical(claims)))
    raw = msgspec.json.encode(BODY)
    row("strict_json.loads of a body", cpu_us(lambda: loads(raw, max_bytes=65536, max_depth=16)))
    return sign, check


def bench_line(folder: Path, provider: LocalProvider, sign: float) -> None:
    """Print what each pure step of the line costs."""
    print("\nthe line, step by step (one request of /tokens, no network)")
    write_folder(folder, provider)
    url = "http://127.0.0.1:1"
    policies = load_policies(folder / "policies", url, development=True)
    keyring = load_keyring(folder / "keys")
    now = int(time.time())

    async def steps() -> None:
        keysets = KeySets(ProviderFetcher(development=True))
        sources = Sources(Rate(600, 60, 600))
        authenticator = ProviderAuthenticator(
            policies.providers, SignedTokens(keysets), {}, sources, lambda: now * 10**9
        )
        identity = provider.token(url)
        caller = await authenticator.authenticate(identity, "127.0.0.1", now)
        listed = next(iter(policies.providers.values()))
        key = await keysets.find(listed, provider.rs256.kid, Allowance("127.0.0.1"))
        jws = jose.parse_compact(identity)
        bare = cpu_us(lambda: key.verifies("RS256", jws.signing_input, jws.signature))
        row("RS256 signature alone (floor of the next row)", bare)
        row("authenticate", cpu_us(lambda: _run(authenticator.authenticate(identity, "127.0.0.1", now))), bare)
        raw = msgspec.json.encode(BODY)
        request = read_request("single", raw)
        row("read_request", cpu_us(lambda: read_request("single", raw)))
        registration = resolve(policies, caller)
        row("resolve", cpu_us(lambda: resolve(policies, caller)))
        parts: Any = (authenticator, None, None, None, NoLog(), keyring, None, None, None, None, None)
        authority = Authority(url, policies, *parts)
        arrival, secret = Arrival("0" * 32, "/tokens", "127.0.0.1", now), StoreSecret(bytes(32))
        registered = Registered.of(arrival, caller, registration, secret)
        row("the caller's checks", cpu_us(lambda: Registered.of(arrival, caller, registration, secret)))
        judged = judge(authority, registered, request, "A" * 22)
        assert isinstance(judged, Judged)
        granted, draft = judged, judged.draft
        row("judge (decide, draft, size)", cpu_us(lambda: judge(authority, registered, request, "A" * 22)))
        row("use_of (request digest)", cpu_us(lambda: use_of(granted, keyring.usable_kids)))
        row("what is counted", cpu_us(lambda: countable(registered, request)))
        row("compose", cpu_us(lambda: compose(draft, request.submissions, batch=False)))
        (unsigned,) = composed = compose(draft, request.submissions, batch=False)
        row("sign", cpu_us(lambda: _run(keyring.sign(draft.kid, (unsigned.signing_input,)))), sign)
        (signature,) = await keyring.sign(draft.kid, (unsigned.signing_input,))
        signed = (jose.compact(unsigned.signing_input, signature),)
        row(
            "answer (token and entry put together)",
            cpu_us(lambda: tuple(answer(granted, draft, NO_SIGNALS, composed, signed, ()))),
        )
        issued = Issued(tuple(answer(granted, draft, NO_SIGNALS, composed, signed, ())), repeat=False)
        event = issued_event(granted, issued)
        row("issued_event", cpu_us(lambda: issued_event(granted, issued)))
        audit = FileAudit(folder / "audit.jsonl")
        row("the audit's line, written", cpu_us(lambda: _run(audit.record(event))))
        audit.close()
        batch = msgspec.json.encode({"results": [numbered(number) for number in range(100)]})
        many = read_request("batch", batch).submissions
        row("batch of 100: read_request, per token", cpu_us(lambda: read_request("batch", batch)) / 100)
        row("batch of 100: compose, per token", cpu_us(lambda: compose(draft, many, batch=True)) / 100)
        await keysets.aclose()

    asyncio.run(steps())


def _run(awaitable: object) -> object:
    """Drive a coroutine that never waits to its end."""
    try:
        awaitable.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


def bench_http(live: Running, sign: float) -> None:
    """Print what the server process spends per request, driven over HTTP with fresh identities."""
    print("\nthe service over HTTP (CPU of the server process per request; its embedded store not counted)")
    for name, count, workers in (("POST /tokens, 1 connection", 400, 1), ("POST /tokens, 16 connections", 1600, 16)):
        identities = [live.token() for _ in range(count)]
        with ThreadPoolExecutor(workers) as pool:
            began, wall = _cpu_s(live.process.pid), time.monotonic()
            answers = list(
                pool.map(lambda pair: live.post(pair[1], numbered(pair[0])).status_code, enumerate(identities))
            )
            spent, wall = _cpu_s(live.process.pid) - began, time.monotonic() - wall
        assert set(answers) == {201}, set(answers)
        row(f"{name} ({count / wall:.0f}/s, the client included)", spent / count * 1e6)
    batch = {"results": [numbered(number) for number in range(100)]}
    identities = [live.token() for _ in range(20)]
    began = _cpu_s(live.process.pid)
    for identity in identities:
        assert live.post(identity, batch, "/tokens/batch").status_code == 201
    row("POST /tokens/batch of 100, per token", (_cpu_s(live.process.pid) - began) / 2000 * 1e6, sign)
    began = _cpu_s(live.process.pid)
    for _ in range(500):
        live.http.get("/.well-known/jwks.json")
    row("GET /.well-known/jwks.json", (_cpu_s(live.process.pid) - began) / 500 * 1e6)
    rss = int(Path(f"/proc/{live.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    print(f"  resident memory of the server process: {rss:.0f} MiB")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench_verify(live: Running, check: float) -> None:
    """Print what judging a file costs beside its floor: one Ed25519 verification and one load by libyaml."""
    print("\nissuer.verify (one file of one entry)")
    entry = live.post(live.token()).json()["entry"].encode()
    keys = jose.parse_key_set(live.http.get("/.well-known/jwks.json").content)
    trust = Trust("https://huggingface.co", {live.url: TrustedIssuer(live.url, keys)})
    load = cpu_us(lambda: yaml.load(entry, yaml.CSafeLoader))
    row("floor: Ed25519 verify + yaml.CSafeLoader", check + load)
    now = int(time.time())

    def judged() -> tuple[Report, ...]:
        return verify_entries(
            read_entries(entry, "e"), "acme/open-model", ".eval_results/gsm8k.yaml", trust, now, Context(now)
        )

    assert judged()[0].verdict == "verified"
    row("read_entries + verify_entries", cpu_us(judged), check + load)


def main() -> None:
    """Run everything."""
    print(describe())
    sign, check = bench_primitives()
    bench_policies(cpu_us, row)
    bench_pats(cpu_us, row)
    with tempfile.TemporaryDirectory() as folder, LocalProvider() as provider:
        bench_line(Path(folder) / "line", provider, sign)
        with running(Path(folder) / "service", provider) as live:
            bench_http(live, sign)
            bench_verify(live, check)
    bench_bulk()
    bench_logged()
    bench_adapters()


if __name__ == "__main__":
    main()
