"""policies/REFERENCE.md: its transcripts, on a copy of the folder; its examples are a folder. And the walk
of policies/README.md, from nothing to a token, with `issuer dev` in another terminal."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from issuer.formats.strict_json import JSON
from issuer.policy.authoring.load import load_policies
from tests.support.audited import recorded
from tests.support.dev import running_dev
from tests.support.pages.blocks import Block
from tests.support.pages.said import Names, matches
from tests.support.pages.shell import transcript
from tests.support.pages.story import Story, World
from tests.support.policies import submission
from tests.support.shared import ROOT

URL = "https://issuer.example.org"


def write_audit(folder: Path) -> None:
    """Record three decisions of the sample policies by the real line's audit."""
    policies = load_policies(folder / "policies", URL)
    claims: dict[str, JSON] = {
        "iss": "https://token.actions.githubusercontent.com", "repository_id": "700000001",
        "repository_owner_id": "600000001", "ref": "refs/heads/main", "event_name": "push",
        "repository": "example-org/inspect-evals", "repository_owner": "example-org",
        "runner_environment": "github-hosted",
        "workflow_ref": "example-org/inspect-evals/.github/workflows/nightly.yml@refs/heads/main",
    }  # fmt: skip
    lines = [
        recorded(policies, submission(), claims=claims),
        recorded(policies, submission(version="0.3.150"), claims=claims),
        recorded(policies, submission(benchmark="a/b"), claims=claims),
    ]
    events = [{**msgspec.json.decode(line), "request_id": f"r-{number}"} for number, line in enumerate(lines, 1)]
    (folder / "audit.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


@contextmanager
def samples(folder: Path) -> Iterator[World]:
    """Give a copy of the sample policies, and an audit of three decisions; the page's own files must be a good folder."""
    shutil.copytree(ROOT / "policies", folder / "policies")
    write_audit(folder)
    yield World(folder, files=Path("examples"))
    load_policies(folder / "examples", URL)


@contextmanager
def nothing(folder: Path) -> Iterator[World]:
    """Give an empty folder; the page's own files must be a good one."""
    yield World(folder, env={"XDG_STATE_HOME": str(folder / "state")}, files=Path("examples"))
    load_policies(folder / "examples", URL)


def start(world: World, block: Block) -> None:
    """Run the command of a block in another terminal, until it says what the block shows and is ready."""
    (command,) = transcript(block.text)
    said = world.closing.enter_context(running_dev(world.folder, *command.line.split()[2:], **world.env))
    assert matches(command.shown, said, Names()), said


STORIES = (
    Story("policies/REFERENCE.md", samples),
    Story("policies/README.md", nothing, {"in another terminal": start}, long=True),
)
