"""Finds the runs in files and folders, recognises their format and reads them. Writes no files.

Sizes are checked before anything is read. A format is recognised by the names of a document's members, never by the
name of its file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from issuer.adapters import (
    eval_zip,
    every_eval_ever,
    helm,
    inspect_ai,
    large_json,
    lighteval,
    lm_eval,
    plain_json,
    verievals,
)  # fmt: skip
from issuer.adapters.evidence import MAX_BYTES, broken
from issuer.adapters.run import Run
from issuer.adapters.verievals import Anchors
from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.io import files

SourceName: TypeAlias = Literal["auto", "inspect", "lm-eval", "lighteval", "helm", "eee", "verievals", "json"]

MAX_FILES = 10_000


class _Format(Struct, frozen=True):
    """A source: the members by which a JSON document of it is recognised, if any, the names that its files have in a
    folder, and the reader that needs the file and its name alone, and finds any number of runs in it."""

    marks: frozenset[str]
    patterns: tuple[str, ...]
    reader: Callable[[bytearray, str], tuple[Run, ...]] | None = None
    max_bytes: int = MAX_BYTES


_LOGS, _RESULTS, _JSON = ("*.json", "*.eval"), ("results*.json",), ("*.json",)
_FORMATS: dict[str, _Format] = {
    "auto": _Format(frozenset(), _LOGS, max_bytes=inspect_ai.MAX_BYTES),
    "inspect": _Format(frozenset({"status", "eval"}), _LOGS, max_bytes=inspect_ai.MAX_BYTES),
    "lm-eval": _Format(frozenset({"results", "configs", "n-shot"}), _RESULTS, lm_eval.read),
    "lighteval": _Format(frozenset({"config_general", "results", "config_tasks"}), _RESULTS, lighteval.read),
    "helm": _Format(frozenset(), ()),
    "eee": _Format(frozenset({"schema_version", "source_metadata", "evaluation_results"}), _JSON, every_eval_ever.read),
    "verievals": _Format(frozenset({"body", "content_hash", "signature"}), _JSON, max_bytes=verievals.MAX_BYTES),
    "json": _Format(frozenset({"format", "runs"}), _JSON, plain_json.read),
}
SOURCES: Final = tuple(_FORMATS)


def read(path: Path | str, source: SourceName = "auto", *, task: str = "", anchors: Anchors | None = None) -> Run:
    """Read the one run in a file or folder, or the run of `task` where a file has several. Raises InputError as
    `read_all` does, and `file.rule` where there is not exactly one."""
    runs = [run for run in read_all(path, source, anchors=anchors) if task in {"", run.task}]
    if len(runs) != 1:
        tasks = ", ".join(repr(run.task[:64]) for run in runs[:20])
        raise broken(str(path), "", f"{len(runs)} runs where one is wanted: {tasks}")
    return runs[0]


def read_all(path: Path | str, source: SourceName = "auto", *, anchors: Anchors | None = None) -> tuple[Run, ...]:
    """Read every run in a file, a run directory of HELM, or a folder of such. `anchors` is what a verievals record is
    checked against. Raises InputError: `file.unreadable`, `file.too_large`, `file.rule` for a document of no known
    format, and what the format's own reader raises."""
    return tuple(run for found in _files(Path(path), source) for run in _read_one(found, source, anchors))


def read_each(
    path: Path | str, source: SourceName = "auto", *, anchors: Anchors | None = None
) -> Iterator[tuple[Run, ...] | InputError]:
    """Do the same file by file: yield the runs of each, or why it cannot be read, which keeps nobody from the next."""
    found = _files(Path(path), source)
    while True:
        try:
            yield _read_one(next(found), source, anchors)
        except StopIteration:
            return
        except InputError as error:
            yield error


def _files(path: Path, source: SourceName) -> Iterator[Path]:
    """Find files and run directories, in the order of their names. Links are skipped."""
    if not path.is_dir() or (path / "run_spec.json").is_file():
        yield path
        return
    plain = sorted(file for file in files.find(path) if not file.is_symlink())
    runs = [file.parent for file in plain if file.name == "run_spec.json"]
    wanted = [file for file in plain if any(map(file.match, _FORMATS[source].patterns))]
    alone = [file for file in wanted if not set(file.parents) & set(runs)]
    found = [*(runs if source in {"auto", "helm"} else []), *alone]
    if not found:
        raise broken(str(path), "", f"no file in this folder looks like a run ({source})")
    if len(found) > MAX_FILES:
        raise InputError(Code.FILE_TOO_LARGE, f"more than {MAX_FILES} runs", Place(str(path)))
    yield from found


def _read_one(path: Path, source: SourceName, anchors: Anchors | None) -> tuple[Run, ...]:
    name = str(path)
    if path.is_dir():
        if source not in {"auto", "helm"}:
            raise broken(name, "", f"a run directory of HELM, not a file of {source}")
        return (helm.read(_helm_files(path), name),)
    raw = read_file(path, _FORMATS[source].max_bytes)
    kind = _recognised(raw, name) if source == "auto" else source
    if kind == "inspect":
        return (inspect_ai.read(raw, name),)
    if reader := _FORMATS[kind].reader:
        return reader(raw, name)
    if kind == "helm":
        raise broken(name, "", "a run of HELM is a folder with run_spec.json and stats.json: give the folder")
    if anchors is None:
        rule = "a record is worth what it is checked against: give --verievals-key, -ledger and -root"
        raise broken(name, "", rule)
    return (verievals.read(raw, name, anchors=anchors),)


def _helm_files(folder: Path) -> dict[str, bytearray]:
    """Read the files of a run directory; not what it has of each instance where that is more than the counts need."""
    limits = dict.fromkeys((*helm.REQUIRED, *helm.OPTIONAL), MAX_BYTES)
    instances = folder / helm.PER_INSTANCE
    if instances.exists() and instances.stat().st_size <= helm.MAX_PER_INSTANCE:
        limits[helm.PER_INSTANCE] = helm.MAX_PER_INSTANCE
    return {
        file: read_file(folder / file, limit, follow=False)
        for file, limit in limits.items()
        if (folder / file).exists()
    }


def _recognised(raw: bytearray, name: str) -> str:
    if eval_zip.is_zip(raw):
        return "inspect"
    members = large_json.members(raw, name)
    kinds = [kind for kind, known in _FORMATS.items() if known.marks and known.marks <= members]
    if len(kinds) != 1:
        what = "of several formats" if kinds else "no run of a known format"
        raise broken(name, "", f"{what}: say with --from which it is")
    return kinds[0]


def read_file(path: Path, max_bytes: int, *, follow: bool = True) -> bytearray:
    """Read a plain file of at most `max_bytes` into a buffer of its own. Raises InputError. Not by `files.read`:
    `large_json` writes into the buffer, and half a gigabyte should not be copied for that."""
    with files.open_plain(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise InputError(Code.FILE_TOO_LARGE, f"larger than {max_bytes} bytes", Place(str(path)))
        raw = bytearray(size)
        if file.readinto(raw) != size:
            raise files.unreadable(path, "the file shrank while it was read")
    return raw
