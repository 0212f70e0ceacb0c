"""`make bench-instructions`: the instructions of a request, by step and by library. Needs valgrind.

A busy machine does not change them: two runs differ by a thousandth. Each row is printed beside that of the committed
table, `instructions.txt`, if processor, interpreter, OpenSSL and lock are the same; otherwise the rows cannot be compared,
and the run says so. `--write` makes this run the committed table.

Instructions differ in cost: those of a signature take half the time of the interpreter's. So this judges a change, and
`make bench` its microseconds. The marks cost something: the sum of the steps is a tenth more than the whole request, which
is counted without them.
"""

import asyncio
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from cryptography.hazmat.backends.openssl import backend

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import settings_for
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.settings.model import changed
from tests.bench.counted import BATCHES, ENTRIES, INTEGRATIONS, SINGLES, STEP, Counts, Made
from tests.bench.policy import write_many
from tests.support.fake_transport import begin_epoch
from tests.support.http_load import request
from tests.support.running import numbered, write_folder
from tests.support.shared import ROOT
from tests.support.tree import write_tree, write_trust

TABLE = Path(__file__).with_name("instructions.txt")
# The first pattern that is in the path of a file names its library.
LIBRARIES = {
    "hashing": re.compile(r"/_(hashlib|sha|md5|blake2)|/libcrypto\b"),
    "cryptography": re.compile(r"/cryptography/"),
    "msgspec": re.compile(r"/msgspec/"),
    "uvloop, HTTP": re.compile(r"/(uvloop|httptools)/"),
    "libc": re.compile(r"/(libc|libm|ld-linux[^/]*)[.-]"),
    "interpreter": re.compile(r"python3\.\d+(\.so[.\d]*)?$|/lib-dynload/"),
}
COLUMNS = ("interpreter", "cryptography", "msgspec", "libc", "hashing", "uvloop, HTTP", "other")
PER_MILLE = 1.0  # the difference of two equal runs

# Instructions by library, of one item of a row.
Row = Mapping[str, int]


def read_parts(lines: Iterable[str]) -> list[Counter[str]]:
    """Return the instructions of each part of a profile, by the path of the library that has them.

    The format is in valgrind's manual, "Callgrind Format Specification": `ob` names the library of the lines to come,
    once in full and then by its number. The line after a `calls` line is the cost of the call, which is counted elsewhere.
    """
    parts: list[Counter[str]] = []
    names: dict[str, str] = {}
    library, is_call = "", False
    for line in lines:
        if line.startswith("part:"):
            parts.append(Counter())
        elif line.startswith(("ob=", "cob=")):
            number, _, name = line.partition("=")[2].strip().partition(" ")
            names[number] = name or names[number]
            library = library if line.startswith("cob=") else names[number]
        elif line.startswith("calls="):
            is_call = True
        elif line and line[0] in "0123456789+-*":
            if not is_call:
                parts[-1][library] += int(line.split()[1])
            is_call = False
    return parts


def library_of(path: str) -> str:
    """Name the column of a library's file."""
    return next((name for name, pattern in LIBRARIES.items() if pattern.search(path)), "other")


