"""The parser of Inspect AI's logs (log format 2, JSON and `.eval`). It also finds scores that were edited. Pure.

`inspect_ai` interprets the members. The samples are not kept: they are only searched for edited scores, which no other
part of a log shows, and for errors. Their scores are counted if the run has several epochs, and by group if a metric
has groups.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from issuer.adapters import eval_zip, large_json
from issuer.adapters.evidence import MAX_BYTES, Octets, broken, read_json, too_large
from issuer.codes import Code
from issuer.errors import InputError, Place

T = TypeVar("T")

MAX_SUMMARIES = 128 * 2**20  # bytes: half a kilobyte to a few kilobytes for each sample
MAX_SAMPLE = 128 * 2**20
MAX_SAMPLES = 2 * 2**30  # bytes in an archive, unpacked one sample after the other: some seconds
SAMPLES_FREE = 32 * 2**20  # and, beyond these, at most MAX_SAMPLES_RATIO times the archive's size
MAX_SAMPLES_RATIO = 40
MAX_DEPTH = 128  # the deepest test log has 11; arguments of tool calls are nested inside it
MAX_OBJECTS = 4_000_000  # in samples that are parsed, at most 100 bytes of memory each
OBJECTS_FREE = 1_000_000  # and, beyond these, at most one for each OBJECT_BYTES of the file
OBJECT_BYTES = 10
MAX_SAMPLE_SCORES = 4 * 2**20  # bytes of one sample's scores
MAX_SCORERS = 10_000  # of all samples
MAX_NANS = 1_000_000  # in the samples of an archive: they are replaced one by one
MAX_GROUP_KEYS = 16
MAX_GROUPS = 256  # as many as one scorer has metrics
MAX_GROUP_NAME = 512  # bytes
MAX_GROUPED = 1_000_000  # samples that are counted, once for each scorer and key
PASSED_OVER = frozenset({"samples", "reductions"})  # one item for each sample: nearly the whole log

# Other objects also have a `history`. After a match the samples are parsed, to find the histories of scores.
_HISTORY = re.compile(rb'"history"\s*:\s*\[\s*[^\]\s]')
# A call of a tool also has an `error`. After a match the samples are parsed.
_ERROR = re.compile(rb'"error"\s*:\s*[^\sn]')
_EDIT_EVENT = re.compile(rb'"event"\s*:\s*"score_edit"')


class LogDataset(Struct, frozen=True):
    """`eval.dataset`: `samples` is the number of samples in the task's dataset, before any limit."""

    location: str | None = None
    samples: int | None = None


class Config(Struct, frozen=True):
    """`eval.config`: the choice of samples by `limit` and `sample_id`, how often each sample was run, and the limits of
    each."""

    limit: object = None
    sample_id: object = None
    epochs: Annotated[int, Meta(ge=1)] | None = None
    epochs_reducer: tuple[str, ...] | None = None
    cost_limit: object = None
    message_limit: object = None
    score_on_error: object = None
    time_limit: object = None
    token_limit: object = None
    turn_limit: object = None
    working_limit: object = None


class Revision(Struct, frozen=True):
    """`eval.revision`: the commit of the evaluation's code, as git abbreviates it."""

    commit: str = ""
    dirty: bool | None = None


class Metadata(Struct, frozen=True):
    """`eval.metadata`, which the run wrote. The log's top-level `metadata` can be edited after the run."""

    model_revision: str | None = None
    benchmark_revision: str | None = None


class Step(Struct, frozen=True):
    """One solver of the plan. `params_passed` lacks the parameters that it has by default; old releases lack it."""

    solver: str = ""
    params: dict[str, object] | None = None
    params_passed: dict[str, object] | None = None


class LogPlan(Struct, frozen=True):
    """`plan`. Its `config` overrides `eval.model_generate_config`."""

    steps: tuple[Step, ...] = ()
    config: dict[str, object] = {}


class Spec(Struct, frozen=True):
    """`eval`: the requested evaluation."""

    created: str
    task: str
    model: str
    dataset: LogDataset
    config: Config
    task_args: dict[str, object] = {}
    task_args_passed: dict[str, object] | None = None
    packages: Annotated[dict[str, str], Meta(max_length=64)] = {}
    metadata: Metadata | None = None  # null for a task without metadata
    model_args: dict[str, object] = {}
    model_base_url: str | None = None
    model_roles: Annotated[dict[str, object], Meta(max_length=64)] | None = None
    model_generate_config: dict[str, object] = {}
    revision: Revision | None = None


class LogMetric(Struct, frozen=True):
    """One number of a scorer. `grouped()` has its `group_key` and its metric among the `params`, and `name` is the name
    of a group."""

    value: object
    name: str = ""
    params: dict[str, object] = {}

    @property
    def group_key(self) -> str:
        """The member of the samples' metadata by which `grouped()` groups them; "" for other metrics."""
        key = self.params.get("group_key")
        return key if isinstance(key, str) else ""


