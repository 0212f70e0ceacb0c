"""The program that `instructions.py` counts: the real application on a fake transport, and functions to compare with.

`python -m tests.bench.counted FOLDER` runs under callgrind, which writes its counts at each call of `ctermid`, a function of
the C library that only `Marks` calls. The rest is real: the server's protocol, the application, the store behind a socket,
the files. The turns of the background are left out, because the clock causes them.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import structlog
import uvloop
from litestar import Litestar
from msgspec import Struct

from issuer.cli import main as command
from issuer.io import keyfile
from issuer.policy.authoring.load import load_policies
from issuer.relying import bulk
from issuer.service.admission import redis as store
from issuer.service.process import fair_queue
from issuer.service.process.server import server
from issuer.service.settings.background import Background
from issuer.service.settings.log_stream import configure_logging
from issuer.service.settings.model import Settings
from tests.bench.policy import URL, judging
from tests.support.fake_transport import Client
from tests.support.make import NOW

WARM = 20  # caches are full and every path has been taken
REQUESTS = 60
STEPPED = 10
BATCHES = 2
ALONE = 20
INTEGRATIONS = 20
ENTRIES = 128

# The section with the steps, and the rest of its requests.
STEP = "loop, and these marks"
ENTRY = "an entry of `issuer verify DIR`"
# The number of requests.
SINGLES = 2 * WARM + 1 + REQUESTS + STEPPED

# The functions of each step. A call of another step's function is counted for that step.
STEPS: dict[str, tuple[str, ...]] = {
    "read HTTP": ("issuer.service.http.protocol.BoundedProtocol.data_received",),
    "route, Litestar": ("uvicorn.protocols.http.httptools_impl.RequestResponseCycle.run_asgi",),
    "handler": ("issuer.service.http.tokens._answer",),
    "framing, bearer, body": tuple(
        f"issuer.service.http.tokens.{name}" for name in ("check_framing", "bearer_of", "read_whole")
    ),
    "authenticate": ("issuer.service.authn.authenticator.ProviderAuthenticator.authenticate",),
    "check a signature": ("issuer.formats.jose.Key.verifies",),
    "resolve and judge the caller": ("issuer.issuance.identify.resolve", "issuer.issuance.steps.Registered.of"),
    "standing": ("issuer.service.http.tokens.check_standing", "issuer.issuance.issue.check_standing"),
    "read body": ("issuer.issuance.judge.read_in_steps",),
    "decide": ("issuer.issuance.judge.decide_request",),
    "draft, compose, check size": (
        "issuer.issuance.judge.draft_template",
        "issuer.issuance.judge.check_size",
        "issuer.token.verify_token.compose",
    ),
    "claim a use": ("issuer.issuance.issue._claim",),
    # The application has bound `RedisAdmission.admit` and `LiveSigner.sign` when the marks come, so the marks are below.
    "admit": ("issuer.service.admission.redis.RedisAdmission._ask",),
    "sign": ("issuer.service.signing.keyring.KeyringSigner.sign",),
    "result entry": ("issuer.results.entry.Submission.entry",),
    "audit": ("issuer.issuance.issue.issued_event", "issuer.service.audit.sink.FileAudit.record"),
    "render": ("issuer.service.http.tokens.TokenEndpoint.answer",),
    "log line": ("structlog.wrapper.info",),
    "send": ("issuer.service.http.messages.Answer.__call__",),
}


class Made(Struct):
    """The input of a run: settings with the store, and requests, each with its own identity."""

    settings: Settings
    singles: list[bytes]
    batches: list[bytes]


class Counts(Struct):
    """The section and the step of each part of callgrind's counts, and the number of requests of each section."""

    parts: list[tuple[str, str]] = []
    per: dict[str, int] = {}


class Marks:
    """Divides the counts: from one mark to the next they belong to the name on top of the stack."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._stack: list[str] = []
        self._counts_now = False

    def begin(self) -> None:
        """Let callgrind count from now on: the code before is a quarter of the run."""
        subprocess.run(["callgrind_control", "--instr=on", str(os.getpid())], check=True, stdout=subprocess.DEVNULL)
        self._counts_now = True

    def enter(self, name: str) -> None:
        """Begin to count for a name; the lowest one is a section."""
        self._mark()
        self._stack.append(name)

    def leave(self) -> None:
        self._mark()
        self._stack.pop()

    def _mark(self) -> None:
        if self._counts_now:
            self.counts.parts.append((self._stack[0], self._stack[-1]) if self._stack else ("", ""))
            os.ctermid()

    @contextmanager
    def section(self, name: str, per: int) -> Iterator[None]:
        """Count a block for a number of items."""
        self.counts.per[name] = per
        self.enter(name)
        yield
        self.leave()

    def step(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its work counted for a name."""

        @functools.wraps(work)
        def plain(*args: Any, **more: Any) -> Any:
            self.enter(name)
            try:
                return work(*args, **more)
            finally:
                self.leave()

        @functools.wraps(work)
        def in_steps(*args: Any, **more: Any) -> Any:
            self.enter(name)
            try:
                return (yield from work(*args, **more))
            finally:
                self.leave()

        @functools.wraps(work)
        async def awaited(*args: Any, **more: Any) -> Any:
            self.enter(name)
            try:
                return await work(*args, **more)
            finally:
                self.leave()

        if inspect.iscoroutinefunction(work):
            return awaited
        return in_steps if inspect.isgeneratorfunction(work) else plain


