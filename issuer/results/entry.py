"""Entries of `.eval_results/*.yaml` files (contract section 3, the target profile). Pure.

Knows the details, the target form and its content digest, how an entry is written so that every YAML reader reads it
alike, and how it is read back. The repository that a file sits in is not in the file and not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from issuer import jcs, strict_yaml
from issuer.errors import Code, Fault, InputError, Place, Refused
from issuer.results.claims import RunClaims
from issuer.strict_json import JSON, Path, convert, pointer_along

TOKEN_MEMBERS = ("verify_token", "verifyToken")
MAX_ENTRIES = 1000
MAX_NAME = 1000  # YAML readers take no longer key than 1024 characters
MAX_WRITTEN = 512 * 1024  # half of what a result file may have

_MEMBER_ORDER = (
    "dataset", "model_revision", "framework", "metrics", "date", "source", "notes", "run", "artifacts",
    "runtime_context", "benchmark_subset", "normalization", "verify_token",
)  # fmt: skip
_PART_ORDER = ("id", "task_id", "revision", "name", "version", "command", "metric_id", "value", "slice")
_RANK = {name: index for index, name in enumerate((*_MEMBER_ORDER, *_PART_ORDER))}
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
# RFC 3986's characters and no others: urlsplit drops line breaks, and browsers take a backslash for a slash.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a result comes from. `url` is required, absolute and free of credentials."""

    url: str
    name: str | UnsetType = UNSET
    user: str | UnsetType = UNSET
    org: str | UnsetType = UNSET


