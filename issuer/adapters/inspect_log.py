"""The logs of Inspect AI (log format 2), JSON and `.eval`: what is read of them, and which scores were edited. Pure.

What the members mean is for `inspect_ai`. Samples are not parsed: a JSON log's are skipped, of an `.eval` only
`header.json` and, for the edits, `summaries.json` are unpacked.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from issuer.adapters import eval_zip, large_json
from issuer.adapters.evidence import Octets, broken, lenient_number
from issuer.codes import Code
from issuer.errors import InputError, Place, reading
from issuer.formats import strict_json

MAX_HEADER = 8 * 2**20  # what is parsed: all but the samples
MAX_SUMMARIES = 128 * 2**20  # half a kilobyte to a few a sample
MAX_DEPTH = 128  # the deepest of the sample logs is 11; tool calls nest what the tools take
MAX_OBJECTS = 4_000_000  # in samples that are looked at one by one: some 200 MB
PASSED_OVER = frozenset({"samples", "reductions"})  # one item a sample each: nearly all of a log

_HISTORY = re.compile(rb'"history"\s*:\s*\[\s*[^\]\s]')
_EDIT_EVENT = re.compile(rb'"event"\s*:\s*"score_edit"')


class Dataset(Struct, frozen=True):
    """`eval.dataset`: `samples` is how many the task's dataset has, before any limit."""

    location: str | None = None
    samples: int | None = None


class Config(Struct, frozen=True):
    """`eval.config`: what `limit` and `sample_id` chose, and how often each sample was run."""

    limit: object = None
    sample_id: object = None
    epochs: Annotated[int, Meta(ge=1)] | None = None
    epochs_reducer: tuple[str, ...] | None = None


class Revision(Struct, frozen=True):
    """`eval.revision`: the commit of the evaluation's code, as short as git has it."""

    commit: str = ""
    dirty: bool | None = None


class Metadata(Struct, frozen=True):
    """`eval.metadata`, as the run had it: `metadata` of the log itself can be edited afterwards."""

    model_revision: str | None = None
    benchmark_revision: str | None = None


class Generation(Struct, frozen=True):
    """`eval.model_generate_config`."""

    seed: int | None = None


class Spec(Struct, frozen=True):
    """`eval`: what was asked for."""

    created: str
    task: str
    model: str
    dataset: Dataset
    config: Config
    packages: Annotated[dict[str, str], Meta(max_length=64)] = {}
    metadata: Metadata | None = None  # null where a task has none
    model_args: dict[str, object] = {}
    model_base_url: str | None = None
    model_roles: Annotated[dict[str, object], Meta(max_length=64)] | None = None
    model_generate_config: Generation = Generation()
    revision: Revision | None = None


class Metric(Struct, frozen=True):
    """One number of a scorer."""

    value: object


class LogScore(Struct, frozen=True):
    """One of `results.scores`: `name` tells it from the others, `scorer` is what the samples' scores are called."""

    name: str
    metrics: Annotated[dict[str, Metric], Meta(max_length=256)]
    scorer: str = ""
    reducer: str | None = None
    scored_samples: int | None = None
    unscored_samples: int | None = None
    params: dict[str, object] = {}


class Results(Struct, frozen=True):
    """`results`: `total_samples` and `completed_samples` count a sample once for each epoch."""

    total_samples: int
    completed_samples: int
    scores: Annotated[tuple[LogScore, ...], Meta(max_length=256)] = ()
    logged_samples: int | None = None
    early_stopping: object = None


class Stats(Struct, frozen=True):
    """`stats`."""

    completed_at: str | None = None
    model_usage: dict[str, object] = {}


class Log(Struct, frozen=True):
    """The members that are read. A log has many more, and every release adds some: unknown ones are skipped."""

    status: str
    eval: Spec
    version: Literal[2] = 2
    results: Results | None = None
    stats: Stats | None = None
    invalidated: bool = False


class Edits(Struct, frozen=True):
    """What was changed by hand after the run: the scorers of edited scores; `events` where an event alone says so."""

    scorers: frozenset[str] = frozenset()
    events: bool = False


def load(raw: Octets, name: str) -> tuple[Log, Edits]:
    """Read a log without its samples (a bytearray is scanned in place), and which scores were edited.

    Raises InputError: `file.*` of the readers (numbers that are not used may be NaN), `file.schema` for a member of the
    wrong type, `file.rule` for an archive of a run that never finished.
    """
    if eval_zip.is_zip(raw):
        members = eval_zip.directory(raw, name)
        log = _parse(_header(raw, members, name), name)
        return log, Edits(_summarized(raw, members, name))
    log = _parse(large_json.without(raw, PASSED_OVER, name=name), name)
    return log, Edits(_edited(raw, _Samples, name), _EDIT_EVENT.search(raw) is not None)


def _parse(header: bytes, name: str) -> Log:
    with reading(name):
        tree = strict_json.loads(header, max_bytes=MAX_HEADER, max_depth=MAX_DEPTH, number=lenient_number)
        return strict_json.convert(tree, Log)


def _header(raw: Octets, members: dict[str, eval_zip.Member], name: str) -> bytes:
    if "header.json" not in members:
        # Inspect AI writes this last, when the run has ended.
        raise broken(name, "", "the archive has no header.json: the run never finished, or it is no .eval log")
    return eval_zip.unpack(raw, members["header.json"], max_bytes=MAX_HEADER, name=name)


def _summarized(raw: Octets, members: dict[str, eval_zip.Member], name: str) -> frozenset[str]:
    if "summaries.json" not in members:
        return frozenset()
    summaries = eval_zip.unpack(raw, members["summaries.json"], max_bytes=MAX_SUMMARIES, name=name)
    return _edited(summaries, list[_Sample], name)


class _SampleScore(Struct, frozen=True):
    history: msgspec.Raw = msgspec.Raw(b"[]")


class _Sample(Struct, frozen=True):
    scores: dict[str, _SampleScore] | None = None


class _Samples(Struct, frozen=True):
    samples: list[_Sample] | None = None


def _edited(raw: Octets, kind: type[_Samples] | type[list[_Sample]], name: str) -> frozenset[str]:
    """Return the scorers of which a sample's score has a history: Inspect AI keeps one of each edit.

    Other things have a `history` too, so the samples are looked at, but only where there is one at all.
    """
    if not _HISTORY.search(raw):
        return frozenset()
    if raw.count(b"{") > MAX_OBJECTS:
        raise InputError(Code.FILE_TOO_LARGE, "too many samples to look for edited scores in", Place(name))
    found = large_json.picked(raw, kind, name, "the samples are not in the form of a log's")
    samples = found if isinstance(found, list) else found.samples or []
    return frozenset(
        scorer
        for sample in samples
        for scorer, score in (sample.scores or {}).items()
        if bytes(score.history).translate(None, b" \t\r\n") not in {b"[]", b"null"}
    )
