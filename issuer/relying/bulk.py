"""Many result files at once, on all cores: `DIR/OWNER/NAME/.eval_results/*.yaml` in the order of their names.

The parent walks the folder, hands out chunks of files, and keeps what concerns all of them: their order, the counts
and the replay index, which alone grows with their number. The workers verify, and render what they found. Below DIR no
symbolic link is followed and only plain files are opened, because repositories are other parties'.
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
from issuer.relying.verifier import FOLDER, JudgedFile, Verifier, Writer
from issuer.relying.workers import WorkerPool, cores
from issuer.verify import fail_shared_jti
from issuer.verify.report import KEY_BYTES, ReplayIndex, Report, replay_key, token_key
from issuer.verify.summary import Summary, Tally, tally
from issuer.verify.tiers import ranked, with_reproductions


class ResultFile(Struct, frozen=True, array_like=True):
    """A result file, or the reason (`fault`) why it cannot be read. `fraction` is how much of the walk is done."""

    fraction: float
    file: str
    repo: str
    size: int = 0
    fault: str = ""


def walk(root: Path) -> Iterator[ResultFile]:
    """Find the result files below `root`. Holds the names of one folder at a time, and opens no file."""
    owners = yield from _walk_folders(str(root), "", 0.0)
    for number, owner in enumerate(owners):
        done, share = number / len(owners), 1 / len(owners)
        names = yield from _walk_folders(f"{root}/{owner}", owner, done)
        for count, name in enumerate(names, 1):
            yield from _walk_files(f"{root}/{owner}/{name}", f"{owner}/{name}", done + share * count / len(names))


def _walk_folders(folder: str, repo: str, fraction: float) -> Generator[ResultFile, None, list[str]]:
    """Yield what cannot be read in a folder; return the names of the folders in it."""
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
    except OSError:  # it has just gone: its reader will say so
        return 0


def _make_fault(fraction: float, path: str, repo: str, reason: str) -> ResultFile:
    spelled, owner = (text.encode("utf-8", "backslashreplace").decode() for text in (path, repo))
    return ResultFile(fraction, spelled, owner, fault=reason)


def _is_text(path: str) -> bool:
    """Say whether a name is text: bytes that are not UTF-8 become surrogates, which a report cannot contain."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


CHUNK_FILES = 64
CHUNK_BYTES = 512 * 1024  # of files; what a chunk's reports take is a few times that


class Listener(Struct, frozen=True):
    """Follows the work. `out` gets what a Writer renders, in the order of the names; `rows` its rows, and `corrected`
    those that take the place of a row before; `tick`, the fraction that is done. Once `stopped` is true, no further
    chunk is begun."""

    out: Callable[[str], object]
    tick: Callable[[float, Summary], object] = lambda _fraction, _summary: None
    stopped: Callable[[], bool] = lambda: False
    rows: Callable[[bytes], object] = lambda _rows: None
    corrected: Callable[[bytes], object] = lambda _rows: None


class Pool(Protocol):
    """Workers: each judges whole messages, by `judge_message`."""

    def map(self, messages: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield each message with its answer, in order; None where nobody could judge it."""


# Starts the workers, and gives them what they judge by.
Engine = Callable[[Verifier, Writer], AbstractContextManager[Pool]]


def processes(jobs: int = 0) -> Engine:
    """Return the engine of this machine: so many processes (0: one for each core that this one may use)."""
    return lambda verifier, writer: WorkerPool(jobs or cores(), partial(judge_message, verifier, writer))


def judge_folder(
    root: Path, verifier: Verifier, writer: Writer, listener: Listener, *, engine: Engine | None = None
) -> Summary:
    """Judge every result file below `root`, and return the counts. By the processes of this machine, unless another
    `engine` is given. Raises SetupError for what only the operator can repair: a folder of receipts that is full."""
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
            shared.remember(done.verified, done.places)
            listener.tick(chunk[-1].fraction, summary)
    for file, before, after in shared.correct(root, verifier):
        listener.out(writer.reports(file, (after,)))
        listener.corrected(writer.rows([JudgedFile(file, (after,))]))
        summary.recount(tally(before), tally(after))
    summary.interrupted = listener.stopped()
    return summary


# -- a chunk of files -------------------------------------------------------------------------------------------------

Chunk = list[ResultFile]


class _Done(Struct, array_like=True):
    """A worker's result for a chunk. `verified` has the two replay keys of each entry, `places` the place of each, and
    `wants_keys_of` the issuers whose newer keys would decide more."""

    output: str = ""
    rows: bytes = b""
    tallies: list[tuple[Tally, int]] = []
    findings: list[Code] = []
    verified: bytes = b""
    places: list[int] = []
    wants_keys_of: list[str] = []
    failure: tuple[Code, str] | None = None


_encode = msgspec.msgpack.encode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
_decode_done = msgspec.msgpack.Decoder(_Done).decode


def judge_message(verifier: Verifier, writer: Writer, message: bytes) -> bytes:
    """Do a worker's work: judge the files of a message, and return the answer."""
    return _encode(_verify_chunk(verifier, writer, _decode_chunk(message)))


def refuse_message(code: Code, detail: str) -> bytes:
    """Return the answer of a worker that can judge nothing: it ends the run."""
    return _encode(_Done(failure=(code, detail)))


def wanted_keys(answer: bytes) -> list[str]:
    """Return of which issuers newer keys would decide more than this answer does."""
    return _decode_done(answer).wants_keys_of


def split_into_chunks(places: Iterable[ResultFile], stopped: Callable[[], bool] = lambda: False) -> Iterator[Chunk]:
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
    judged: list[JudgedFile] = []
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
            judged.append(JudgedFile(found.file, reports, tuple(faults)))
    except SetupError as error:
        return _Done(failure=(error.code, error.detail))
    done = _render(writer, judged)
    done.tallies, done.verified, done.places = list(tallies.items()), bytes(verified), places
    done.wants_keys_of = sorted({report.wants_keys_of for one in judged for report in one.reports} - {""})
    return done


def _verify_found(verifier: Verifier, found: ResultFile, faults: list[InputError]) -> tuple[Report, ...]:
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


def _render(writer: Writer, judged: Sequence[JudgedFile]) -> _Done:
    output: list[str] = []
    for one in judged:
        output += [writer.reports(one.file, one.reports)] if one.reports else []
        output += map(writer.finding, one.faults)
    codes = [fault.code for one in judged for fault in one.faults]
    return _Done("".join(output), writer.rows(judged), findings=codes)


def _report_lost(writer: Writer, chunk: Chunk) -> _Done:
    detail = "not judged: the process that had it ended; is there enough memory? Judge it alone to see why"
    lost = [JudgedFile(found.file, (), (InputError(Code.INTERNAL, detail, Place(found.file)),)) for found in chunk]
    return _render(writer, lost)


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

    def _corrected(self, report: Report, found: ResultFile, names: Mapping[int, str]) -> Report:
        """Fail a report whose jti another file's token has; nobody has reproduced any of them yet."""
        places = self._shared.get(replay_key(report)) if report.verdict == "verified" else None
        if not places:
            return ranked(report)
        others = (names[place] for place in places if place in names and place != _place_of(found))
        return fail_shared_jti(report, next(others, "a file that is gone by now"))


def _place_of(found: ResultFile) -> int:
    """Return 32 bits by which another walk finds the file. Of its name: a number shifts when files come and go. Two
    files may have the same: then both are verified once more, and only what shares a jti is reported."""
    return crc32(found.file.encode("utf-8", "surrogateescape"))
