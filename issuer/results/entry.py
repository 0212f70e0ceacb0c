"""Entries of `.eval_results/*.yaml` files (contract section 3): three shapes read, three profiles written. Pure.

Knows the details, the target form and its content digest, how an entry is written so that every YAML reader reads it
alike, and how it is read back. The repository of a file is not in the file and not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError
from issuer.formats import jcs, strict_yaml
from issuer.formats.strict_json import JSON, Path, convert, pointer_along, pointer_to
from issuer.results import emit
from issuer.results.claims import RunClaims, read_claims

TOKEN_MEMBERS = ("verify_token", "verifyToken")
_UNBOUND = frozenset({*TOKEN_MEMBERS, "value"})
MAX_ENTRIES = 1000


def drop_nulls(value: JSON) -> JSON:
    """Drop nulls from maps, bottom-up, and a map left empty by that with them; a map that was `{}` stays. Raises
    FormatError(`file.rule`) for a null in an array, and for a map in an array that would become empty."""
    # Hardly any entry has one, and encoding it in C costs a twentieth of the walk.
    return _without_nulls(value, None) if b"null" in msgspec.json.encode(value) else value


def _without_nulls(value: JSON, path: Path, *, in_array: bool = False) -> JSON:
    if isinstance(value, str | float | int):  # before Mapping, which takes ten times as long to check
        return value
    if isinstance(value, Mapping):
        kept = {name: _without_nulls(item, (path, name)) for name, item in value.items()}
        kept = {name: item for name, item in kept.items() if item is not None}
        if value and not kept:
            if in_array:
                _refuse_nothing(path, "a map of nulls in a list")
            return None
        return kept
    if isinstance(value, list | tuple):
        return [_without_nulls(item, (path, index), in_array=True) for index, item in enumerate(value)]
    if value is None and in_array:
        _refuse_nothing(path, "a null in a list")
    return value


def _refuse_nothing(path: Path, what: str) -> NoReturn:
    raise FormatError(Code.FILE_RULE, f"{what} has no canonical form: leave it out", pointer_along(path))


def target_entry(claims: RunClaims, details: Mapping[str, JSON]) -> dict[str, JSON]:
    """Build the entry's target form, without token, from run claims and details that have been read."""
    return _target(claims.to_json(), details)


def _target(said: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dataset": {"id": said["benchmark_repo"], "task_id": said["task_id"], "revision": said["benchmark_revision"]},
        "model_revision": said["model_revision"],
        "framework": said["framework"],
        "metrics": said["metrics"],
        **details,
    }


class Submission(Struct, frozen=True):
    """One result to sign: its claims, the details of its entry, and the two digests that bind them. `pointer` leads to
    it in the request body: "" for `/tokens`, `/results/3` in a batch. `canonical_claims` and `canonical_details` are
    the RFC 8785 bytes of both."""

    pointer: str
    claims: RunClaims
    details: dict[str, JSON]
    canonical_claims: bytes
    canonical_details: bytes
    claims_digest: str
    content_digest: str

    @classmethod
    def of(cls, claims: RunClaims, details: dict[str, JSON], pointer: str = "") -> Submission:
        """Make the submission of run claims and details that have been read."""
        written = {name: jcs.written(jcs.plain(item)) for name, item in details.items()}
        said, content = jcs.encode(claims.plain), jcs.encode(_target(claims.plain, written))
        digests = jcs.digest_of_bytes(said), jcs.digest_of_bytes(content)
        return cls(pointer, claims, details, said, jcs.encode(written), *digests)

    @property
    def form(self) -> dict[str, JSON]:
        """The entry's target form, over which the content digest is taken."""
        return target_entry(self.claims, self.details)

    def entry(self, token: str) -> str:
        """Write the entry with its token, as `write_entry` does, but faster: only the details have a free form."""
        return f'{emit.claims_head(self.claims)}{emit.below(self.details)}  verify_token: "{token}"\n'


