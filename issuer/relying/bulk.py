"""Verification of many result files on all cores: `DIR/OWNER/NAME/.eval_results/*.yaml` in the order of their names.

The parent walks the folder and hands out chunks of files. It keeps what concerns all of them: the order, the counts and
the replay index, the only part that grows with their number. The workers verify files and render reports. Below DIR
only plain files are opened and no link is followed, because strangers write the repositories.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.formats import strict_yaml
from issuer.io import files
from issuer.io.files import A_LINK
from issuer.relying.verifier import FOLDER, FileVerifier, JudgedFile, Writer
from issuer.relying.workers import WorkerPool, cores
from issuer.verify import fail_shared_jti
from issuer.verify.report import KEY_BYTES, ReplayIndex, Report, replay_key, token_key
from issuer.verify.summary import Summary, SummaryKey, tally
from issuer.verify.tiers import ranked, with_reproductions


class ResultFile(Struct, frozen=True, array_like=True):
    """A result file, or the reason (`fault`) why it cannot be read. `fraction` is the finished part of the walk."""

    fraction: float
    file: str
    repo: str
    size: int = 0
    fault: str = ""


def walk(root: Path) -> Iterator[ResultFile]:
    """Yield the result files below `root`. Holds the names of one folder at a time, and opens no file."""
    owners = yield from _walk_folders(str(root), "", 0.0)
    for number, owner in enumerate(owners):
        done, share = number / len(owners), 1 / len(owners)
        names = yield from _walk_folders(f"{root}/{owner}", owner, done)
        for count, name in enumerate(names, 1):
            yield from _walk_files(f"{root}/{owner}/{name}", f"{owner}/{name}", done + share * count / len(names))


def _walk_folders(folder: str, repo: str, fraction: float) -> Generator[ResultFile, None, list[str]]:
    """Yield faults in a folder; return the names of the folders in it."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_symlink() and not _is_file(entry):
                    yield _make_fault(fraction, entry.path, repo, A_LINK)
    except OSError as error:
        yield _make_fault(fraction, folder, repo, str(error.strerror))
    return sorted(names)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a loop of links
        return False


def _walk_files(folder: str, repo: str, fraction: float) -> Iterator[ResultFile]:
    inner = f"{folder}/{FOLDER}"
    try:
        if stat.S_ISLNK(os.lstat(inner).st_mode):
            yield _make_fault(fraction, inner, repo, A_LINK)
            return
        with os.scandir(inner) as entries:
            named = sorted((entry.name, entry) for entry in entries if entry.name.endswith(".yaml"))
        for _, entry in named:
            if entry.path.isascii() or _is_text(entry.path):
                yield ResultFile(fraction, entry.path, repo, _size_of(entry))
            else:
                yield _make_fault(fraction, entry.path, repo, "its name is not UTF-8")
    except FileNotFoundError:
        return
    except OSError as error:
        yield _make_fault(fraction, inner, repo, str(error.strerror))


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # it was just deleted: reading it will report that
        return 0


def _make_fault(fraction: float, path: str, repo: str, reason: str) -> ResultFile:
    spelled, owner = (text.encode("utf-8", "backslashreplace").decode() for text in (path, repo))
    return ResultFile(fraction, spelled, owner, fault=reason)


def _is_text(path: str) -> bool:
    """Say whether a name is UTF-8: other bytes become surrogates, which a report cannot contain."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


CHUNK_FILES = 64
CHUNK_BYTES = 512 * 1024  # of files; their reports take a few times that


class Listener(Struct, frozen=True):
    """Callbacks of a run. `out` gets what a Writer renders, in the order of the names; `rows` gets its rows, and
    `corrected` rows that replace earlier ones; `tick` gets the finished fraction. No new chunk is begun once `stopped`
    is true."""

    out: Callable[[str], object]
    tick: Callable[[float, Summary], object] = lambda _fraction, _summary: None
    stopped: Callable[[], bool] = lambda: False
    rows: Callable[[bytes], object] = lambda _rows: None
    corrected: Callable[[bytes], object] = lambda _rows: None


class Pool(Protocol):
    """Workers that judge whole messages, by `judge_message`."""

    def map(self, messages: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each message with its answer, in order; None if no worker could judge it."""


# Starts the workers for a verifier and a writer.
Engine = Callable[[FileVerifier, Writer], AbstractContextManager[Pool]]


def processes(jobs: int = 0) -> Engine:
    """Return the engine of this machine with `jobs` processes (0: one for each core that this process may use)."""
    return lambda verifier, writer: WorkerPool(jobs or cores(), partial(judge_message, verifier, writer))


def judge_folder(
    root: Path, verifier: FileVerifier, writer: Writer, listener: Listener, *, engine: Engine | None = None
) -> Summary:
    """Judge every result file below `root`, and return the counts. The default engine is the processes of this machine.
    Raises SetupError for faults that only the operator can repair, such as a full folder of receipts."""
    summary, shared = Summary(), _SharedIds()
    chunks = map(_encode, split_into_chunks(walk(root), listener.stopped))
    with (engine or processes())(verifier, writer) as pool:
        for message, answer in pool.map(chunks):
            chunk = _decode_chunk(message)
            done = _report_lost(writer, chunk) if answer is None else _decode_done(answer)
            if done.failure is not None:
                raise SetupError(*done.failure)
            listener.out(done.output)
            listener.rows(done.rows)
            summary.add(len(chunk), done.tallies, done.findings)
            summary.bytes += sum(found.size for found in chunk if found.size <= strict_yaml.MAX_BYTES)
            shared.record(done.verified, done.places)
            listener.tick(chunk[-1].fraction, summary)
    for file, before, after in shared.correct(root, verifier):
        listener.out(writer.reports(file, (after,)))
        listener.corrected(writer.rows([JudgedFile(file, (after,))]))
        summary.recount(tally(before), tally(after))
    summary.interrupted = listener.stopped()
    return summary


