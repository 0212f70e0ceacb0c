"""The pages of deploy/, without the log's: an operator's folder, and the service that is started in it."""

import asyncio
import gzip
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from structlog.testing import capture_logs

from issuer.dev.sandbox import free_port
from issuer.policy.authoring.load import load_policies
from issuer.service.audit.sink import FileAudit
from issuer.verify.trust import read_trust_file, sources
from tests.support.command import clean
from tests.support.decisions import decision
from tests.support.pages.blocks import Block
from tests.support.pages.story import DONE, Story, World
from tests.support.running import until_live
from tests.support.shared import ROOT


@contextmanager
def first_hour(folder: Path) -> Iterator[World]:
    """Give an empty folder, and a port that is free."""
    port = free_port()
    yield World(folder, here={":8000": f":{port}", "port 8000": f"port {port}"}, env={"ISSUER_METRICS_PORT": "0"})


def it_goes_on_running(world: World, block: Block) -> object:
    """Start the service, and wait until it answers. It ends with the story."""
    pid = serve_until_closed(world, block, world.folder / "first", int(world.here[":8000"][1:]))
    world.env["PID"] = str(pid)
    return DONE


def serve_until_closed(world: World, block: Block, folder: Path, port: int) -> int:
    """Start the service of a block in a folder, wait until it answers on its port, and return its process id."""
    command = block.text.split()
    assert command[0] == "issuer"
    with (folder / "service.log").open("wb") as log:
        env = {**clean(), **world.env}
        process = subprocess.Popen([sys.executable, "-m", *command], cwd=folder, stdout=log, stderr=log, env=env)
    world.closing.callback(process.wait, 60)
    world.closing.callback(process.terminate)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        until_live(http, process, folder)
    return process.pid


def readiness(world: World, block: Block) -> None:
    """Hold an example of readiness to the members that the service has; it has no log."""
    with urllib.request.urlopen(f"http://127.0.0.1{world.here[':8000']}/health/ready") as answer:
        real = json.load(answer)
    shown = json.loads(block.text)
    assert set(shown) <= {*real, "log"}
    assert not [name for name in {*shown} - {"log"} if _members(shown[name]) != _members(real[name])]


def _members(value: Any) -> Any:
    return sorted(value) if isinstance(value, dict) else type(value)


def a_trust_file(world: World, block: Block) -> None:
    """Read a trust file that names one issuer's keys and archive."""
    found = list(sources(read_trust_file(block.text.encode(), "trust.yaml")))
    assert found == ["/issuers/0/keys", "/issuers/0/archive"]


@contextmanager
def desk(folder: Path) -> Iterator[World]:
    """Give an operator's folder, with an audit in two files and its heads in the log stream."""
    (folder / "etc").mkdir()
    write_audit(folder / "data")
    yield World(folder, here={"/etc/issuer": str(folder / "etc")})


def write_audit(data: Path) -> None:
    """Have the service's own sink write events, before and after the file is rotated."""
    data.mkdir()
    audit = FileAudit(data / "audit.jsonl")
    with capture_logs() as lines:
        asyncio.run(_record(audit, 40))
        rotated = (data / "audit.jsonl").rename(data / "audit.jsonl.1")
        asyncio.run(_record(audit, 13))
        audit.close()
    (data / "audit.jsonl.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    (data.parent / "service.log").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


async def _record(audit: FileAudit, count: int) -> None:
    for number in range(count):
        await audit.record(decision(number))


def a_provider_of_tokens(world: World, block: Block) -> None:
    """Add the provider to the sample policies, and load them."""
    policies = world.folder / "policies"
    shutil.copytree(ROOT / "policies", policies)
    with (policies / "providers.yaml").open("a") as providers:
        providers.write(block.text.removeprefix("providers:\n"))
    found = load_policies(policies, "https://issuer.example").providers.values()
    assert "pat" in [provider.id for provider in found]


RUNNING = {
    "it goes on running": it_goes_on_running, "readiness": readiness,
    "a trust file": a_trust_file,
}  # fmt: skip
STORIES = (
    Story("deploy/README.md", first_hour, RUNNING, long=True, tools=("curl",)),
    Story("deploy/CREDENTIALS.md", desk, {"a provider of personal access tokens": a_provider_of_tokens}),
    Story("deploy/AUDIT.md", desk),
    Story("deploy/STATE.md", desk),
)
