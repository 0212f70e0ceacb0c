"""The page for who watches the log does what it says: each example is run, in order, against a log over HTTP."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import issuer.relying
from issuer.relying.log_proof import sought_of
from issuer.results.entry import write_entry
from issuer.tlog.watch import AHEAD_S, BEHIND_S, MAX_ANNOUNCED, AlarmName
from tests.support import make
from tests.support.command import issuer as run
from tests.support.tlog import ANNOUNCED, ORIGIN, LogSite, Tree, policy_text, token_leaf

PAGE = (Path(issuer.relying.__file__).parent / "LOG.md").read_text("utf-8")
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for line in block.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[LogSite]:
    """The folder that the examples are run in; the log's URL leads to a server here."""
    now = int(time.time())
    item = make.submission()
    token = make.token_for(item, iat=now, nbf=now, exp=now + 3600, log=ORIGIN)
    sought = sought_of(token)
    assert sought.leaf is not None
    (named,) = re.findall(r"--token ([0-9a-f]{64})", PAGE)
    leaves = [*ANNOUNCED, sought.leaf.to_bytes(), token_leaf(token=bytes.fromhex(named))]
    tree = Tree(leaves, time=now)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/gsm8k.yaml").write_text(write_entry(item.form, token))
    (tmp_path / "witness-policy.txt").write_text(policy_text())
    path = f"proof?iat={sought.iat}&token={sought.token.hex()}"
    with LogSite(tree.files(), {path: tree.proof(2)}) as site, contextlib.chdir(tmp_path):
        yield site


def test_every_command_of_the_page_does_what_it_says(place: LogSite) -> None:
    assert len(COMMANDS) == 7
    for line in COMMANDS:
        name, *arguments = shlex.split(line.replace("https://issuer.example/log", place.url))
        done = run(*arguments)
        assert (name, done.returncode) == ("issuer", 0), (line, done)
    assert list(Path("results").glob("gsm8k.yaml.*.tlog-proof"))
    assert {path.name for path in Path("monitor").iterdir()} == {"inspect-ai", "mine"}


def test_every_alarm_is_on_the_page_with_its_numbers() -> None:
    told = set(re.findall(r"`((?:token|tokens|key|leaf|announcements|checkpoint|log)\.[a-z_]+)`", PAGE))
    assert told == set(get_args(AlarmName))
    assert f"{MAX_ANNOUNCED:,}" in PAGE
    assert f"over {AHEAD_S} s later" in PAGE
    assert f"over {BEHIND_S // 3600} h older" in PAGE
