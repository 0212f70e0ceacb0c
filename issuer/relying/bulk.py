"""Many result files at once, on all cores, in the order of their names.

The parent walks, hands out chunks of files, and keeps what crosses files: the order, the counts and the replay index,
which alone grows with the files. The workers judge, and write out what they found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats import strict_yaml
from issuer.relying.verifier import Verifier
from issuer.relying.walk import Found, walk
from issuer.relying.workers import WorkerPool, cores
from issuer.verify import fail_shared_jti
from issuer.verify.replay import KEY_BYTES, ReplayIndex, replay_key, token_key
from issuer.verify.report import Report
from issuer.verify.summary import Summary, Tally, tally

CHUNK_FILES = 64
CHUNK_BYTES = 512 * 1024  # of files; what a chunk's reports take is a few times that


class Writer(Struct, frozen=True):
    """How a file's reports, and a file that cannot be read, are written out. Called in the workers."""

    reports: Callable[[str, tuple[Report, ...]], str]
    finding: Callable[[InputError], str]


class Listener(Struct, frozen=True):
    """Who follows the work. `out` gets what a Writer writes, in the order of the names; `tick`, how far the walk is.

    Once `stopped` says so, what is under way is finished, and that was all.
    """

    out: Callable[[str], object]
    tick: Callable[[float, Summary], object] = lambda _fraction, _summary: None
    stopped: Callable[[], bool] = lambda: False


def judge_folder(root: Path, judge: Verifier, writer: Writer, listener: Listener, *, jobs: int = 0) -> Summary:
    """Judge every result file below `root`, and return the counts.

    `jobs` is how many processes judge (0: one for each core that this one may use). Raises SetupError for what only the
    operator can mend: a folder of receipts that is full.
    """
    summary, across = Summary(), _Across()
    chunks = map(_encode, chunked(walk(root), listener.stopped))
    with WorkerPool(
        jobs or cores(), lambda message: _encode(_judge_chunk(judge, writer, _decode_chunk(message)))
    ) as crew:
        for message, answer in crew.answers(chunks):
            chunk = _decode_chunk(message)
            done = _lost(writer, chunk) if answer is None else _decode_done(answer)
            if done.failure is not None:
                raise SetupError(*done.failure)
            listener.out(done.output)
            summary.add(len(chunk), done.tallies, done.findings)
            across.remember(done.verified, done.places)
            listener.tick(chunk[-1].fraction, summary)
    for file, before, after in across.corrected(root, judge):
        listener.out(writer.reports(file, (after,)))
        summary.recount(tally(before), tally(after))
    summary.interrupted = listener.stopped()
    return summary


# -- a chunk of files -------------------------------------------------------------------------------------------------

Chunk = list[Found]


class _Done(Struct, array_like=True):
    """What a worker says of a chunk. `verified` has the two replay keys of each entry, `places` is where it stands."""

    output: str = ""
    tallies: list[tuple[Tally, int]] = []
    findings: list[Code] = []
    verified: bytes = b""
    places: list[int] = []
    failure: tuple[Code, str] | None = None


_encode = msgspec.msgpack.encode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
_decode_done = msgspec.msgpack.Decoder(_Done).decode


def chunked(places: Iterable[Found], stopped: Callable[[], bool] = lambda: False) -> Iterator[Chunk]:
    """Hand out what a walk finds by CHUNK_FILES, or fewer where they are large, until `stopped`."""
    chunk: Chunk = []
    size = 0
    for found in places:
        if stopped():
            return
        chunk.append(found)
        size += found.size
        if len(chunk) >= CHUNK_FILES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _judge_chunk(judge: Verifier, writer: Writer, chunk: Chunk) -> _Done:
    output: list[str] = []
    codes: list[Code] = []
    tallies = Counter[Tally]()
    verified, places = bytearray(), []
    try:
        for found in chunk:
            faults: list[InputError] = []
            reports = _judge_found(judge, found, faults)
            for report in reports:
                tallies[tally(report)] += 1
                # A good token that failed beside another of its file still counts against a third one elsewhere.
                if report.verdict == "verified" or report.shared_jti:
                    verified += replay_key(report) + token_key(report)
                    places.append(_place(found))
            output += [writer.reports(found.file, reports), *map(writer.finding, faults)]
            codes += [fault.code for fault in faults]
    except SetupError as error:
        return _Done(failure=(error.code, error.detail))
    return _Done("".join(output), list(tallies.items()), codes, bytes(verified), places)


def _judge_found(judge: Verifier, found: Found, faults: list[InputError]) -> tuple[Report, ...]:
    """Judge one file of the walk; what could not be read goes to `faults`."""
    try:
        if found.fault:
            raise files.unreadable(found.file, found.fault)
        return judge.reports(_read(found.file), found.file, found.repo)
    except InputError as error:
        faults.append(error)
        return ()
    finally:
        faults += judge.take_faults()


def _read(file: str) -> bytes:
    return files.read(Path(file), strict_yaml.MAX_BYTES, follow=False)


def _lost(writer: Writer, chunk: Chunk) -> _Done:
    detail = "not judged: the process that had it ended; is there enough memory? Judge it alone to see why"
    errors = [InputError(Code.INTERNAL, detail, Place(found.file)) for found in chunk]
    return _Done("".join(map(writer.finding, errors)), findings=[error.code for error in errors])


# -- what crosses files -----------------------------------------------------------------------------------------------


class _Across:
    """Tokens of one issuer that share a jti. By the time that it shows, they have been written out as verified."""

    def __init__(self) -> None:
        self._index = ReplayIndex()
        self._shared: defaultdict[bytes, set[int]] = defaultdict(set)

    def remember(self, keys: bytes, places: list[int]) -> None:
        """Take the replay keys of verified entries, and where they stand."""
        for number, place in enumerate(places):
            at = 2 * KEY_BYTES * number
            key, token = keys[at : at + KEY_BYTES], keys[at + KEY_BYTES : at + 2 * KEY_BYTES]
            if (first := self._index.add_key(key, token, place)) is not None:
                self._shared[key] |= {first, place}

    def corrected(self, root: Path, judge: Verifier) -> Iterator[tuple[str, Report, Report]]:
        """Judge once more what shares a jti; yield its file, the report as it was and the report as it must be."""
        wanted = set().union(*self._shared.values())
        again = [found for found in (walk(root) if wanted else ()) if _place(found) in wanted]
        files = {_place(found): found.file for found in again}
        unwritten = replace(judge, receipt_key=None)
        for found in again:
            for report in _judge_found(unwritten, found, []):
                if report.verdict == "verified" and (places := self._shared.get(replay_key(report))):
                    others = (files[place] for place in places if place in files and place != _place(found))
                    judge.forget(report)
                    yield found.file, report, fail_shared_jti(report, next(others, "a file that is gone by now"))


def _place(found: Found) -> int:
    """Return 32 bits for a file by which another walk finds it. By name: a number shifts where files come and go.

    Two files may have the same: then both are judged once more, and only what shares a jti is told.
    """
    return crc32(found.file.encode("utf-8", "surrogateescape"))
