"""How many files a reader opens to follow one `POST /tokens`: those below `issuer/` that its code passes through.

The worker and the log's sequencer run in this process, the store behind its socket. A file counts if a Python function of
it ran for the request. Several warm requests are intersected, so a timer that fires during one of them adds nothing.
"""

import asyncio
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import uvloop
from litestar import Litestar

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import begin_log, settings_for
from issuer.io.shared_memory import SharedPage
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.app import Shared
from issuer.service.log.sequencer.setup import log_settings
from issuer.service.process.server import server
from issuer.service.settings.background import Background
from issuer.service.settings.model import Settings, changed
from tests.support.fake_transport import Client, begin_epoch
from tests.support.http_load import request
from tests.support.running import numbered, write_folder
from tests.support.sequencing import served_here
from tests.support.shared import ROOT

# Before the rooms were named the request passed through 66 files, and through 91 with the log.
MOST, MOST_WITH_LOG = 51, 67
WARM = 10
COUNTED = 3
PACKAGE = f"{ROOT / 'issuer'}/"


class Recorder:
    """The files whose functions run in any thread while `files` is a set."""

    def __init__(self) -> None:
        self.files: set[str] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call of a function; a module's own code is not one."""
        code, files = frame.f_code, self.files
        if files is not None and event == "call" and code.co_name != "<module>":
            files.add(code.co_filename)


def files_of_request(folder: Path, *, has_log: bool) -> list[str]:
    """Return the files, relative to `issuer/`, that one successful `POST /tokens` passes through."""
    with LocalProvider() as provider, EmbeddedValkey() as store:
        asyncio.run(begin_epoch(store))
        write_folder(folder, provider)
        settings = changed(settings_for(folder, 1), store_url=store)
        if has_log:
            settings = begin_log(settings, folder)
        bodies = [msgspec.json.encode(numbered(number)) for number in range(WARM + COUNTED)]
        sent = [request("/tokens", provider.token(settings.url), body) for body in bodies]
        recorder, watch = Recorder(), Background.watch
        threading.setprofile(recorder)
        Background.watch = lambda *_: None  # type: ignore[method-assign]
        try:
            return uvloop.run(_count(settings, sent, recorder, has_log=has_log))
        finally:
            Background.watch = watch  # type: ignore[method-assign]
            threading.setprofile(None)


async def _count(settings: Settings, sent: list[bytes], recorder: Recorder, *, has_log: bool) -> list[str]:
    async with AsyncExitStack() as stack:
        shared = Shared(SharedPage())
        if has_log:
            socket = await stack.enter_async_context(served_here(log_settings(settings, "")))
            shared = Shared(SharedPage(), socket)
        running = server(settings, shared=shared)
        running.config.load()
        app = running.config.app
        assert isinstance(app, Litestar)
        await stack.enter_async_context(app.lifespan())
        client = Client(running, iter(sent))
        await client.send(WARM)
        found = [await _record(client, recorder) for _ in range(COUNTED)]
    return sorted(name.removeprefix(PACKAGE) for name in set.intersection(*found) if name.startswith(PACKAGE))


async def _record(client: Client, recorder: Recorder) -> set[str]:
    recorder.files = files = set[str]()
    sys.setprofile(recorder)
    try:
        await client.send()
        await asyncio.sleep(0)  # the worker's part after the answer
    finally:
        sys.setprofile(None)
        recorder.files = None
    return files


def test_one_request_passes_through_few_files(tmp_path: Path) -> None:
    for has_log, most in ((False, MOST), (True, MOST_WITH_LOG)):
        files = files_of_request(tmp_path / str(has_log), has_log=has_log)
        assert {"issuance/issue.py", "service/http/tokens.py"} <= set(files)
        assert any("sequencer" in name for name in files) == has_log
        assert len(files) <= most, files