class LogScore(Struct, frozen=True):
    """One of `results.scores`: `name` is unique among them, `scorer` is the name of its scores in the samples."""

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


class InspectLog(Struct, frozen=True):
    """The members that are read. Unknown ones are skipped, because every release adds some."""

    status: str
    eval: Spec
    version: Literal[2] = 2
    plan: LogPlan | None = None
    results: LogResults | None = None
    stats: Stats | None = None
    invalidated: bool = False


# By scorer and group_key: the number of samples in each group, by its name as text.
Groups: TypeAlias = Mapping[tuple[str, str], Mapping[str, int]]


class Samples(Struct, frozen=True):
    """The facts that the samples show. `edited` has the scorers with a score that was changed by hand after the run;
    `any_edited` means that an unknown scorer's score was changed. `unseen` means that the samples were too large to
    search. `scored` counts the scores of each scorer in all epochs; None if they were not counted. `failed` counts the
    samples that ended with an error. `groups` counts the samples with a score by group, each once."""

    edited: frozenset[str] = frozenset()
    any_edited: bool = False
    unseen: bool = False
    scored: dict[str, int] | None = None
    failed: int = 0
    groups: Groups = {}


def load(raw: Octets, name: str) -> tuple[InspectLog, Samples]:
    """Read a log, and search its samples; a bytearray is scanned in place. Raises InputError: `file.*` of the readers
    (numbers that no claim uses may be NaN), `file.schema` for a member of the wrong type, `file.rule` for the archive
    of an unfinished run."""
    if eval_zip.is_zip(raw):
        members = eval_zip.directory(raw, name)
        if "header.json" not in members:  # Inspect AI writes it last, when the run has ended
            raise broken(name, "", "the archive has no header.json: the run never finished, or it is not an .eval log")
        header = eval_zip.unpack(raw, members["header.json"], max_bytes=MAX_BYTES, name=name)
        log = read_json(header, InspectLog, name, max_depth=MAX_DEPTH)
        return log, _packed_samples(raw, members, log, name)
    log = read_json(large_json.without(raw, PASSED_OVER, name=name), InspectLog, name, max_depth=MAX_DEPTH)
    return log, _samples(raw, log, name)


_RULE = "the samples do not have the form of a log's samples"
_NULL = msgspec.Raw(b"null")


class _SampleScore(Struct, frozen=True):
    history: msgspec.Raw = msgspec.Raw(b"[]")

    @property
    def edited(self) -> bool:
        return bytes(self.history).translate(None, b" \t\r\n") not in {b"[]", b"null"}


class _Sample(Struct, frozen=True):
    scores: msgspec.Raw = _NULL  # decoded one by one: together they can take twenty times their size
    error: msgspec.Raw = _NULL


class _Document(Struct, frozen=True):
    samples: list[_Sample] | None = None


class _GroupedSample(_Sample, frozen=True):
    id: msgspec.Raw = _NULL
    metadata: msgspec.Raw = _NULL


class _GroupedDocument(Struct, frozen=True):
    samples: list[_GroupedSample] | None = None


class _Grouping:
    """The number of samples with a score in each group, for the metrics that have groups."""

    def __init__(self, log: InspectLog) -> None:
        scores = log.results.scores if log.results else ()
        keys = sorted({metric.group_key for score in scores for metric in score.metrics.values()} - {""})
        self.keys = keys if len(keys) <= MAX_GROUP_KEYS else []
        self._scorers = {score.scorer or score.name for score in scores}
        # Only the members that group samples: all metadata can take twenty times its size in memory.
        fields = [(f"at{index}", msgspec.Raw, msgspec.field(name=key, default=_NULL)) for index, key in enumerate(keys)]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("_Metadata", fields) | None).decode
        self._ids: defaultdict[tuple[str, str], dict[str, set[bytes]]] = defaultdict(dict)
        self._added = 0

    def add(self, sample: _GroupedSample, scored: Collection[str], name: str) -> None:
        """Add a sample to its groups, under each of its scorers."""
        scorers = self._scorers.intersection(scored)
        self._added += len(scorers) * len(self.keys)
        if self._added > MAX_GROUPED:
            return
        metadata, id_ = _read(self._decode, sample.metadata, name), bytes(sample.id)
        for index, key in enumerate(self.keys):
            written = getattr(metadata, f"at{index}", _NULL)
            group = str(_read(msgspec.json.decode, written, name)) if len(written) <= MAX_GROUP_NAME else ""
            for scorer in scorers:
                groups = self._ids[scorer, key]
                if len(groups) <= MAX_GROUPS:
                    groups.setdefault(group, set()).add(id_)

    def sizes(self) -> Groups:
        """Return the sizes; none where there were too many groups or samples to count."""
        counted = self._ids.items() if self._added <= MAX_GROUPED else ()
        return {
            by: {group: len(ids) for group, ids in groups.items()}
            for by, groups in counted
            if len(groups) <= MAX_GROUPS
        }