Chunk = list[ResultFile]


class _Done(Struct, array_like=True):
    """A worker's result for a chunk. `verified` has the two replay keys of each verified entry, `places` its file's
    place, and `wants_keys_of` the issuers whose newer keys would decide more."""

    output: str = ""
    rows: bytes = b""
    tallies: list[tuple[SummaryKey, int]] = []
    findings: list[Code] = []
    verified: bytes = b""
    places: list[int] = []
    wants_keys_of: list[str] = []
    failure: tuple[Code, str] | None = None


_encode = msgspec.msgpack.encode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
_decode_done = msgspec.msgpack.Decoder(_Done).decode


def judge_message(verifier: FileVerifier, writer: Writer, message: bytes) -> bytes:
    """Judge the files of a message, and return the answer: the work of a worker."""
    return _encode(_verify_chunk(verifier, writer, _decode_chunk(message)))


def refuse_message(code: Code, detail: str) -> bytes:
    """Return the answer of a worker that cannot judge; it ends the run."""
    return _encode(_Done(failure=(code, detail)))


def wanted_keys(answer: bytes) -> list[str]:
    """Return the issuers whose newer keys would decide more than this answer does."""
    return _decode_done(answer).wants_keys_of


def split_into_chunks(places: Iterable[ResultFile], stopped: Callable[[], bool] = lambda: False) -> Iterator[Chunk]:
    """Yield the files of a walk in chunks of CHUNK_FILES, or fewer if they are large, until `stopped`."""
    chunk: Chunk = []
    size = 0
    for file in places:
        if stopped():
            return
        chunk.append(file)
        size += file.size
        if len(chunk) >= CHUNK_FILES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _verify_chunk(verifier: FileVerifier, writer: Writer, chunk: Chunk) -> _Done:
    judged: list[JudgedFile] = []
    tallies = Counter[SummaryKey]()
    verified, places = bytearray(), []
    try:
        for found in chunk:
            faults: list[InputError] = []
            reports = _verify_found(verifier, found, faults)
            for report in reports:
                tallies[tally(report)] += 1
                # A good token that failed because of another one in its file still counts against a third one
                # elsewhere.
                if report.verdict == "verified" or report.shared_jti:
                    verified += replay_key(report) + token_key(report)
                    places.append(_place_of(found))
            judged.append(JudgedFile(found.file, reports, tuple(faults)))
    except SetupError as error:
        return _Done(failure=(error.code, error.detail))
    done = _render(writer, judged)
    done.tallies, done.verified, done.places = list(tallies.items()), bytes(verified), places
    done.wants_keys_of = sorted({report.wants_keys_of for one in judged for report in one.reports} - {""})
    return done


def _verify_found(verifier: FileVerifier, found: ResultFile, faults: list[InputError]) -> tuple[Report, ...]:
    """Verify one file of the walk; add its faults to `faults`."""
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


def _render(writer: Writer, judged: Sequence[JudgedFile]) -> _Done:
    output: list[str] = []
    for one in judged:
        output += [writer.reports(one.file, one.reports)] if one.reports else []
        output += map(writer.finding, one.faults)
    codes = [fault.code for one in judged for fault in one.faults]
    return _Done("".join(output), writer.rows(judged), findings=codes)


def _report_lost(writer: Writer, chunk: Chunk) -> _Done:
    detail = "not judged: its worker process ended, perhaps for lack of memory. Judge this file alone to see why"
    lost = [JudgedFile(found.file, (), (InputError(Code.INTERNAL, detail, Place(found.file)),)) for found in chunk]
    return _render(writer, lost)


# -- tokens of several files -------------------------------------------------------------------------------------------


class _SharedIds:
    """Tokens of one issuer that share a jti. They are found after they have been reported as verified."""

    def __init__(self) -> None:
        self._index = ReplayIndex()
        self._shared: defaultdict[bytes, set[int]] = defaultdict(set)

    def record(self, keys: bytes, places: list[int]) -> None:
        """Record the replay keys of verified entries, and their places."""
        for number, place in enumerate(places):
            at = 2 * KEY_BYTES * number
            key, token = keys[at : at + KEY_BYTES], keys[at + KEY_BYTES : at + 2 * KEY_BYTES]
            if (first := self._index.add_key(key, token, place)) is not None:
                self._shared[key] |= {first, place}

    def correct(self, root: Path, verifier: FileVerifier) -> Iterator[tuple[str, Report, Report]]:
        """Verify entries that share a jti again; yield the file, the report before and the corrected report."""
        wanted = set[int]().union(*self._shared.values())
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

    def _corrected(self, report: Report, found: ResultFile, names: Mapping[int, str]) -> Report:
        """Fail a report if a token in another file has its jti. Reproductions are judged later."""
        places = self._shared.get(replay_key(report)) if report.verdict == "verified" else None
        if not places:
            return ranked(report)
        others = (names[place] for place in places if place in names and place != _place_of(found))
        return fail_shared_jti(report, next(others, "a deleted file"))


def _place_of(found: ResultFile) -> int:
    """Return 32 bits by which another walk finds the file. They come from its name, because numbers shift when files
    come and go. If two files have the same bits, both are verified again; only entries that share a jti are
    reported."""
    return crc32(found.file.encode("utf-8", "surrogateescape"))
