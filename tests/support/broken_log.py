"""A service whose log fails where it would append: after admission, before the signature.

`python -m tests.support.broken_log kill` dies there as by kill -9; `... raise` raises an unforeseen error.
"""

import os
import signal
import sys

from issuer.issuance.ports import NoLog
from issuer.service.process.server import serve
from issuer.service.settings.reader import read_settings
from issuer.token.verify_token import Template
from issuer.token.wire import LogEntry


class DeadlyLog(NoLog):
    """A log that is never written: the process is gone first."""

    async def append(self, _template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        assert signing_inputs
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process is gone")


class FaultyLog(NoLog):
    """A log that fails in a way that its protocol does not declare, with a secret in its variables."""

    async def append(self, _template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        in_a_local_variable = signing_inputs[0].decode()
        raise RuntimeError(str(len(in_a_local_variable)))


if __name__ == "__main__":
    serve(read_settings(), log=DeadlyLog() if sys.argv[1] == "kill" else FaultyLog())
