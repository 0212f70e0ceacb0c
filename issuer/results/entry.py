"""Entries of `.eval_results/*.yaml` files (contract section 3): their reader, writer and comparison. Pure.

This file knows the three profiles, the types of the details, and the target form with its content digest. A file does
not name its own repository; callers must know it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
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
# Members of the Hub's answers about an entry: huggingface_hub skips an entry with `error`, and reads `data` instead.
HUB_ANSWERS = ("data", "error")
HUB_ANSWER_RULE = "huggingface_hub takes an entry with this member for an answer of the Hub: leave it out"


def drop_nulls(value: JSON) -> JSON:
    """Drop nulls from maps, bottom-up, and maps that have become empty. A map that was `{}` before remains. Raises
    FormatError(`file.rule`) for a null in an array, and for a map in an array that would become empty."""
    # Hardly any entry has a null, and encoding the entry in C takes a twentieth of the time of the walk.
    return _without_nulls(value, None) if b"null" in msgspec.json.encode(value) else value


def _without_nulls(value: JSON, path: Path, *, in_array: bool = False) -> JSON:
    if isinstance(value, str | float | int):  # first, because the check for Mapping takes ten times as long
        return value
    if isinstance(value, Mapping):
        kept = {name: _without_nulls(item, (path, name)) for name, item in value.items()}
        kept = {name: item for name, item in kept.items() if item is not None}
        if value and not kept:
            if in_array:
                _refuse_null(path, "a map of nulls in a list")
            return None
        return kept
    if isinstance(value, list | tuple):
        return [_without_nulls(item, (path, index), in_array=True) for index, item in enumerate(value)]
    if value is None and in_array:
        _refuse_null(path, "a null in a list")
    return value


def _refuse_null(path: Path, what: str) -> NoReturn:
    raise FormatError(Code.FILE_RULE, f"{what} has no canonical form: leave it out", pointer_along(path))


def target_entry(claims: RunClaims, details: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the target form of an entry, without a token, from run claims and details."""
    return _target(claims.to_json(), details)


def _target(run: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dataset": {"id": run["benchmark_repo"], "task_id": run["task_id"], "revision": run["benchmark_revision"]},
        "model_revision": run["model_revision"],
        "framework": run["framework"],
        "metrics": run["metrics"],
        **details,
    }


class Submission(Struct, frozen=True):
    """One result to sign: its claims, the details of its entry, and the two digests that bind them. `pointer` is its
    place in the request body: "" for `/tokens`, for example `/results/3` in a batch. `canonical_claims` and
    `canonical_details` are the RFC 8785 bytes."""

    pointer: str
    claims: RunClaims
    details: dict[str, JSON]
    canonical_claims: bytes
    canonical_details: bytes
    claims_digest: str
    content_digest: str

    @classmethod
    def of(cls, claims: RunClaims, details: dict[str, JSON], pointer: str = "") -> Submission:
        """Return a submission with these claims and details."""
        written = {name: jcs.written(jcs.plain(item)) for name, item in details.items()}
        canonical, content = jcs.encode(claims.plain), jcs.encode(_target(claims.plain, written))
        digests = jcs.digest_of_bytes(canonical), jcs.digest_of_bytes(content)
        return cls(pointer, claims, details, canonical, jcs.encode(written), *digests)

    @property
    def form(self) -> dict[str, JSON]:
        """The entry's target form, which the content digest covers."""
        return target_entry(self.claims, self.details)

    def entry(self, token: str) -> str:
        """Write the entry with its token. This gives the text of `write_entry`, but is faster for the run claims."""
        return f'{emit.claims_head(self.claims)}{emit.below(self.details)}  verify_token: "{token}"\n'