def target_form(entry: Mapping[str, JSON]) -> dict[str, JSON]:
    """Bring an entry of a file into its target form, over which the content digest is taken. Token members and `value`
    go, nulls are dropped, metrics are sorted; every other member counts, known or not. Raises FormatError(`file.rule`)
    for an entry without a canonical form."""
    plain = drop_nulls({name: item for name, item in entry.items() if name not in _UNBOUND})
    return _without_unbound(plain) if isinstance(plain, dict) else {}


def _without_unbound(plain: Mapping[str, JSON]) -> dict[str, JSON]:
    form = {name: item for name, item in plain.items() if name not in _UNBOUND}
    if isinstance(metrics := form.get("metrics"), list) and len(metrics) > 1:
        form["metrics"] = sorted(metrics, key=_metric_key)
    return form


def _metric_key(metric: JSON) -> tuple[bytes, bytes]:
    members = metric if isinstance(metric, Mapping) else {}
    return str(members.get("metric_id", "")).encode(), str(members.get("slice", "")).encode()


def content_digest(form: Mapping[str, JSON]) -> str:
    """Return the digest of an entry in its target form (contract section 2)."""
    return jcs.digest(form)


# -- writing ----------------------------------------------------------------------------------------------------------

Profile = Literal["target", "both", "hub"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
SIGNED_PROFILES: tuple[Profile, ...] = ("target", "both")  # those in which an entry has its token
HUB_MEMBERS = ("dataset", "value", "date", "source", "notes")
_HUB_DATASET = ("id", "task_id", "revision")


def write_entry(
    form: Mapping[str, JSON], token: str | None = None, *, profile: Profile = "target", primary: str | None = None
) -> str:
    """Write one entry, given in its target form, as the YAML list item to paste into a file.

    `target` is the form and the token; `both` adds `value`, the score of the primary metric, and the token under its
    second name, for today's readers; `hub` has the members that today's Hub knows, without a token. `primary` is the id
    of the benchmark's primary metric (`Benchmark.primary`). Raises FormatError(`file.rule`) where `both` or `hub` lacks
    it. Without a token the result is `unverified`.
    """
    members = dict(form)
    if profile != "target":
        members["value"] = primary_value(form, primary)
    if profile == "hub":
        members = {name: members[name] for name in HUB_MEMBERS if name in members}
        dataset = members["dataset"] if isinstance(members.get("dataset"), Mapping) else {}
        members["dataset"] = {name: dataset[name] for name in _HUB_DATASET if name in dataset}  # type: ignore[index, operator, call-overload]
    elif token is not None:
        members.update(dict.fromkeys(TOKEN_MEMBERS if profile == "both" else TOKEN_MEMBERS[:1], token))
    return emit.item(members)


def primary_value(form: Mapping[str, JSON], primary: str | None) -> JSON:
    """Return the score of (primary metric, no slice). Raises FormatError(`file.rule`) for an entry without it."""
    if primary is None:
        rule = "this profile needs the benchmark's primary metric: give the `eval.yaml` that names it"
        raise FormatError(Code.FILE_RULE, rule, "/metrics")
    metrics = form.get("metrics")
    for metric in metrics if isinstance(metrics, Sequence) else ():
        if isinstance(metric, Mapping) and metric.get("metric_id") == primary and "slice" not in metric:
            return metric.get("value")
    rule = f"this profile needs a score of the primary metric, {primary}, without a slice"
    raise FormatError(Code.FILE_RULE, rule, "/metrics")


# -- reading ----------------------------------------------------------------------------------------------------------


class Dataset(Struct, frozen=True):
    """`dataset` of an entry: benchmark repository, task and benchmark commit."""

    id: str
    task_id: str | UnsetType = UNSET
    revision: str | UnsetType = UNSET


class EntryMetric(Struct, frozen=True):
    """One item of `metrics` in a file. Its values may be what no `claims.Metric` has: the checks judge them."""

    metric_id: str
    value: float
    slice: str | UnsetType = UNSET
    value_type: str | UnsetType = UNSET
    sample_size: int | UnsetType = UNSET


class EntryFramework(Struct, frozen=True):
    """`framework` of an entry."""

    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    command: str | UnsetType = UNSET


class EntrySource(Struct, frozen=True):
    """`source` of an entry."""

    url: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    org: str | UnsetType = UNSET


class EntryDetails(Struct, frozen=True):
    """The details of an entry of a file: only their types are checked, an unsigned entry may have other members."""

    date: str | UnsetType = UNSET
    source: EntrySource | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    artifacts: list[Any] | dict[str, Any] | UnsetType = UNSET
    runtime_context: dict[str, Any] | UnsetType = UNSET
    benchmark_subset: str | UnsetType = UNSET
    normalization: dict[str, Any] | UnsetType = UNSET


class Entry(Struct, frozen=True):
    """One entry of a file: the typed members that checks compare, and `form`, its target form. Unknown members are in
    `form` alone: kept, and bound by the content digest. `token_members` are the names under which the file has the
    token."""

    pointer: str
    form: dict[str, JSON]
    token: str | None
    dataset: Dataset
    model_revision: str | UnsetType
    framework: EntryFramework
    metrics: tuple[EntryMetric, ...] | None
    value: float | UnsetType
    details: EntryDetails
    token_members: tuple[str, ...]

    def rewritten(self) -> str:
        """Write the entry in its own shape, as `write_entry` does: its content does not change."""
        value = {} if self.value is UNSET else {"value": self.value}
        return emit.item({**self.form, **value, **dict.fromkeys(self.token_members, self.token)})


class _Members(Struct, frozen=True):
    """The types of the members that an entry of a file may have; unknown ones are kept in the target form."""

    dataset: Dataset
    model_revision: str | UnsetType = UNSET
    framework: EntryFramework = EntryFramework()
    metrics: Annotated[tuple[EntryMetric, ...], Meta(max_length=256)] | UnsetType = UNSET
    value: float | UnsetType = UNSET
    verify_token: str | UnsetType = UNSET
    verifyToken: str | UnsetType = UNSET  # noqa: N815  (the live Hub's spelling)


def read_entries(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> tuple[Entry, ...]:
    """Read a result file. Raises InputError with file, line and column; never anything else."""
    return entries_of(open_results(raw, name, max_values=max_values))


def open_results(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> strict_yaml.Document:
    """Read a result file as a document: a list of at most 1000 items, not yet entries. Raises InputError."""
    document = strict_yaml.load(raw, name, bare_dates=is_date_member, max_values=max_values)
    demand_list(document)
    return document


def demand_list(document: strict_yaml.Document) -> None:
    """Raise InputError unless the document is a list of at most 1000 items."""
    if not isinstance(document.value, list):
        raise document.error(Code.FILE_SCHEMA, "", "a result file is a list of entries")
    if len(document.value) > MAX_ENTRIES:
        raise document.error(Code.FILE_TOO_LARGE, f"/{MAX_ENTRIES}", f"more than {MAX_ENTRIES} entries")


def entries_of(document: strict_yaml.Document) -> tuple[Entry, ...]:
    """Read the entries of a document that is a list. Raises InputError with its place."""
    items: Sequence[JSON] = document.value  # type: ignore[assignment]
    return tuple(_entry_of(document, f"/{index}", value) for index, value in enumerate(items))


def _entry_of(document: strict_yaml.Document, pointer: str, value: JSON) -> Entry:
    try:
        return read_entry(value, pointer)
    except FormatError as error:
        raise document.locate(error, pointer) from None


def is_date_member(pointer: str) -> bool:
    """Say whether this is the `date` of an entry, which may be a bare ISO date."""
    return re.fullmatch(r"/[0-9]+/date", pointer) is not None


def read_entry(value: JSON, pointer: str = "") -> Entry:
    """Read one entry that a strict reader returned from `pointer` in its file. Raises FormatError with the pointer
    within the entry."""
    plain = drop_nulls(value)
    members = convert(plain, _Members)
    details = convert(plain, EntryDetails)
    spellings = {token for token in (members.verify_token, members.verifyToken) if token is not UNSET}
    if len(spellings) > 1:
        raise FormatError(Code.FILE_RULE, "differs from verify_token: keep one of the two", "/verifyToken")
    return Entry(
        pointer,
        _without_unbound(plain),  # type: ignore[arg-type]
        next(iter(spellings), None),
        members.dataset,
        members.model_revision,
        members.framework,
        None if members.metrics is UNSET else members.metrics,
        members.value,
        details,
        tuple(name for name in TOKEN_MEMBERS if name in plain),  # type: ignore[operator]
    )


def claims_of(entry: Entry, repo: str) -> RunClaims:
    """Return the run claims of an entry in this model repository. Raises Refused where they are not complete."""
    dataset = entry.form.get("dataset")
    parts = dataset if isinstance(dataset, Mapping) else {}
    said = {
        "benchmark_repo": parts.get("id"),
        "benchmark_revision": parts.get("revision"),
        "task_id": parts.get("task_id"),
    }
    said |= {name: entry.form.get(name) for name in ("model_revision", "metrics", "framework")}
    return read_claims({"model_repo": repo, **{name: value for name, value in said.items() if value is not None}})


def result_file_name(benchmark_repo: str) -> str:
    """Return the path of a benchmark's results in a model repository: `.eval_results/<name>.yaml`."""
    return f".eval_results/{benchmark_repo.rpartition('/')[2].lower().replace('-', '_')}.yaml"


# -- diff --------------------------------------------------------------------------------------------------------------


class EntryDifference(Struct, frozen=True):
    """One member that differs. `left` and `right` are its values as JSON, "" where it is absent. Material is what the
    content digest binds; the token itself and `value` are not in it."""

    pointer: str
    left: str
    right: str
    material: bool


def differences(left: Entry, right: Entry) -> tuple[EntryDifference, ...]:
    """Return every member in which two entries differ, by its pointer in the entry; metrics are compared in order."""
    found = [EntryDifference(at, one, other, True) for at, one, other in _compared("", left.form, right.form)]
    for name, one, other in (
        ("/value", _or_none(left.value), _or_none(right.value)),
        ("/verify_token", left.token, right.token),
    ):
        if one != other:
            found.append(EntryDifference(name, _shown(one), _shown(other), False))
    return tuple(found)


def key_of(entry: Entry) -> tuple[object, ...]:
    """Return the key by which the entries of two files are matched: benchmark, task and model commit."""
    return entry.dataset.id, entry.dataset.task_id, entry.dataset.revision, entry.model_revision


def matched(left: Sequence[Entry], right: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Pair the entries of two files, those of the left file first; None is in the place of one that is missing."""
    rest = list(right)
    for entry in left:
        alike = [other for other in rest if key_of(other) == key_of(entry)]
        same = next((other for other in alike if other.form == entry.form), alike[0] if alike else None)
        if same is not None:
            rest.remove(same)
        yield entry, same
    for entry in rest:
        yield None, entry


def _compared(at: str, left: JSON, right: JSON) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted(left.keys() | right.keys()):
            yield from _member(pointer_to(at, name), name in left, name in right, left.get(name), right.get(name))
    elif isinstance(left, list) and isinstance(right, list):
        for index in range(max(len(left), len(right))):
            one, other = (items[index] if index < len(items) else None for items in (left, right))
            yield from _member(pointer_to(at, index), index < len(left), index < len(right), one, other)
    elif jcs.canonical(left) != jcs.canonical(right):
        yield at, _shown(left), _shown(right)


def _member(at: str, in_left: bool, in_right: bool, left: JSON, right: JSON) -> Iterator[tuple[str, str, str]]:
    if in_left and in_right:
        yield from _compared(at, left, right)
    else:
        yield at, _shown(left) if in_left else "", _shown(right) if in_right else ""


def _or_none(value: object) -> JSON:
    return None if value is UNSET else value  # type: ignore[return-value]


def _shown(value: JSON) -> str:
    return "" if value is None else jcs.canonical(value).decode()