class Details(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry's members that are not run claims; the types of what a request may send."""

    date: str | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    run: dict[str, Any] | UnsetType = UNSET
    artifacts: list[Any] | dict[str, Any] | UnsetType = UNSET
    runtime_context: dict[str, Any] | UnsetType = UNSET
    benchmark_subset: str | UnsetType = UNSET
    normalization: dict[str, Any] | UnsetType = UNSET


def read_details(value: JSON, pointer: str = "") -> dict[str, JSON]:
    """Read the details of a request from JSON that a strict reader returned; nulls are dropped as in the target form.

    Raises Refused(`details.invalid`) with every fault, pointers below `pointer`.
    """
    try:
        plain = drop_nulls(value)
        if plain is None and isinstance(value, Mapping):
            plain = {}  # every member was null, so absent
        details = convert(plain, Details)
    except InputError as error:
        raise Refused.of([Fault(Code.DETAILS_INVALID, pointer + error.pointer, error.detail)]) from None
    faults = []
    if details.date is not UNSET and not _is_date(details.date):
        faults.append(Fault(Code.DETAILS_INVALID, f"{pointer}/date", "must be an ISO 8601 date or date and time"))
    if details.source is not UNSET and not _is_public_url(details.source.url):
        rule = "must be an absolute http or https URL without credentials"
        faults.append(Fault(Code.DETAILS_INVALID, f"{pointer}/source/url", rule))
    if rule := _unreadable(plain):
        faults.append(Fault(Code.DETAILS_INVALID, pointer, rule))
    if faults:
        raise Refused.of(faults)
    return dict(plain)  # type: ignore[arg-type]


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def _is_public_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_is_number = parts.port is None or parts.port >= 0  # the property raises where it is none
    except ValueError:
        return False
    web = parts.scheme in {"http", "https"} and bool(parts.hostname) and port_is_number
    return web and "@" not in parts.netloc and _URL.fullmatch(url) is not None


def _unreadable(details: JSON) -> str:
    """Return why the details could be signed, but an entry with them not be read from a file; or ""."""
    if len("\n".join(_lines(details, "  ")).encode()) > MAX_WRITTEN:
        return f"longer than {MAX_WRITTEN} bytes when written into a file; put large evidence behind a URL"
    return "" if _keys_fit(details) else f"a name longer than {MAX_NAME} characters when written into a file"


def _keys_fit(value: JSON) -> bool:
    if isinstance(value, Mapping):
        return all(len(strict_yaml.quoted(name)) <= MAX_NAME and _keys_fit(item) for name, item in value.items())
    return not isinstance(value, list) or all(map(_keys_fit, value))


def drop_nulls(value: JSON, path: Path = None, *, in_array: bool = False) -> JSON:
    """Drop nulls from maps, bottom-up, and a map left empty by that with them; a map that was `{}` stays.

    Raises InputError(`file.rule`) for a null in an array, and for a map in an array that would become empty.
    """
    if isinstance(value, Mapping):
        kept = {name: drop_nulls(item, (path, name)) for name, item in value.items()}
        kept = {name: item for name, item in kept.items() if item is not None}
        if value and not kept:
            if in_array:
                _refuse_nothing(path, "a map of nulls in a list")
            return None
        return kept
    if isinstance(value, list | tuple):
        return [drop_nulls(item, (path, index), in_array=True) for index, item in enumerate(value)]
    if value is None and in_array:
        _refuse_nothing(path, "a null in a list")
    return value


def _refuse_nothing(path: Path, what: str) -> NoReturn:
    raise InputError(Code.FILE_RULE, f"{what} has no canonical form: leave it out", Place(""), pointer_along(path))


def target_entry(claims: RunClaims, details: Mapping[str, JSON]) -> dict[str, JSON]:
    """Build the entry's target form, token left out, from run claims and details that have been read."""
    said = claims.to_json()
    return {
        "dataset": {"id": claims.benchmark_repo, "task_id": claims.task_id, "revision": claims.benchmark_revision},
        "model_revision": claims.model_revision,
        "framework": said["framework"],
        "metrics": said["metrics"],
        **details,
    }


class Submission(Struct, frozen=True):
    """One result to sign: its claims, the entry's target form, and the two digests that bind them.

    `pointer` leads to it in the request body: "" for `/tokens`, `/results/3` in a batch.
    """

    pointer: str
    claims: RunClaims
    details: dict[str, JSON]
    form: dict[str, JSON]
    claims_digest: str
    content_digest: str


def target_form(entry: Mapping[str, JSON]) -> dict[str, JSON]:
    """Bring an entry as it stands in a file into its target form: what the content digest is taken over.

    Token members and `value` go, nulls are dropped, metrics are sorted; every other member counts, known or not.
    Raises InputError(`file.rule`) where there is no canonical form.
    """
    kept = {name: item for name, item in entry.items() if name not in {*TOKEN_MEMBERS, "value"}}
    form = drop_nulls(kept)
    if not isinstance(form, dict):
        return {}
    if isinstance(metrics := form.get("metrics"), list):
        form["metrics"] = sorted(metrics, key=_metric_key)
    return form


def _metric_key(metric: JSON) -> tuple[bytes, bytes]:
    members = metric if isinstance(metric, Mapping) else {}
    return str(members.get("metric_id", "")).encode(), str(members.get("slice", "")).encode()


def content_digest(form: Mapping[str, JSON]) -> str:
    """Return the digest of an entry in its target form (contract section 2)."""
    return jcs.digest(form)


# -- writing ----------------------------------------------------------------------------------------------------------


def write_entry(form: Mapping[str, JSON], token: str | None = None) -> str:
    """Write one entry in the target profile, as the YAML list item to paste into a file: every string double-quoted.

    Without a token it is a result that nobody vouches for: `unverified`, until it has one.
    """
    members = form if token is None else {**form, "verify_token": token}
    return "\n".join(_item_lines(members, "")) + "\n"


def _item_lines(value: JSON, indent: str) -> list[str]:
    """Write one list item: its first line starts with a dash, the others stand below it."""
    lines = _lines(value, indent + "  ")
    return [f"{indent}- {lines[0].removeprefix(indent + '  ')}", *lines[1:]]


def _lines(value: JSON, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for name in _ordered(value) for line in _member_lines(name, value[name], indent)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item_lines(item, indent)]
    return [indent + _flow(value)]


# Words that some reader takes for something else than text are quoted, as keys, too.
_PLAIN_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


def _member_lines(name: str, value: JSON, indent: str) -> list[str]:
    key = name if _PLAIN_KEY.fullmatch(name) else strict_yaml.quoted(name)
    if isinstance(value, dict | list | tuple) and value:
        return [f"{indent}{key}:", *_lines(value, indent + "  ")]
    return [f"{indent}{key}: {_flow(value)}"]


def _flow(value: JSON) -> str:
    if isinstance(value, str):
        return strict_yaml.quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return strict_yaml.number_text(value)
    return "{}" if isinstance(value, Mapping) else "[]"


def _ordered(members: Mapping[str, JSON]) -> list[str]:
    """Order members as the contract's example does; unknown ones follow, by name."""
    return sorted(members, key=lambda name: (_RANK.get(name, len(_RANK)), name))


# -- reading ----------------------------------------------------------------------------------------------------------


class Dataset(Struct, frozen=True):
    """`dataset` of an entry: benchmark repository, task and benchmark commit."""

    id: str
    task_id: str | UnsetType = UNSET
    revision: str | UnsetType = UNSET


class EntryMetric(Struct, frozen=True):
    """One item of `metrics` as a file has it; what it may hold is judged by the checks, not here."""

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


class Entry(Struct, frozen=True):
    """One entry as it stands in a file: the typed members that checks compare, and `form`, its target form."""

    pointer: str
    form: dict[str, JSON]
    token: str | None
    dataset: Dataset
    model_revision: str | UnsetType
    framework: EntryFramework
    metrics: tuple[EntryMetric, ...] | None
    value: float | UnsetType


class _Members(Struct, frozen=True):
    """The types of the members that an entry of a file may have; unknown ones are kept in the target form."""

    dataset: Dataset
    model_revision: str | UnsetType = UNSET
    framework: EntryFramework = EntryFramework()
    metrics: Annotated[tuple[EntryMetric, ...], Meta(max_length=256)] | UnsetType = UNSET
    value: float | UnsetType = UNSET
    verify_token: str | UnsetType = UNSET
    verifyToken: str | UnsetType = UNSET  # noqa: N815  (the live Hub's spelling)


def read_entries(raw: bytes, name: str) -> tuple[Entry, ...]:
    """Read a result file. Raises InputError with file, line and column; never anything else."""
    document = strict_yaml.load(raw, name, bare_dates=_is_date_member)
    if not isinstance(document.value, list):
        raise document.error(Code.FILE_SCHEMA, "", "a result file is a list of entries")
    if len(document.value) > MAX_ENTRIES:
        raise document.error(Code.FILE_TOO_LARGE, f"/{MAX_ENTRIES}", f"more than {MAX_ENTRIES} entries")
    return tuple(_read_entry(document, f"/{index}", value) for index, value in enumerate(document.value))


def _is_date_member(pointer: str) -> bool:
    return re.fullmatch(r"/[0-9]+/date", pointer) is not None


def _read_entry(document: strict_yaml.Document, pointer: str, value: JSON) -> Entry:
    try:
        members = convert(drop_nulls(value), _Members)
        form = target_form(value) if isinstance(value, Mapping) else {}
    except InputError as error:
        hint = ": put it in double quotes" if error.detail.startswith("expected text, got") else ""
        raise document.error(error.code, pointer + error.pointer, error.detail + hint) from None
    spellings = {token for token in (members.verify_token, members.verifyToken) if token is not UNSET}
    if len(spellings) > 1:
        raise document.error(Code.FILE_RULE, f"{pointer}/verifyToken", "differs from verify_token: keep one of the two")
    return Entry(
        pointer,
        form,
        next(iter(spellings), None),
        members.dataset,
        members.model_revision,
        members.framework,
        None if members.metrics is UNSET else members.metrics,
        members.value,
    )


def result_file_name(benchmark_repo: str) -> str:
    """Return where a benchmark's results live in a model repository: `.eval_results/<name>.yaml`."""
    return f".eval_results/{benchmark_repo.rpartition('/')[2].lower().replace('-', '_')}.yaml"