def target_form(entry: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the target form of an entry, which the content digest covers: without token, `value` and nulls, with
    sorted metrics, and with all other members. Raises FormatError(`file.rule`) if there is no canonical form."""
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
SIGNED_PROFILES: tuple[Profile, ...] = ("target", "both")  # entries of these profiles have a token
HUB_MEMBERS = ("dataset", "value", "date", "source", "notes")
_HUB_DATASET = ("id", "task_id", "revision")


def write_entry(
    form: Mapping[str, JSON], token: str | None = None, *, profile: Profile = "target", primary: str | None = None
) -> str:
    """Write an entry, given in its target form, as a YAML list item for a result file.

    `target` has the form and the token. `both` adds `value`, the score of the primary metric, and the token under its
    second name, for today's readers. `hub` has only the members that today's Hub knows, without a token. `primary` is
    the primary metric, if it is named. `both` and `hub` need its score, and raise FormatError(`file.rule`) without it.
    """
    members = dict(form)
    if profile != "target":
        members["value"] = _primary_value(form, primary)
    if profile == "hub":
        members = {name: members[name] for name in HUB_MEMBERS if name in members}
        dataset = members["dataset"] if isinstance(members.get("dataset"), Mapping) else {}
        members["dataset"] = {name: dataset[name] for name in _HUB_DATASET if name in dataset}  # type: ignore[index, operator, call-overload]
    elif token is not None:
        members.update(dict.fromkeys(TOKEN_MEMBERS if profile == "both" else TOKEN_MEMBERS[:1], token))
    return emit.item(members)


def primary_metric(named: str | None, scores: Iterable[tuple[str, str]]) -> str | None:
    """Return the id of a result's primary metric, or None if it is unknown. It is the one that a benchmark or an author
    `named`, otherwise the only one. `scores` are its metric ids and slices ("" without one)."""
    if named is not None:
        return named
    pairs = set(scores)
    ids = {metric_id for metric_id, _ in pairs}
    return min(ids) if len(ids) == 1 and (min(ids), "") in pairs else None


def default_profile(form: Mapping[str, JSON], named: str | None) -> tuple[Profile, str]:
    """Return the profile of an entry whose author chose none, and the reason: `both` if the score of the primary metric
    is known, which today's readers need, otherwise `target`. `named` is as in `primary_metric`."""
    scores = _scores(form)
    primary = primary_metric(named, scores)
    if primary is None:
        return "target", "the primary metric is unknown"
    if (primary, "") not in scores:
        return "target", f"it has no score of the primary metric, {primary}"
    return "both", f"the primary metric is {primary}" if named else f"the only metric is {primary}"


def _scores(form: Mapping[str, JSON]) -> dict[tuple[str, str], JSON]:
    """Return the values of an entry by metric id and slice."""
    metrics = form.get("metrics")
    listed = [each for each in metrics if isinstance(each, Mapping)] if isinstance(metrics, Sequence) else []
    return {(str(each.get("metric_id")), str(each.get("slice", ""))): each.get("value") for each in listed}


def _primary_value(form: Mapping[str, JSON], named: str | None) -> JSON:
    """Return the score of the primary metric without a slice. Raises FormatError(`file.rule`) if the entry has none."""
    scores = _scores(form)
    primary = primary_metric(named, scores)
    if primary is None:
        rule = "this profile needs the primary metric: give --primary, or --benchmark with an `eval.yaml` that names it"
        raise FormatError(Code.FILE_RULE, rule, "/metrics")
    if (primary, "") not in scores:
        rule = f"this profile needs a score of the primary metric, {primary}, without a slice"
        raise FormatError(Code.FILE_RULE, rule, "/metrics")
    return scores[primary, ""]


# -- reading ----------------------------------------------------------------------------------------------------------


class Dataset(Struct, frozen=True):
    """The `dataset` of an entry: benchmark repository, task and benchmark commit."""

    id: str
    task_id: str | UnsetType = UNSET
    revision: str | UnsetType = UNSET


class EntryMetric(Struct, frozen=True):
    """One item of `metrics` in a file. Its values may break the rules of `claims.Metric`, which checks find later."""

    metric_id: str
    value: float
    slice: str | UnsetType = UNSET
    value_type: str | UnsetType = UNSET
    sample_size: int | UnsetType = UNSET


class EntryFramework(Struct, frozen=True):
    """The `framework` of an entry."""

    name: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    command: str | UnsetType = UNSET


class EntrySource(Struct, frozen=True):
    """The `source` of an entry."""

    url: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    org: str | UnsetType = UNSET


class EntryDetails(Struct, frozen=True):
    """The details of an entry in a file. Only their types are checked. An unsigned entry may have other members."""

    date: str | UnsetType = UNSET
    source: EntrySource | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    artifacts: list[Any] | dict[str, Any] | UnsetType = UNSET
    runtime_context: dict[str, Any] | UnsetType = UNSET
    benchmark_subset: str | UnsetType = UNSET
    normalization: dict[str, Any] | UnsetType = UNSET


class Entry(Struct, frozen=True):
    """One entry of a file: the typed members that checks compare, and `form`, its target form. Only `form` has the
    unknown members, which the digest also binds. `token_members` are the names of the token."""

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
        """Write the entry in its own profile, with the same content."""
        value = {} if self.value is UNSET else {"value": self.value}
        return emit.item({**self.form, **value, **dict.fromkeys(self.token_members, self.token)})


class _Members(Struct, frozen=True):
    """The types of the members that an entry in a file may have. Other members are allowed."""

    dataset: Dataset
    model_revision: str | UnsetType = UNSET
    framework: EntryFramework = EntryFramework()
    metrics: Annotated[tuple[EntryMetric, ...], Meta(max_length=256)] | UnsetType = UNSET
    value: float | UnsetType = UNSET
    verify_token: str | UnsetType = UNSET
    verifyToken: str | UnsetType = UNSET  # noqa: N815  (the live Hub's spelling)


def read_entries(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> tuple[Entry, ...]:
    """Read a result file. Raises only InputError, with file, line and column."""
    return entries_of(open_results(raw, name, max_values=max_values))


def open_results(raw: bytes, name: str, *, max_values: int = strict_yaml.MAX_NODES) -> strict_yaml.Document:
    """Read a result file as a document with a list of at most 1000 unchecked items. Raises InputError."""
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
    """Return the entries of a document that is a list. Raises InputError with the place."""
    items: Sequence[JSON] = document.value  # type: ignore[assignment]
    return tuple(_entry_of(document, f"/{index}", value) for index, value in enumerate(items))


def _entry_of(document: strict_yaml.Document, pointer: str, value: JSON) -> Entry:
    try:
        return read_entry(value, pointer)
    except FormatError as error:
        raise document.locate(error, pointer) from None


def is_date_member(pointer: str) -> bool:
    """Say whether a pointer leads to the `date` of an entry, which may be a bare ISO date."""
    return re.fullmatch(r"/[0-9]+/date", pointer) is not None


def read_entry(value: JSON, pointer: str = "") -> Entry:
    """Read the entry at `pointer` in its file from a strict reader. Raises FormatError with the pointer in the
    entry."""
    for name in HUB_ANSWERS:
        if isinstance(value, Mapping) and name in value:
            raise FormatError(Code.FILE_RULE, HUB_ANSWER_RULE, f"/{name}")
    plain = drop_nulls(value)
    members = convert(plain, _Members)
    details = convert(plain, EntryDetails)
    if (source := details.source) is not UNSET and source.url is UNSET and source != EntrySource():
        raise FormatError(Code.FILE_RULE, "lacks `url`, without which huggingface_hub reads no entry", "/source")
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
    """Return the run claims of an entry in the model repository `repo`. Raises Refused if they are not complete."""
    dataset = entry.form.get("dataset")
    parts = dataset if isinstance(dataset, Mapping) else {}
    names = {"benchmark_repo": "id", "benchmark_revision": "revision", "task_id": "task_id"}
    run = {name: parts.get(member) for name, member in names.items()}
    run |= {name: entry.form.get(name) for name in ("model_revision", "metrics", "framework")}
    said = {name: value for name, value in run.items() if value is not None}
    return read_claims({"model_repo": repo, **said}, signed=True)


def result_file_name(benchmark_repo: str) -> str:
    """Return the path of a benchmark's results in a model repository: `.eval_results/<name>.yaml`."""
    return f".eval_results/{benchmark_repo.rpartition('/')[2].lower().replace('-', '_')}.yaml"


# -- diff --------------------------------------------------------------------------------------------------------------


class EntryDifference(Struct, frozen=True):
    """A member that differs between two entries. `left` and `right` are its values as JSON, or "" if it is absent. It
    is material if the content digest binds it: the token and `value` are not material."""

    pointer: str
    left: str
    right: str
    material: bool


def differences(left: Entry, right: Entry) -> tuple[EntryDifference, ...]:
    """Return the members in which two entries differ, by their pointers in the entry. Metrics are compared in order."""
    material = [EntryDifference(*difference, True) for difference in _compared("", left.form, right.form)]
    value = [EntryDifference(*difference, False) for difference in _compared("/value", left.value, right.value)]
    token = [EntryDifference(*difference, False) for difference in _compared("/verify_token", left.token, right.token)]
    return (*material, *value, *token)


def key_of(entry: Entry) -> tuple[object, ...]:
    """Return the key that pairs the entries of two files: benchmark, task and both commits."""
    return entry.dataset.id, entry.dataset.task_id, entry.dataset.revision, entry.model_revision


def matched(left: Sequence[Entry], right: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Yield the entries of two files in pairs, beginning with the left file. A missing entry is None."""
    rest = list(right)
    for entry in left:
        alike = [other for other in rest if key_of(other) == key_of(entry)]
        same = next((other for other in alike if other.form == entry.form), alike[0] if alike else None)
        if same is not None:
            rest.remove(same)
        yield entry, same
    for entry in rest:
        yield None, entry


def _compared(at: str, left: Any, right: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in sorted(left.keys() | right.keys()):
            yield from _compared(pointer_to(at, name), left.get(name), right.get(name))
    elif isinstance(left, list) and isinstance(right, list):
        for index, (one, other) in enumerate(zip_longest(left, right)):
            yield from _compared(pointer_to(at, index), one, other)
    elif (one := _shown(left)) != (other := _shown(right)):
        yield at, one, other


def _shown(value: Any) -> str:
    """Return JSON, or "" if the value is absent: target forms have no nulls."""
    return "" if value is None or value is UNSET else jcs.canonical(value).decode()