def _samples(raw: Octets, log: InspectLog, name: str) -> Samples:
    """Search the samples of a JSON log. Only groups, a `history`, an `error` or several epochs require parsing them."""
    event, counted, grouping = _EDIT_EVENT.search(raw) is not None, _has_epochs(log), _Grouping(log)
    if not counted and not grouping.keys and not (_HISTORY.search(raw) or _ERROR.search(raw)):
        return Samples(any_edited=event)
    if raw.count(b"{") > _most_objects(raw):
        return Samples(any_edited=event, unseen=True)
    kind: type[_Document | _GroupedDocument] = _GroupedDocument if grouping.keys else _Document
    found = large_json.picked(raw, kind, name, _RULE, lambda log: _search(log.samples or (), name, grouping))
    scored = found.scored if counted else None
    return replace(found, any_edited=event and not found.edited, scored=scored, groups=grouping.sizes())


def _packed_samples(raw: Octets, members: dict[str, eval_zip.Member], log: InspectLog, name: str) -> Samples:
    """Search each sample of an archive: the summaries have the scores, but not their histories. Parsing a sample takes
    less time than a search for each word that could require it."""
    packed = [member for member in members.values() if member.name.startswith("samples/")]
    if sum(member.unpacked for member in packed) > min(MAX_SAMPLES, SAMPLES_FREE + MAX_SAMPLES_RATIO * len(raw)):
        return Samples(unseen=True)
    edited, event, failed, nans, grouping = set[str](), False, 0, 0, _Grouping(log)
    kind = _GroupedSample if grouping.keys else _Sample
    for member in packed:
        sample = eval_zip.unpack(raw, member, max_bytes=MAX_SAMPLE, name=name)
        event = event or _EDIT_EVENT.search(sample) is not None
        nans += large_json.count_nans(sample)
        if nans > MAX_NANS:
            return Samples(any_edited=event, unseen=True)
        found = large_json.picked(sample, kind, name, _RULE, lambda parsed: _search([parsed], name, grouping))
        edited, failed = edited | found.edited, failed + found.failed
    scored = _summarized(raw, members, name) if _has_epochs(log) else None
    return Samples(frozenset(edited), event and not edited, scored=scored, failed=failed, groups=grouping.sizes())


def _summarized(raw: Octets, members: dict[str, eval_zip.Member], name: str) -> dict[str, int] | None:
    if "summaries.json" not in members:
        return None
    summaries = eval_zip.unpack(raw, members["summaries.json"], max_bytes=MAX_SUMMARIES, name=name)
    if summaries.count(b"{") > _most_objects(raw):
        return None
    return large_json.picked(summaries, list[_Sample], name, _RULE, lambda samples: _search(samples, name)).scored


def _most_objects(raw: Octets) -> int:
    """Return how many objects the samples of this file may have: a sample of two bytes takes 56 bytes of memory."""
    return min(MAX_OBJECTS, max(OBJECTS_FREE, len(raw) // OBJECT_BYTES))


def _has_epochs(log: InspectLog) -> bool:
    return (log.eval.config.epochs or 1) > 1


def _search(samples: Sequence[_Sample], name: str, grouping: _Grouping | None = None) -> Samples:
    """Return the scorers with an edited score, as Inspect AI adds each edit to the score's history; the number of
    scores of each scorer, if there are samples; and the number of samples with an error. Add each to its groups."""
    edited, scored, failed = set[str](), dict[str, int](), 0
    for sample in samples:
        failed += sample.error != _NULL
        scores = _scores(sample, name)
        if grouping is not None and isinstance(sample, _GroupedSample):
            grouping.add(sample, scores, name)
        for scorer, score in scores.items():
            scored[scorer] = scored.get(scorer, 0) + 1
            if score.edited:
                edited.add(scorer)
        if len(scored) > MAX_SCORERS:
            raise too_large(name, f"more than {MAX_SCORERS} scorers", "/samples")
    return Samples(frozenset(edited), scored=scored if samples else None, failed=failed)


_decode_scores = msgspec.json.Decoder(dict[str, _SampleScore] | None).decode


def _scores(sample: _Sample, name: str) -> dict[str, _SampleScore]:
    """Decode the scores of a sample. Raises InputError: `file.too_large`, and `file.schema` for another type."""
    if len(sample.scores) > MAX_SAMPLE_SCORES:
        raise too_large(name, f"more than {MAX_SAMPLE_SCORES} bytes of scores in one sample", "/samples")
    return _read(_decode_scores, sample.scores, name) or {}


def _read(decode: Callable[[msgspec.Raw], T], raw: msgspec.Raw, name: str) -> T:
    """Decode a part of a sample. Raises InputError(`file.schema`) for another type."""
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InputError(Code.FILE_SCHEMA, _RULE, Place(name)) from None
