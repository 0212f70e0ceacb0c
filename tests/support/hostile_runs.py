"""Run files that are made to cost much, of at most 10 MB: good files of every format, with parts of a hostile shape."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from issuer.adapters import Anchors
from tests.support.every_eval_ever import RECORD
from tests.support.runs import DATA, zipped
from tests.support.verievals import anchors_for, body, signed

SIZE = 10_000_000
PARSED = 8 * 2**20  # of the formats whose files are parsed whole

GOOD: dict[str, Any] = {
    "inspect": json.loads((DATA / "inspect_two_scorers.json").read_bytes()),
    "lm-eval": json.loads((DATA / "lm_eval_dummy.json").read_bytes()),
    "lighteval": json.loads((DATA / "lighteval_dummy.json").read_bytes()),
    "eee": json.loads(RECORD),
    "json": json.loads((DATA / "plain_run.json").read_bytes()),
    "verievals": signed(body()),
}
GOOD["inspect"]["eval"]["config"]["epochs"] = 2  # its samples are counted
SCORES = {"match": {"value": 1.0, "answer": "4", "history": []}}
SAMPLE = {
    "id": 1,
    "epoch": 1,
    "input": "?",
    "messages": [{"role": "user", "content": "?"}],
    "scores": SCORES,
    "error": None,
}
GOOD["inspect"]["samples"] = [SAMPLE]
HELM = {path.name: json.loads(path.read_bytes()) for path in sorted((DATA / "helm_simple_mcqa").iterdir())}
SOURCES = (*GOOD, "archive", "helm")


def many(item: bytes) -> Callable[[int], bytes]:
    return lambda size: b"[%b]" % b",".join([item] * (size // (len(item) + 1)))


def members(value: bytes) -> Callable[[int], bytes]:
    return lambda size: b"{%b}" % b",".join(b'"%06x":%b' % (at, value) for at in range(size // (len(value) + 10)))


def text(unit: str) -> Callable[[int], bytes]:
    return lambda size: b'"%b"' % (unit.encode() * (size // len(unit.encode())))


CHAIN = '{"a":' * 20 + "0" + "}" * 20
UNITS = ("x", ",", "/", " ", "a=b,", r"\\", r"\u0061", r"\"", "NaN", "inspect_ai:,", "😀")
ITEMS = ("[]", "{}", '{"":0}', "[0]", "0.1", "1e999", "9" * 20, "NaN", "-Infinity", '"ab"', '"😀"', '{"scores":{}}',
         '{"error":0}', '{"scores":{"a":{"history":[1]}}}', '{"name":{"name":"a"},"count":1}')  # fmt: skip
# By name: a function that makes JSON of about this many bytes.
TEXTS: dict[str, Callable[[int], bytes]] = {
    **{f"text of {unit!r}": text(unit) for unit in UNITS},
    "wide text": lambda size: '"😀'.encode() + b"x" * size + b'"',
}
SHAPES: dict[str, Callable[[int], bytes]] = {
    **TEXTS,
    **{f"many {item[:40]}": many(item.encode()) for item in ITEMS},
    **{f"members {value}": members(value.encode()) for value in ("0", "{}", '""', "[]", '{"history":[0]}')},
    "chains": many(CHAIN.encode()),
    "equal members": lambda size: b"{%b}" % b",".join([b'"a":0'] * (size // 6)),
    "deep": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "digits": lambda size: b"9" * size,
    "small digits": lambda size: b"0.%b1" % (b"0" * size),
}


def put(document: Any, *parts: tuple[str, bytes]) -> bytes:
    """Write a document in which each of these JSON pointers has this JSON, also such as no JSON library writes."""
    copied = json.loads(json.dumps(document))
    for number, (pointer, _) in enumerate(parts):
        *parents, last = pointer[1:].split("/")
        place = copied
        for name in parents:
            place = place[int(name)] if isinstance(place, list) else place[name]
        place[int(last) if isinstance(place, list) else last] = f"part {number}"
    raw = json.dumps(copied, ensure_ascii=False, separators=(",", ":")).encode()
    for number, (_, part) in enumerate(parts):
        raw = raw.replace(b'"part %d"' % number, part)
    return raw


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its names or indexes."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _repeated(random: Random, item: Any, size: int, *, named: bool) -> bytes:
    """Repeat an item of a list or a member of an object. Each has its number as its name, and in one of its texts."""
    item = json.loads(json.dumps(item))
    texts = [(place, key) for place, key in _places(item) if isinstance(place[key], str)]
    if texts and random.random() < 0.7:
        place, key = random.choice(texts)
        place[key] += "part 0"
    one = ('"part 0":' * named + json.dumps(item)).encode()
    count = max(1, size // (len(one) + 2))
    return b",".join(one.replace(b"part 0", b"%x" % at) for at in range(count))


def _spoiled(random: Random, document: Any, size: int) -> tuple[bytes, list[str]]:
    """Spoil one to three parts of a document, to about this many bytes. Returns its bytes, and how it was spoiled."""
    copied, written, ways = json.loads(json.dumps(document)), [], []
    share = (size - 60_000) // (count := random.choice((1, 1, 2, 3)))
    for number in range(count):
        holder, key = random.choice([*_places(copied)])
        mark, shape = f"part {number}", random.choice([*SHAPES])
        match random.choice(("shape", "shape", "name", "repeat")):
            case "repeat":
                written.append(_repeated(random, holder[key], share, named=isinstance(holder, dict)))
                holder.update({mark: 0}) if isinstance(holder, dict) else holder.__setitem__(key, mark)
            case "name" if isinstance(holder, dict):
                written.append(TEXTS[shape := random.choice([*TEXTS])](share) + b":0")
                holder[mark] = 0
            case _:
                written.append(SHAPES[shape](share))
                holder[key] = mark
        ways.append(f"{key}: {shape}")
    raw = json.dumps(copied, ensure_ascii=False).encode()
    for number, part in enumerate(written):
        raw = raw.replace(b'"part %d": 0' % number, part, 1).replace(b'"part %d"' % number, part, 1)
    return raw, ways


def _archive(random: Random) -> tuple[bytes, list[str]]:
    """Make an archive whose header, summaries or samples are spoiled. Deflate would take too long for the largest."""
    header = {name: value for name, value in GOOD["inspect"].items() if name not in {"samples", "reductions"}}
    files = {"header.json": header, "summaries.json": [{"id": 1, "epoch": 1, "scores": SCORES}], "sample": SAMPLE}
    chosen, method = random.choice([*files, "sample"]), random.choice((0, 8, 93))
    most = PARSED if chosen == "header.json" else {0: SIZE - 300_000, 8: 2**23, 93: 2**27}[method]
    spoiled, ways = _spoiled(random, files[chosen], int(most ** random.uniform(0.7, 1)))
    made = {name: spoiled if name == chosen else json.dumps(file).encode() for name, file in files.items()}
    one, unpacked = made.pop("sample"), {0: SIZE, 8: 2**25, 93: 2**28}[method]
    count = max(1, min(random.choice((1, 20, 40_000)), unpacked // len(one)))
    while len(raw := zipped([*made.items(), *((f"samples/{at}.json", one) for at in range(count))], method)) > SIZE:
        if count == 1:
            return _archive(random)
        count //= 2
    return raw, [f"{chosen} of {count} samples, packed by {method}", *ways]


def hostile(source: str, number: int) -> tuple[dict[str, bytes], Anchors | None, str]:
    """Make the files of a run from a number. Returns them by name, and how they were spoiled."""
    random, anchors = Random(f"{source} {number}"), None
    made: dict[str, bytes] = {}
    if source == "archive":
        made["log.eval"], ways = _archive(random)
    elif source == "helm":
        file = random.choice([*HELM])
        made = {name: json.dumps(document).encode() for name, document in HELM.items()}
        size = SIZE - sum(map(len, made.values()))
        made[file], ways = _spoiled(
            random, HELM[file], size if file == "per_instance_stats.json" else min(size, PARSED)
        )
    else:
        size = SIZE if source in {"inspect", "verievals"} else PARSED
        made["run.json"], ways = _spoiled(random, GOOD[source], size)
    if source == "verievals":
        made["run.json"], anchors = _signed(made["run.json"])
    return made, anchors, ", ".join(ways)


def _signed(raw: bytes) -> tuple[bytes, Anchors]:
    """Sign a record again, if it is JSON with a body: only then all of it is read."""
    try:
        record = signed(json.loads(raw)["body"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return raw, anchors_for(GOOD["verievals"])
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass"), anchors_for(record)
