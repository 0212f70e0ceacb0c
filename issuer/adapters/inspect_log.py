"""The logs of Inspect AI (log format 2), JSON and `.eval`: what is read of them, and which scores were edited. Pure.

What the members mean is for `inspect_ai`. Samples are not kept: they are searched for scores that were edited, which
nothing else of a log shows, and where there are several epochs the scores are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from issuer.adapters import eval_zip, large_json
from issuer.adapters.evidence import MAX_BYTES, Octets, broken, read_json

MAX_SUMMARIES = 128 * 2**20  # half a kilobyte to a few a sample
MAX_SAMPLE = 256 * 2**20
MAX_SAMPLES = 2 * 2**30  # of an archive, unpacked one after the other: some seconds
MAX_DEPTH = 128  # the deepest of the sample logs is 11; tool calls nest what the tools take
MAX_OBJECTS = 4_000_000  # in samples that are looked at one by one: some 200 MB
PASSED_OVER = frozenset({"samples", "reductions"})  # one item a sample each: nearly all of a log

# Other things have a `history`, too: what the first finds is looked at in its place.
_HISTORY = re.compile(rb'"history"\s*:\s*\[\s*[^\]\s]')
_EDIT_EVENT = re.compile(rb'"event"\s*:\s*"score_edit"')


class LogDataset(Struct, frozen=True):
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
    """How answers were generated: `plan.config`, or `eval.model_generate_config` where that says nothing."""

    seed: int | None = None


class LogPlan(Struct, frozen=True):
    """`plan`."""

    config: Generation = Generation()


class Spec(Struct, frozen=True):
    """`eval`: what was asked for."""

    created: str
    task: str
    model: str
    dataset: LogDataset
    config: Config
    packages: Annotated[dict[str, str], Meta(max_length=64)] = {}
    metadata: Metadata | None = None  # null where a task has none
    model_args: dict[str, object] = {}
    model_base_url: str | None = None
    model_roles: Annotated[dict[str, object], Meta(max_length=64)] | None = None
    model_generate_config: Generation = Generation()
    revision: Revision | None = None


class LogMetric(Struct, frozen=True):
    """One number of a scorer."""

    value: object


class LogScore(Struct, frozen=True):
    """One of `results.scores`: `name` tells it from the others, `scorer` is what the samples' scores are called."""

    name: str
    metrics: Annotated[dict[str, LogMetric], Meta(max_length=256)]
    scorer: str = ""
    reducer: str | None = None
    scored_samples: int | None = None
    unscored_samples: int | None = None
    params: dict[str, object] = {}


class LogResults(Struct, frozen=True):
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
    plan: LogPlan | None = None
    results: LogResults | None = None
    stats: Stats | None = None
    invalidated: bool = False


class Samples(Struct, frozen=True):
    """What the samples say of their scores. `edited` are the scorers of which a score was changed by hand after the
    run; `any_edited` says that one was, but not whose. `unseen` says that there were too many samples to look. `scored`
    counts the scores of each scorer, those of every epoch; None where they were not counted."""

    edited: frozenset[str] = frozenset()
    any_edited: bool = False
    unseen: bool = False
    scored: dict[str, int] | None = None


def load(raw: Octets, name: str) -> tuple[Log, Samples]:
    """Read a log (a bytearray is scanned in place), and what its samples say of their scores. Raises InputError:
    `file.*` of the readers (numbers that are not used may be NaN), `file.schema` for a member of the wrong type,
    `file.rule` for an archive of a run that never finished."""
    if eval_zip.is_zip(raw):
        members = eval_zip.directory(raw, name)
        log = read_json(_header(raw, members, name), Log, name, max_depth=MAX_DEPTH)
        return log, _packed_samples(raw, members, log, name)
    log = read_json(large_json.without(raw, PASSED_OVER, name=name), Log, name, max_depth=MAX_DEPTH)
    return log, _samples(raw, log, name)


def _header(raw: Octets, members: dict[str, eval_zip.Member], name: str) -> bytes:
    if "header.json" not in members:
        # Inspect AI writes this last, when the run has ended.
        raise broken(name, "", "the archive has no header.json: the run never finished, or it is no .eval log")
    return eval_zip.unpack(raw, members["header.json"], max_bytes=MAX_BYTES, name=name)


_RULE = "the samples are not in the form of a log's"


class _SampleScore(Struct, frozen=True):
    history: msgspec.Raw = msgspec.Raw(b"[]")

    @property
    def edited(self) -> bool:
        return bytes(self.history).translate(None, b" \t\r\n") not in {b"[]", b"null"}


class _Sample(Struct, frozen=True):
    scores: dict[str, _SampleScore] | None = None


class _Document(Struct, frozen=True):
    samples: list[_Sample] | None = None


def _samples(raw: Octets, log: Log, name: str) -> Samples:
    """Look at the samples of a JSON log, one by one only where they have to be."""
    event, counted = _EDIT_EVENT.search(raw) is not None, _has_epochs(log)
    if not counted and not _HISTORY.search(raw):
        return Samples(any_edited=event)
    if raw.count(b"{") > MAX_OBJECTS:
        return Samples(any_edited=event, unseen=True)
    samples = large_json.picked(raw, _Document, name, _RULE).samples or []
    edited = _edited(samples)
    return Samples(edited, event and not edited, scored=_scored(samples) if counted and samples else None)


def _packed_samples(raw: Octets, members: dict[str, eval_zip.Member], log: Log, name: str) -> Samples:
    """Look at the samples of an archive: the summaries have their scores, but not the history of these."""
    found = [member for member in members.values() if member.name.startswith("samples/")]
    if sum(member.unpacked for member in found) > MAX_SAMPLES:
        return Samples(unseen=True)
    edited, event = set[str](), False
    for member in found:
        sample = eval_zip.unpack(raw, member, max_bytes=MAX_SAMPLE, name=name)
        event = event or _EDIT_EVENT.search(sample) is not None
        if _HISTORY.search(sample):
            edited |= _edited([large_json.picked(sample, _Sample, name, _RULE)])
    scored = _summarized(raw, members, name) if _has_epochs(log) else None
    return Samples(frozenset(edited), event and not edited, scored=scored)


def _summarized(raw: Octets, members: dict[str, eval_zip.Member], name: str) -> dict[str, int] | None:
    if "summaries.json" not in members:
        return None
    summaries = eval_zip.unpack(raw, members["summaries.json"], max_bytes=MAX_SUMMARIES, name=name)
    if summaries.count(b"{") > MAX_OBJECTS:
        return None
    return _scored(large_json.picked(summaries, list[_Sample], name, _RULE))


def _has_epochs(log: Log) -> bool:
    return (log.eval.config.epochs or 1) > 1


def _edited(samples: list[_Sample]) -> frozenset[str]:
    """Return the scorers of which a score has a history: Inspect AI keeps one of each edit."""
    scores = (score for sample in samples for score in (sample.scores or {}).items())
    return frozenset(scorer for scorer, score in scores if score.edited)


def _scored(samples: list[_Sample]) -> dict[str, int]:
    return Counter(scorer for sample in samples for scorer in sample.scores or {})
