"""deploy/README.md, but for the transparency log: an operator's folder."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from structlog.testing import capture_logs

from issuer.policy.authoring.load import load_policies
from issuer.service.audit import FileAudit
from issuer.verify.trust import read_trust_file, sources
from tests.support.decisions import decision
from tests.support.pages.blocks import Block
from tests.support.pages.log_chapter import PAGE
from tests.support.pages.story import Story, World
from tests.support.shared import ROOT


@contextmanager
def desk(folder: Path) -> Iterator[World]:
    """Give an operator's folder, with an audit in two files and the heads that the log stream was told."""
    (folder / "etc").mkdir()
    write_audit(folder / "data")
    yield World(folder, here={"/etc/issuer": str(folder / "etc")})


def write_audit(data: Path) -> None:
    """Have the service's own sink write events, before and after the file is rotated."""
    data.mkdir()
    audit = FileAudit(data / "audit.jsonl")
    with capture_logs() as told:
        asyncio.run(_record(audit, 40))
        rotated = (data / "audit.jsonl").rename(data / "audit.jsonl.1")
        asyncio.run(_record(audit, 13))
        audit.close()
    (data / "audit.jsonl.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    (data.parent / "service.log").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in told))


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


def a_trust_file(world: World, block: Block) -> None:
    """Read a trust file that names one issuer's keys and archive."""
    assert list(sources(read_trust_file(block.text.encode(), "trust.yaml"))) == [
        "/issuers/0/keys",
        "/issuers/0/archive",
    ]


NOTES = {"a provider of personal access tokens": a_provider_of_tokens, "a trust file": a_trust_file}
STORIES = (Story(PAGE, desk, NOTES, but=("The transparency log",)),)
