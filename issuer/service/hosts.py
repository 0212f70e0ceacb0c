"""The hosts that share a store, and whether all of them publish the same keys: one row a host, 60 s of life.

Knows the store's wire and clock; `hosts.lua` keeps the rows. That all agree is believed only of a table that has been
written to, without a gap, for as long as a row lives: by then every host that lives and reaches the store is in it,
also after the store has forgotten. So a change is known to be everywhere as soon as the last host says so, and only the
first minute of a store waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from issuer.codes import Code
from issuer.errors import Undecided
from issuer.service.admission.client import connect
from issuer.service.admission.redis import Failure
from issuer.service.admission.script import PREFIX
from issuer.service.bounds import CALL_S, HOST_AGAIN_S, HOST_S
from issuer.service.shared_page import SharedPage

SCRIPT = Path(__file__).with_name("hosts.lua").read_bytes()
HOSTS_KEY = PREFIX + b"hosts"
# What a host says whose own workers do not agree: nobody agrees with it.
_NOTHING = ""


class Hosts:
    """What this process and its host publish, and what the others do. Belongs to one event loop.

    `page` is shared by the workers of this host. `durable_store` states that the store forgets nothing. `now` replaces
    the store's clock in tests, `seconds` the process's own.
    """

    def __init__(
        self,
        url: str,
        page: SharedPage,
        *,
        durable_store: bool = False,
        now: Callable[[], int] | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = connect(url, 1)
        self._page = page
        self._durable_store = durable_store
        self._now = now
        self._seconds = seconds
        self._said, self._due = _NOTHING, 0.0

    def publish(self, kids: Collection[str]) -> None:
        """Say to the other workers which keys this process publishes."""
        self._page.tell("keys", hashlib.sha256(" ".join(sorted(kids)).encode()).digest())

    async def agree(self, *, ask: bool) -> bool:
        """Say to the other hosts what this one publishes, and return whether each of them publishes the same.

        Without `ask` it is said only when it has changed, or is due again, and False means nothing. Raises Undecided
        (`dependency.state`) where the store does not answer.
        """
        said = self._own()
        if not ask and said == self._said and self._seconds() < self._due:
            return False
        hosts, agreeing, age_s = await self._say(said)
        self._said, self._due = said, self._seconds() + HOST_AGAIN_S
        return said != _NOTHING and said == self._own() and agreeing == hosts and age_s >= HOST_S

    async def aclose(self) -> None:
        """Disconnect from the store."""
        await self._client.aclose()

    def _own(self) -> str:
        """Return the digest that all workers of this host have told, if it is one."""
        told = set(self._page.told("keys"))
        return told.pop().hex() if len(told) == 1 else _NOTHING

    async def _say(self, digest: str) -> tuple[int, int, int]:
        now = str(self._now()) if self._now else ""
        row = (self._page.host, digest, HOST_S, int(self._durable_store), now)
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._client.eval(SCRIPT, 1, HOSTS_KEY, *row)  # type: ignore[arg-type]
        except Failure as failure:
            raise Undecided(Code.DEPENDENCY_STATE) from failure
        match answer:
            case [int(hosts), int(agreeing), int(age_s)]:
                return hosts, agreeing, age_s
        raise Undecided(Code.DEPENDENCY_STATE)
