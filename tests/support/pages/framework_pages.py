"""The pages of a framework's CI, of issuer/client, issuer/adapters and issuer/results, and VERIFIED.md: a job beside a real issuer, which
knows its workload identity, a personal access token of it and an OAuth client; and a Hub that has the model. And README.md
and what `make demo` shows: a checkout, and such a job."""

import atexit
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from issuer.dev.provider import LocalProvider
from tests.support.hub_server import HubServer
from tests.support.oauth_server import CLIENT_SECRET
from tests.support.pages.blocks import Block
from tests.support.pages.story import Story, World
from tests.support.reusable import Issuers, create_pat, issuers
from tests.support.running import BODY, Running, running
from tests.support.runs import DATA, MODEL_COMMIT, edited, zipped
from tests.support.shared import ROOT
from tests.support.submitting import BENCHMARK, fill

LOG = (DATA / "inspect_two_scorers.json").read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")
RUN = edited(LOG, "/eval/task", "gsm8k")
# The Makefile itself, with the environment that this test has.
MAKE = f'make() {{ command make -s -C {ROOT} -o .venv/run.done BIN={Path(sys.executable).parent} "$@"; }}'
INSTALL = "Install"


class Site(NamedTuple):
    """An issuer that runs, those of credentials that it knows, and the Hub."""

    live: Running
    known: Issuers
    hub: HubServer


@cache
def site() -> Site:
    """Start them once for all stories; they end with this process."""
    stack = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="issuer-pages-")))
    atexit.register(stack.close)  # so that it runs before the folder's own finalizer
    local = stack.enter_context(LocalProvider())
    known = stack.enter_context(issuers(local))
    known.write(folder)
    return Site(stack.enter_context(running(folder, local)), known, stack.enter_context(HubServer()))


@contextmanager
def job(folder: Path) -> Iterator[World]:
    """Give what a job has at its end: a run, its claims, secrets in files, and the variables of its CI."""
    live, known, hub = site()
    fill(hub, benchmark=BENCHMARK.replace(b"gsm8k_mini", b"gsm8k"))
    log = json.loads(RUN)
    header = {name: value for name, value in log.items() if name not in ("samples", "reductions")}
    files = {
        "claims.json": json.dumps(BODY["claims"]).encode(),
        "token.txt": f"{create_pat(live.folder)}\n".encode(),
        "secret.txt": CLIENT_SECRET.encode(),
        "run.json": RUN,
        "logs/run.json": RUN,
        "logs/2026-11-21_gsm8k.eval": zipped([("header.json", json.dumps(header).encode())]),
    }
    for name, raw in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(raw)
    urls = {
        "https://huggingface.co/": f"{hub.url}/",
        "https://issuer.example": live.url,
        "https://login.example": known.opaques.issuer,
    }
    own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token()}
    env = {**live.provider.environment, **own, "CI_PIPELINE_ID": "1", "CI_JOB_NAME": "evaluate", "ISSUER_URL": live.url}
    commits = {'"9f3c..."': f'"{MODEL_COMMIT}"'}
    yield World(folder, env, {**urls, **commits, "--client-id ci": f"--client-id {known.opaques.client_id}"})


@contextmanager
def at_work(folder: Path) -> Iterator[World]:
    """Give a job that has a run, and knows the commit of its model."""
    with job(folder) as world:
        world.env["COMMIT"] = MODEL_COMMIT
        yield world


@contextmanager
def checkout(folder: Path) -> Iterator[World]:
    yield World(folder, prelude=MAKE)


def install(world: World, block: Block) -> None:
    subprocess.run([sys.executable, "-m", "venv", world.folder / "venv"], check=True)
    world.here["pip install"] = f"cd {ROOT} && {world.folder}/venv/bin/pip install -q"


STORIES = (
    Story("README.md", at_work, but=(INSTALL,), long=True),
    Story("README.md", checkout, {"with pip": install}, only=(INSTALL,), long=True),
    Story("issuer/dev/DEMO.md", checkout, long=True),
    *(Story(f"issuer/{room}/README.md", job) for room in ("adapters", "results")),
    Story("issuer/client/README.md", job, tools=("curl", "jq")),
    Story("issuer/client/README.md", job, but=("With an OAuth client",)),
    Story("VERIFIED.md", job, long=True, tools=("curl",)),
)