def place_of(path: str) -> tuple[Any, str]:
    """Return the module or class of a dotted path, and the last name. Raises AttributeError."""
    head, _, name = path.rpartition(".")
    if head == "structlog.wrapper":
        return structlog.get_config()["wrapper_class"], name
    parts = head.split(".")
    for count in range(len(parts), 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[count:], owner), name
    raise AttributeError(path)


@contextmanager
def marked_steps(marks: Marks) -> Iterator[None]:
    """Have marks around every step of a request."""
    with ExitStack() as stack:
        for name, paths in STEPS.items():
            for path in paths:
                owner, attribute = place_of(path)
                work = getattr(owner, attribute)
                marked = marks.step(name, work)
                bound = inspect.ismethod(work) and not isinstance(owner, ModuleType)
                stack.callback(setattr, owner, attribute, vars(owner)[attribute])
                setattr(owner, attribute, staticmethod(marked) if bound else marked)
        yield


async def count_requests(marks: Marks, made: Made) -> None:
    """Count requests as they are, batches, and then the steps of requests."""
    Background.watch = lambda *_: None  # type: ignore[method-assign]
    # Under callgrind all is slow: no call may run out of time.
    for module, name in (store, "CALL_S"), (store, "PIPELINE_S"), (fair_queue, "SOON_S"):
        setattr(module, name, 3600)
    running = server(made.settings)
    running.config.load()
    running.config.timeout_keep_alive = 3600
    app = running.config.app
    assert isinstance(app, Litestar)
    gc.freeze()  # as the server does
    async with app.lifespan():
        singles, batches = iter(made.singles), iter(made.batches)
        single = Client(running, singles)
        await single.send(WARM)
        marks.begin()
        await single.send()
        with marks.section("POST /tokens", REQUESTS):
            await single.send(REQUESTS)
        batch = Client(running, batches)
        await batch.send()
        with marks.section("a token of a batch of 100", 100 * BATCHES):
            await batch.send(BATCHES)
        with marked_steps(marks):
            marks.enter("warm")
            await single.send(WARM)
            marks.leave()
            with marks.section(STEP, STEPPED):
                await single.send(STEPPED)


def count_alone(marks: Marks) -> None:
    """Count bare signatures and verifications."""
    key, message = keyfile.generate(), bytes(1500)
    public, signature = key.public_key(), key.sign(message)
    public.verify(signature, message)
    with marks.section("Ed25519 sign, bare", ALONE):
        for _ in range(ALONE):
            key.sign(message)
    with marks.section("Ed25519 verify, bare", ALONE):
        for _ in range(ALONE):
            public.verify(signature, message)


def decider(folder: Path) -> Callable[[], object]:
    """Return a warm function that decides, each time on the next integration."""
    policies = load_policies(folder, URL)
    (provider,) = policies.providers.values()
    decide = judging(policies, provider, list(range(INTEGRATIONS)))
    for _ in range(2 * INTEGRATIONS):
        decide()
    return decide


class Here:
    """A pool of workers in this process, because callgrind loses the counts of a killed child. They are counted for `name`."""

    def __init__(self, marks: Marks, name: str) -> None:
        self._marks = marks
        self._name = name

    def __call__(self, _jobs: int, work: Callable[[bytes], bytes]) -> Here:
        self._work = work
        return self

    def __enter__(self) -> Here:
        self._marks.enter(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._marks.leave()

    def map(self, messages: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        return ((message, self._work(message)) for message in messages)


def verify(tree: Path, pool: Here) -> None:
    """Run `issuer verify DIR` in this process. Raises AssertionError unless everything is verified."""
    setattr(bulk, "WorkerPool", pool)  # noqa: B010 (a type, to the type checker)
    trust = tree.with_name("trust.yaml")
    sys.argv = ["issuer", "verify", str(tree), "--trust", str(trust), "--at", str(NOW), "--jobs", "1"]
    try:
        command()
    except SystemExit as end:
        assert not end.code, end.code  # noqa: PT017 (no test)


def main(folder: Path) -> None:
    """Count all inputs of a folder, and write the names of the parts."""
    configure_logging()
    made, marks = msgspec.msgpack.decode((folder / "made").read_bytes(), type=Made), Marks()
    decide = decider(folder / "policies of many")
    verify(folder / "few", Here(marks, "warm"))
    uvloop.run(count_requests(marks, made))
    count_alone(marks)
    with marks.section("a decision", 5 * INTEGRATIONS):
        for _ in range(5 * INTEGRATIONS):
            decide()
    marks.counts.per[ENTRY] = ENTRIES
    verify(folder / "many", Here(marks, ENTRY))
    (folder / "counts").write_bytes(msgspec.msgpack.encode(marks.counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
