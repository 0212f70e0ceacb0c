"""A service whose log fails where it would append: after admission, before the signature.

`python -m tests.support.broken_log raise` raises an unforeseen error there; `... kill` dies the second time, as by kill -9.
"""

import os
import signal
import sys

from issuer.issuance.ports import NoLog
from issuer.service.process.server import serve
from issuer.service.settings.reader import read_settings
from issuer.token.verify_token import Template
from issuer.token.wire import LogEntry


class FaultyLog(NoLog):
    """A log that fails in a way that its protocol does not declare, with a secret in its variables."""

    async def append(self, _template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        in_a_local_variable = signing_inputs[0].decode()
        raise RuntimeError(str(len(in_a_local_variable)))


class DeadlyLog(FaultyLog):
    """A log that is never written: the second time the process is gone first."""

    asked = 0

    async def append(self, template: Template, signing_inputs: tuple[bytes, ...], /) -> tuple[LogEntry, ...]:
        self.asked += 1
        if self.asked == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().append(template, signing_inputs)


if __name__ == "__main__":
    serve(read_settings(), log=DeadlyLog() if sys.argv[1] == "kill" else FaultyLog())
