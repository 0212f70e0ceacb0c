"""The steps before a command of `tests/situations`: they make files, or set variables of the environment."""

import asyncio
import calendar
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import write_policies
from issuer.policy.authoring.load import load_policies
from issuer.service.audit.sink import FileAudit
from issuer.service.signing.keyring import generate
from tests.support import make
from tests.support.audited import recorded
from tests.support.decisions import decision
from tests.support.policies import NOW, submission
from tests.support.running import BODY, Running, body
from tests.support.tree import write_trust


class World(NamedTuple):
    """A running service, its provider, and a server that is not an issuer, for all situations."""

    service: Running
    provider: LocalProvider
    other: str  # its URL

    def fill(self, text: str) -> str:
        return text.replace("{issuer}", self.service.url).replace("{other}", self.other)


Step = Callable[[Path, World], Mapping[str, str] | None]


class Situation(NamedTuple):
    """One row: the steps before, the command, and its standard input. A step may return variables of the environment."""

    title: str
    command: str
    given: tuple[Step, ...] = ()
    stdin: str = ""


def write(name: str, text: str | bytes) -> Step:
    def step(folder: Path, world: World) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else world.fill(text).encode())

    return step


def edit(name: str, old: str, new: str) -> Step:
    """Replace the first place of a text in a file that is there."""

    def step(folder: Path, _: World) -> None:
        text = (folder / name).read_text("utf-8")
        assert old in text, (name, old)
        (folder / name).write_text(text.replace(old, new, 1), "utf-8")

    return step


def mode(name: str, bits: int) -> Step:
    return lambda folder, _: os.chmod(folder / name, bits)


def variables(**values: str) -> Step:
    def step(_: Path, world: World) -> Mapping[str, str]:
        return {name: world.fill(value) for name, value in values.items()}

    return step


def samples(name: str) -> Step:
    """Write the sample policies, with the local provider, into a folder."""
    return lambda folder, world: write_policies(folder / name, world.provider.issuer)


policies, new_policies = samples("policies"), samples("new")


def audit(folder: Path, world: World) -> None:
    """Record a decision of the sample policies."""
    loaded = load_policies(folder / "policies", "https://issuer.invalid", development=True)
    claims = {name: value for name, value in world.provider.claims().items() if isinstance(value, str | int | bool)}
    (folder / "audit.jsonl").write_bytes(recorded(loaded, submission(), claims=claims))


def chained_audit(folder: Path, _: World) -> None:
    """Record two decisions as a service does."""
    audit = FileAudit(folder / "audit.jsonl")
    with structlog.testing.capture_logs():
        for name in ("first", "second"):
            asyncio.run(audit.record(decision(name)))
        audit.close()


def open_key(folder: Path, _: World) -> None:
    """Let others read the signing key."""
    next(folder.glob("keys/active/*.pem")).chmod(0o644)


def taken_port(folder: Path, world: World) -> None:
    """Have the service's settings name the port of another one."""
    settings = folder / "s.yaml"
    settings.write_text(settings.read_text().replace("port: 0", f"port: {world.service.settings.listen.port}"))


def keys(folder: Path, _: World) -> None:
    generate(folder / "keys", "active")


def run_claims(**changes: Any) -> Step:
    return write("run.json", json.dumps(body(**changes)))


def claims_of(**changes: Any) -> Step:
    """Write the claims of a CI's token, with changes; `...` leaves a claim out."""

    def step(folder: Path, world: World) -> None:
        claims = {**world.provider.claims(), **changes}
        kept = {name: value for name, value in claims.items() if value is not ...}
        (folder / "ci.json").write_text(json.dumps(kept))

    return step


def identity(audience: str = "{issuer}", **claims: Any) -> Step:
    """Have an identity token at hand; a number of `iat`, `nbf` or `exp` is in seconds from now."""

    def step(_: Path, world: World) -> Mapping[str, str]:
        now = int(time.time())
        moved = {name: now + claims[name] for name in ("iat", "nbf", "exp") if name in claims}
        return {"ISSUER_ID_TOKEN": world.provider.token(world.fill(audience), **(claims | moved))}

    return step


def spent_identity(folder: Path, world: World) -> Mapping[str, str]:
    """Have an identity token at hand that another request has used up."""
    token = world.service.token()
    world.service.post(token, {**BODY, "details": {"notes": "another request"}})
    return {"ISSUER_ID_TOKEN": token}


def trust(folder: Path, _: World) -> None:
    """Write a trust file with the key of the tests."""
    write_trust(folder)


def result(text: str = "", name: str = ".eval_results/gsm8k.yaml") -> Step:
    """Write a result file: a good one, or this text."""
    return write(name, text or make.file_for(make.submission()))


_NORMAL = [
    (re.compile(r"127\.0\.0\.1:\d{4,5}"), "127.0.0.1:PORT"),
    (re.compile(r"port \d{4,5}"), "port PORT"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:DIGEST"),
    (re.compile(r"key-[A-Za-z0-9_-]{43}"), "key-KID"),
    (re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"), "KID"),
    (re.compile(r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]*[a-z])(?=[A-Za-z0-9_-]*[A-Z])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"), "ID"),
    (re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"), "WORKER"),
    (re.compile(r"(?<![0-9a-f:])[0-9a-f]{64}(?![0-9a-f])"), "HASH"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\((?:in )?\d+ (?:d|h|min|s)(?: \d+ (?:h|min|s))?(?: ago)?\)"), "(SPAN)"),
]  # fmt: skip
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def normal(text: str) -> str:
    """Replace the values that differ between runs: ports, digests, ids, and the times around now."""
    for pattern, name in _NORMAL:
        text = pattern.sub(name, text)
    return _TIME.sub(lambda found: "TIME" if _is_near(found[0]) else found[0], text)


# The times of tests and examples.
_FIXED = (make.NOW, NOW)


def _is_near(text: str) -> bool:
    moment = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    return abs(moment - time.time()) < 15 * 86_400 and all(abs(moment - fixed) > 2 * 3600 for fixed in _FIXED)
