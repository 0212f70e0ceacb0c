"""No run file of at most 10 MB takes more than 5 s of CPU time or 300 MB of memory, in any reader.

`make attack` makes 25 times as many random files as `make check`.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from issuer.adapters import Anchors
from tests.support.costs import Cost, reading
from tests.support.hostile_runs import GOOD, HELM, PARSED, SHAPES, SIZE, SOURCES, hostile, many, members, put, text
from tests.support.runs import end64, zipped
from tests.support.verievals import anchors_for, body, signed

CPU_S, PEAK_MB = 5, 300
LARGE, PARSED_LARGE = SIZE - 200_000, PARSED - 200_000
LM, EEE, PLAIN, LOG = (GOOD[source] for source in ("lm-eval", "eee", "json", "inspect"))
EPOCHS = json.dumps({name: LOG[name] for name in LOG if name not in {"samples", "reductions"}}).encode()

pytestmark = pytest.mark.long


def costs(folder: Path, runs: Iterable[tuple[str, str, dict[str, bytes], Anchors | None]]) -> dict[str, Cost]:
    """Read each of these runs (name, source, files, anchors), and return by name what it took."""
    took: dict[str, Cost] = {}
    with reading(CPU_S) as cost:
        for name, source, made, anchors in runs:
            assert sum(map(len, made.values())) <= SIZE, name
            for file, raw in made.items():
                (folder / file).write_bytes(raw)
            kind = {"archive": "inspect"}.get(source, source)
            took[name] = cost(folder if source == "helm" else folder / next(iter(made)), kind, anchors)
    return took


def is_small(cost: Cost) -> bool:
    return cost.outcome != "" and cost.peak_mb <= PEAK_MB  # the limit of CPU time ends the process


def archive(*members_: tuple[str, bytes]) -> bytes:
    """Make an archive of a run with two epochs, with 8 MB of noise: the larger it is, the more its samples may be."""
    return zipped([("header.json", EPOCHS), ("noise", Random(37).randbytes(8_000_000)), *members_], 93)


def overlapping() -> bytes:
    """Make an archive of 1,000 samples that share 9.8 MB of empty blocks: each one's header hides the next ones."""
    blocks, own = b"\0\0\0\xff\xff" * (9_800_000 // 5) + b"\1\1\0\xfe\xff1", 30 + len("samples/000")
    members_ = [(b"samples/%03d" % at, 8, zlib.crc32(b"1"), len(blocks), 1, own * (999 - at)) for at in range(1000)]
    members_ = [(b"header.json", 0, zlib.crc32(EPOCHS), len(EPOCHS), len(EPOCHS), 0), *members_]
    bodies, listed = b"", b""
    for name, method, checksum, packed, unpacked, extra in members_:
        sizes = (checksum, packed, unpacked, len(name))
        central = struct.pack("<4s6H3L5H2L", b"PK\1\2", 45, 45, 0, method, 0, 33, *sizes, 0, 0, 0, 0, 0, len(bodies))
        listed += central + name
        bodies += struct.pack("<4s5H3L2H", b"PK\3\4", 45, 0, method, 0, 33, *sizes, extra) + name
        bodies += EPOCHS if method == 0 else b""
    return bodies + blocks + listed + end64(len(members_), len(listed), len(bodies + blocks))


def results(count: int) -> dict[str, Any]:
    one = {"prompt": "", "output": "", "expected": None, "score": 1.0, "passed": True}
    aggregate = {"scorer": "e", "num_tasks": count, "metrics": {"accuracy": 1.0, "passed": float(count)}}
    return body() | {"results": [{"task_id": f"{at:x}", **one} for at in range(count)], "aggregate": aggregate}


def groups(leaf: str, **configs: str) -> bytes:
    """Make a results file of 1,900 groups that all contain the same task, with this configuration."""
    tasks = {f"g{at}": {"acc,none": 0.5} for at in range(1900)}
    inside = {task: ["g"] for task in tasks} | {"g": [leaf]}
    return json.dumps({**LM, "results": tasks, "group_subtasks": inside, "configs": {leaf: configs}}).encode()


def grouped() -> bytes:
    """Make a log whose metrics group the samples by 16 members of their metadata, each sample in groups that it shares
    with none."""
    by = [{"name": "a", "value": 0.5, "params": {"group_key": f"k{at}", "metric": {"name": "m"}}} for at in range(16)]
    (score, *_), results = LOG["results"]["scores"], LOG["results"]
    named = {**score, "metrics": {f"m{at}": metric for at, metric in enumerate(by)}}
    sample = b'{"id":%d,"scores":{"match":{}},"metadata":{"k0":%d}}'
    samples = b",".join(sample % (at, at) for at in range(LARGE // 60))
    return put({**LOG, "results": {**results, "scores": [named]}}, ("/samples", b"[%b]" % samples))


def evaluations(**changed: Any) -> bytes:
    one = EEE["evaluation_results"][0]
    named = [{**one, "evaluation_name": str(at)} for at in range(4900)]
    return json.dumps({**EEE, "evaluation_results": named, **changed}).encode()


LONG = "x" * 4_000_000
MANY = {f"m{at},none": 0.5 for at in range(990)}
PARTIAL = b'{"x":0%b}' % (b',"event":"score_edi","error":null,"y":[]' * 25_000)  # searches begin, and find nothing
# Source, outcome, and how the file is made; a record of verievals is signed.
KNOWN: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "30,000 arguments": ("lm-eval", "file.too_large", lambda: put(LM, ("/config/model_args", b'"%b"' % b",".join(b"%x=1" % at for at in range(30_000))))),
    "8 MB of commas": ("lm-eval", "file.too_large", lambda: put(LM, ("/config/model_args", text(",")(PARSED_LARGE)))),
    "a task's long name": ("lm-eval", "file.too_large", lambda: json.dumps({**LM, "results": {LONG: MANY}}).encode()),
    "a long name in each group": ("lm-eval", "file.too_large", lambda: groups(LONG, dataset_path="a/b")),
    "long words in each group": ("lm-eval", "1900 runs", lambda: groups("l", dataset_name=LONG[::2], test_split=LONG[::2])),
    "chains": ("lm-eval", "file.too_large", lambda: put(LM, ("/git_hash", SHAPES["chains"](PARSED_LARGE)))),
    "an average's long name": ("lighteval", "file.too_large", lambda: json.dumps({**GOOD["lighteval"], "results": {f"{LONG}|5": MANY}}).encode()),
    "packages in each evaluation": ("eee", "file.schema", lambda: evaluations(eval_library={"name": "inspect_ai", "version": "a," * 1_000_000})),
    "a long model in each evaluation": ("eee", "file.schema", lambda: evaluations(model_info={"id": "/x" * 1_500_000})),
    "an unknown long name": ("json", "file.unknown_member", lambda: json.dumps({**PLAIN, LONG * 2: 0}).encode()),
    "empty lists": ("json", "file.too_large", lambda: put(PLAIN, ("/runs/0/details/run", many(b"[]")(PARSED_LARGE)))),
    "bad numbers": ("json", "file.too_large", lambda: put(PLAIN, ("/runs/0/details/run", many(b"1e999")(PARSED_LARGE)))),
    "an unknown longer name": ("verievals", "file.unknown_member", lambda: body() | {"x" * (LARGE - 2000): 0}),
    "120,000 results": ("verievals", "", lambda: results(115_000)),
    "a wide text": ("verievals", "1 run", lambda: body() | {"verievals_version": "\U0001f600" + "x" * (LARGE - 2000)}),
    "a long name": ("inspect", "1 run", lambda: put(LOG, ("/more", b"0,%b:0" % text("x")(PARSED_LARGE)))),
    "a long name of backslashes": ("inspect", "1 run", lambda: put(LOG, ("/more", b"0,%b:0" % text(r"\\")(PARSED_LARGE)))),
    "an error of empty lists": ("inspect", "1 run", lambda: put(LOG, ("/samples", b'[{"error":%b}]' % many(b"[]")(LARGE)))),
    "samples of two bytes": ("inspect", "1 run", lambda: put(LOG, ("/samples", many(b"{}")(LARGE)))),
    "samples with an error": ("inspect", "1 run", lambda: put(LOG, ("/samples", many(b'{"scores":{},"error":0}')(LARGE)))),
    "samples in groups": ("inspect", "1 run", grouped),
    "scorers": ("inspect", "file.too_large", lambda: put(LOG, ("/samples", b'[{"scores":%b}]' % members(b"{}")(LARGE)))),
    "used models": ("inspect", "file.too_large", lambda: put(LOG, ("/stats/model_usage", members(b"0")(PARSED_LARGE)))),
    "overlapping samples": ("archive", "file.syntax", overlapping),
    "a large sample": ("archive", "file.too_large", lambda: archive(("samples/1.json", b'{"error":"%b","scores":%b}' % (noise(128), members(b"{}")(4_190_000))))),
    "350 MB of samples": ("archive", "1 run", lambda: archive(*((f"samples/{at}.json", PARTIAL) for at in range(350)))),
    "samples of NaN": ("archive", "1 run", lambda: archive(*((f"samples/{at}.json", b'{"error":%b}' % many(b"NaN")(790_000)) for at in range(100)))),
    "summaries": ("archive", "1 run", lambda: archive(("summaries.json", b'[{"id":"%b"},%b' % (noise(121), many(b'{"scores":{},"error":0}')(11_900_000)[1:])))),
    "members that are only listed": ("archive", "file.rule", lambda: listed(180_000)),
    "stats": ("helm", "file.too_large", lambda: b'[{"instance_id":"a","stats":[%b]}]' % b",".join(b'{"name":{"name":"%x"},"count":1}' % at for at in range(250_000))),
}  # fmt: skip


def noise(count: int) -> bytes:
    """Make text of so many megabytes that packs to a hundredth."""
    return b"".join(Random(at).randbytes(6000).hex().encode() + b"x" * 988_000 for at in range(count))


def listed(count: int) -> bytes:
    entry = struct.pack("<4s6H3L5HL", b"PK\1\2", 45, 45, 0, 0, 0, 33, 0, 0, 0, 6, 0, 0, 0, 0, 0)
    entries = b"".join(entry + struct.pack("<L", 0) + b"%06x" % at for at in range(count))
    return b"PK\3\4" + entries + end64(count, len(entries), 4)


def known() -> Iterable[tuple[str, str, dict[str, bytes], Anchors | None]]:
    for name, (source, _, make) in KNOWN.items():
        made = make()
        if source == "helm":
            yield (
                name,
                source,
                {file: json.dumps(value).encode() for file, value in HELM.items()} | {"per_instance_stats.json": made},
                None,
            )
        elif source == "verievals":
            record = signed(made)
            yield (
                name,
                source,
                {"run.json": json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()},
                anchors_for(record),
            )
        else:
            yield name, source, {"run": made}, None


def test_files_that_once_cost_much_are_read_or_refused_at_little_cost(tmp_path: Path) -> None:
    took = costs(tmp_path, known())
    wrong = {
        name: cost for name, cost in took.items() if not (is_small(cost) and cost.outcome.startswith(KNOWN[name][1]))
    }
    assert wrong == {}


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.attack)])
@pytest.mark.parametrize("source", SOURCES)
def test_hostile_files_are_read_or_refused_at_little_cost(source: str, count: int, tmp_path: Path) -> None:
    made = ((number, *hostile(source, number)) for number in range(count))
    took = costs(tmp_path, ((f"{number}: {ways}", source, files, anchors) for number, files, anchors, ways in made))
    assert {name: cost for name, cost in took.items() if not is_small(cost)} == {}
