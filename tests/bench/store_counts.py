"""The cost of counting in the store: an admission with its results counted, beside the same one with nothing counted.

`python -m tests.bench.store_counts`, part of `make bench`. With valgrind, in instructions of the store, which do not
drift; else in its CPU time. Each call is of a new use and new run keys, and each identity has been counted before
on this day, as nearly all have.

On Valkey 9.1, in thousands of instructions: 260 with nothing counted; one result 330 (1.27 x), of a CI run 339 (1.30 x),
and with twins 358 (1.38 x); a batch of 25 takes 1,160 and one of 100 takes 3,630: 34 for each further result. Before
anything was counted, the script took 285.
"""

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from issuer.issuance.ports import AdmissionRequest, Countable, Item, Use
from issuer.issuance.steps import Payer
from issuer.service.admission.script import EPOCH_KEY, SCRIPT, bill_of, keys_of, pack_call, pack_items
from tests.bench.floor import LIMITS
from tests.support.stores import SERVER
from tests.support.waiting import eventually

IDENTITIES, FEW, MANY = 20, 40, 240
VALGRIND = shutil.which("valgrind")
Call = tuple[object, ...]


def calls(results: int, ci: bytes, twins: bool) -> Iterator[Call]:
    """Make calls for ever, in turn for each identity; the first of each is counted."""
    now = int(time.time())
    for number in itertools.count():
        use = Use(
            os.urandom(32).hex(), 1, "sha256:" + "a" * 64, now + 3600, "k" * 43, ("k" * 43,), now + 3600, now + 7200
        )
        items = [_item(twins) for _ in range(results or number < IDENTITIES)]
        counted = Countable(tuple(items), ci and b"%b%04d" % (ci, number // 200)) if items else None
        payer = Payer("integration", f"identity {number % IDENTITIES}")
        asked = AdmissionRequest(payer, LIMITS, max(1, results), use, b"x" * 732, countable=counted)
        bill = bill_of(payer, LIMITS, asked.cost, refused=False)
        keys = keys_of(asked, bill)
        argument = pack_call(asked, bill, number, 0, 0, is_durable=False)
        yield (len(keys), *keys, argument, asked.candidate, b"", pack_items(asked))


def _item(twins: bool) -> Item:
    run, values, twin, mark = (os.urandom(size).hex().encode() for size in (8, 8, 8, 4))
    return Item(run, twin if twins else b"", values, mark, b"an owner", (mark,))


def cost(count: int, results: int, ci: bytes, twins: bool) -> float:
    """Return the cost of a new store from its start through so many calls: instructions, or microseconds of CPU."""
    with tempfile.TemporaryDirectory() as folder:
        socket, profile = Path(folder, "s"), Path(folder, "profile")
        command = [SERVER, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        if VALGRIND:
            command = [VALGRIND, "--tool=callgrind", f"--callgrind-out-file={profile}", *command]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as store:
            eventually(socket.exists)
            with redis.Redis(unix_socket_path=str(socket), socket_timeout=60) as client:
                name = client.script_load(SCRIPT)
                client.set(EPOCH_KEY, "1 -")
                for call in itertools.islice(calls(results, ci, twins), count):
                    answer: Any = client.execute_command("EVALSHA", name, *call)
                    assert answer[1] == b"NEW", answer
                cpu: Any = client.info("cpu")
            store.terminate()
        if VALGRIND:
            return float(profile.read_text("utf-8", "replace").rpartition("totals: ")[2].split()[0])
        return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6


def per_call(results: int, ci: bytes = b"", *, twins: bool = False) -> float:
    """Return the cost of one call, without the start of the store and the first call of each identity."""
    few, many = (FEW, MANY) if VALGRIND else (10 * FEW, 10 * MANY)
    return (cost(many, results, ci, twins) - cost(few, results, ci, twins)) / (many - few)


def main() -> None:
    print(f"\nadmission in the store: {'instructions' if VALGRIND else 'CPU, us'} of one call")
    nothing = per_call(0)
    rows = {
        "nothing counted": nothing, "one result": per_call(1), "one result of a CI run": per_call(1, b"ci"),
        "one result of a CI run, with twins": per_call(1, b"ci", twins=True),
        "a batch of 25": per_call(25), "a batch of 100": per_call(100),
    }  # fmt: skip
    for name, spent in rows.items():
        print(f"  {name:<40}{spent:>12,.0f}{spent / nothing:>8.2f} x")


if __name__ == "__main__":
    main()