def rows_of(parts: Iterable[Counter[str]], counts: Counts) -> dict[str, Row]:
    """Add up the parts: a row for each section, and for each step of the section with steps, in order."""
    sums: dict[str, Counter[str]] = {}
    # callgrind counts on after the last mark.
    for (section, step), part in zip(counts.parts, parts, strict=False):
        if section in counts.per:
            of_row = sums.setdefault(step if section == STEP else section, Counter())
            for path, count in part.items():
                of_row[library_of(path)] += count
    per = {name: counts.per.get(name, counts.per[STEP]) for name in sums}
    return {name: {library: count // per[name] for library, count in row.items()} for name, row in sums.items()}


def make(folder: Path, provider: LocalProvider, store: str) -> None:
    """Make the policies, keys, requests and trees of results of a run."""
    asyncio.run(begin_epoch(store))
    write_folder(folder, provider)
    settings = changed(settings_for(folder, 1), store_url=store)
    singles = [_request(provider, settings.url, "/tokens", numbered(number)) for number in range(SINGLES)]
    body = {"results": [numbered(number) for number in range(100)]}
    batches = [_request(provider, settings.url, "/tokens/batch", body) for _ in range(BATCHES + 1)]
    (folder / "made").write_bytes(msgspec.msgpack.encode(Made(settings, singles, batches)))
    (folder / "policies of many").mkdir()
    write_many(folder / "policies of many", INTEGRATIONS, tested=False)
    for name, count in ("few", 32), ("many", ENTRIES):
        deque(write_tree(folder / name, count), maxlen=0)
    write_trust(folder)


def _request(provider: LocalProvider, url: str, path: str, body: object) -> bytes:
    identity = provider.token(url, exp=int(time.time()) + 3000)  # a busy machine takes its time
    return request(path, identity, msgspec.json.encode(body))


def count(folder: Path) -> dict[str, Row]:
    """Run the driver under callgrind in an empty folder, and return the rows. Exits with its log if it fails."""
    with LocalProvider() as provider, EmbeddedValkey() as store, (folder / "log").open("wb") as log:
        make(folder, provider, store)
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/profile", "--combine-dumps=yes", "--instr-atstart=no",
                   "--dump-line=no", "--dump-before=ctermid", sys.executable, "-m", "tests.bench.counted", str(folder)]  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, stdout=log, stderr=log)
    if done.returncode:
        sys.exit((folder / "log").read_text("utf-8", "replace")[-3000:])
    counts = msgspec.msgpack.decode((folder / "counts").read_bytes(), type=Counts)
    with (folder / "profile").open(encoding="utf-8") as profile:
        return rows_of(read_parts(profile), counts)


def place() -> dict[str, str]:
    """Return the properties of the machine that change the figures."""
    cpu = Path("/proc/cpuinfo").read_text("utf-8")
    flags = " ".join(sorted(re.findall(r"^flags\s*:(.*)$", cpu, re.MULTILINE)[0].split()))
    return {
        "CPU flags": _digest(flags.encode()),
        "interpreter": sys.version.replace("\n", ""),
        "C library": " ".join(platform.libc_ver()),
        "OpenSSL": backend.openssl_version_text(),
        "lock": _digest((ROOT / "dev.lock").read_bytes()),
    }


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:16]


def write_table(where: Mapping[str, str], rows: Mapping[str, Row]) -> str:
    """Write the table as it is committed and read again."""
    head = [f"# {name}: {value}\n" for name, value in where.items()]
    return "".join([*head, _line("", ["all", *COLUMNS]), *(_line(name, _cells(row)) for name, row in rows.items())])


def read_table(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the machine of a table, and the sum of each row."""
    where = dict(line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("# "))
    rows = [line for line in text.splitlines() if line and line[0] not in "# "]
    return where, {line[:WIDTH].rstrip(): int(line[WIDTH:].split()[0].replace(",", "")) for line in rows}


WIDTH = 36


def _line(name: str, cells: Iterable[str]) -> str:
    return f"{name:<{WIDTH}}" + "".join(f"{cell:>14}" for cell in cells) + "\n"


def _cells(row: Row) -> list[str]:
    return [f"{count:,}" for count in (sum(row.values()), *(row.get(name, 0) for name in COLUMNS))]


def compare(table: str, before: str) -> str:
    """Return the table with each row's value before and the ratio; or the differences of the machines."""
    where, now = read_table(table)
    where_before, then = read_table(before)
    if differing := [name for name in where if where[name] != where_before.get(name)]:
        return f"{table}\nnot beside the committed table, which was made with another: {', '.join(differing)}\n"
    lines = table.splitlines()
    for at, line in enumerate(lines):
        name = line[:WIDTH].rstrip()
        if name in now and name in then:
            share = now[name] / then[name]
            moved = "" if abs(share - 1) * 1000 <= PER_MILLE else f"  {share:6.3f} x"
            lines[at] = f"{line}  before{then[name]:12,}{moved}"
    return "\n".join(lines) + "\n"


def main(*arguments: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(place(), count(Path(folder)))
    print(compare(table, TABLE.read_text("utf-8") if TABLE.exists() else table))
    if "--write" in arguments:
        TABLE.write_text(table, "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
