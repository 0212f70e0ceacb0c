"""Many result files at once, on all cores, in the order of their names.

The parent walks the folder, hands out chunks of files, and keeps what concerns all of them: their order, the counts
and the replay index, which alone grows with their number. The workers verify, and render what they found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from issuer import files
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats import strict_yaml
from issuer.relying.verifier import Verifier, Writer
from issuer.relying.walk import Found, walk
from issuer.relying.workers import WorkerPool, cores
from issuer.verify import fail_shared_jti
from issuer.verify.replay import KEY_BYTES, ReplayIndex, replay_key, token_key
from issuer.verify.report import Report
from issuer.verify.summary import Summary, Tally, tally
from issuer.verify.tiers import ranked, with_reproductions

CHUNK_FILES = 64
CHUNK_BYTES = 512 * 1024  # of files; what a chunk's reports take is a few times that


class Listener(Struct, frozen=True):
    """Follows the work. `out` gets what a Writer renders, in the order of the names; `tick`, the fraction that is done.

    Once `stopped` is true, no further chunk is begun.
    """

    out: Callable[[str], object]
    tick: Callable[[float, Summary], object] = lambda _fraction, _summary: None
    stopped: Callable[[], bool] = lambda: False


def judge_folder(root: Path, verifier: Verifier, writer: Writer, listener: Listener, *, jobs: int = 0) -> Summary:
    """Judge every result file below `root`, and return the counts.

    `jobs` is the number of processes (0: one for each core that this one may use). Raises SetupError for what only the
    operator can repair: a folder of receipts that is full.
    """
    summary, shared = Summary(), _SharedIds()
    chunks = map(_encode, split_into_chunks(walk(root), listener.stopped))
    with WorkerPool(
        jobs or cores(), lambda message: _encode(_verify_chunk(verifier, writer, _decode_chunk(message)))
    ) as pool:
        for message, answer in pool.map(chunks):
            chunk = _decode_chunk(message)
            done = _report_lost(writer, chunk) if answer is None else _decode_done(answer)
            if done.failure is not None:
                raise SetupError(*done.failure)
            listener.out(done.output)
            summary.add(len(chunk), done.tallies, done.findings)
            shared.remember(done.verified, done.places)
            listener.tick(chunk[-1].fraction, summary)
    for file, before, after in shared.correct(root, verifier):
        listener.out(writer.reports(file, (after,)))
        summary.recount(tally(before), tally(after))
    summary.interrupted = listener.stopped()
    return summary


# -- a chunk of files -------------------------------------------------------------------------------------------------

Chunk = list[Found]


class _Done(Struct, array_like=True):
    """A worker's result for a chunk. `verified` has the two replay keys of each entry, `places` the place of each."""

    output: str = ""
    tallies: list[tuple[Tally, int]] = []
    findings: list[Code] = []
    verified: bytes = b""
    places: list[int] = []
    failure: tuple[Code, str] | None = None


_encode = msgspec.msgpack.encode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
_decode_done = msgspec.msgpack.Decoder(_Done).decode


def split_into_chunks(places: Iterable[Found], stopped: Callable[[], bool] = lambda: False) -> Iterator[Chunk]:
    """Yield what a walk finds by CHUNK_FILES, or fewer if they are large, until `stopped`."""
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


def _verify_chunk(verifier: Verifier, writer: Writer, chunk: Chunk) -> _Done:
    output: list[str] = []
    codes: list[Code] = []
    tallies = Counter[Tally]()
    verified, places = bytearray(), []
    try:
        for found in chunk:
            faults: list[InputError] = []
            reports = _verify_found(verifier, found, faults)
            for report in reports:
                tallies[tally(report)] += 1
                # A good token that failed beside another of its file still counts against a third one elsewhere.
                if report.verdict == "verified" or report.shared_jti:
                    verified += replay_key(report) + token_key(report)
                    places.append(_place_of(found))
            output += [writer.reports(found.file, reports), *map(writer.finding, faults)]
            codes += [fault.code for fault in faults]
    except SetupError as error:
        return _Done(failure=(error.code, error.detail))
    return _Done("".join(output), list(tallies.items()), codes, bytes(verified), places)


def _verify_found(verifier: Verifier, found: Found, faults: list[InputError]) -> tuple[Report, ...]:
    """Verify one file of the walk; what could not be read is added to `faults`."""
    try:
        if found.fault:
            raise files.unreadable(found.file, found.fault)
        raw = files.read(found.file, strict_yaml.MAX_BYTES, follow=False)
        return verifier.verify(raw, found.file, found.repo)
    except InputError as error:
        faults.append(error)
        return ()
    finally:
        faults += verifier.take_faults()


def _report_lost(writer: Writer, chunk: Chunk) -> _Done:
    detail = "not judged: the process that had it ended; is there enough memory? Judge it alone to see why"
    errors = [InputError(Code.INTERNAL, detail, Place(found.file)) for found in chunk]
    return _Done("".join(map(writer.finding, errors)), findings=[error.code for error in errors])


# -- tokens of several files -------------------------------------------------------------------------------------------


class _SharedIds:
    """Tokens of one issuer that share a jti. By the time that this shows, they have been reported as verified."""

    def __init__(self) -> None:
        self._index = ReplayIndex()
        self._shared: defaultdict[bytes, set[int]] = defaultdict(set)

    def remember(self, keys: bytes, places: list[int]) -> None:
        """Remember the replay keys of verified entries, and their places."""
        for number, place in enumerate(places):
            at = 2 * KEY_BYTES * number
            key, token = keys[at : at + KEY_BYTES], keys[at + KEY_BYTES : at + 2 * KEY_BYTES]
            if (first := self._index.add_key(key, token, place)) is not None:
                self._shared[key] |= {first, place}

    def correct(self, root: Path, verifier: Verifier) -> Iterator[tuple[str, Report, Report]]:
        """Verify once more what shares a jti; yield its file, the report as it was and the report as it must be."""
        wanted = set().union(*self._shared.values())
        again = [found for found in (walk(root) if wanted else ()) if _place_of(found) in wanted]
        names = {_place_of(found): found.file for found in again}
        unwritten = replace(verifier, receipt_key=None)
        for found in again:
            before = _verify_found(unwritten, found, [])
            alone = [self._corrected(report, found, names) for report in before]
            for was, report in zip(before, with_reproductions(alone, verifier.trust.tolerance), strict=True):
                if report.shared_jti and not was.shared_jti:
                    verifier.forget(was)
                if report != was:
                    yield found.file, was, report

    def _corrected(self, report: Report, found: Found, names: Mapping[int, str]) -> Report:
        """Fail a report whose jti another file's token has; nobody has reproduced any of them yet."""
        places = self._shared.get(replay_key(report)) if report.verdict == "verified" else None
        if not places:
            return ranked(report)
        others = (names[place] for place in places if place in names and place != _place_of(found))
        return fail_shared_jti(report, next(others, "a file that is gone by now"))


def _place_of(found: Found) -> int:
    """Return 32 bits by which another walk finds the file. Of its name: a number shifts when files come and go.

    Two files may have the same: then both are verified once more, and only what shares a jti is reported.
    """
    return crc32(found.file.encode("utf-8", "surrogateescape"))
