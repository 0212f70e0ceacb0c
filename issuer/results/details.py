"""The details of a result: members of an entry that are not run claims, in a request. Pure.

Their types and rules are in contract sections 1 and 3. A member that breaks a rule is refused, never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats.strict_json import JSON, convert
from issuer.formats.url import UrlError, split_url
from issuer.results import arguments, emit
from issuer.results.entry import EntryDetails, EntrySource, drop_nulls

MAX_WRITTEN = 512 * 1024  # half of the largest result file

_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


class Source(EntrySource, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The source of a result. `url` is required, absolute and without credentials."""

    url: str


class Details(EntryDetails, frozen=True, forbid_unknown_fields=True):
    """The details in a request. Unlike in a file, unknown members and a source without a URL are refused."""

    source: Source | UnsetType = UNSET


def read_details(value: JSON, pointer: str = "") -> dict[str, JSON]:
    """Read the details of a request from the result of a strict JSON reader. Nulls are dropped, as in the target form.
    Raises Refused(`details.invalid`) with every fault, with pointers below `pointer`."""
    try:
        plain = drop_nulls(value)
        if plain is None and isinstance(value, Mapping):
            plain = {}  # every member was null
        convert(plain, Details)
    except FormatError as error:
        raise Refused.of([Fault(Code.DETAILS_INVALID, pointer + error.pointer, error.detail)]) from None
    if faults := list(faults_of(plain)):  # type: ignore[arg-type]
        raise Refused.of([Fault(fault.code, pointer + fault.pointer, fault.detail) for fault in faults])
    return dict(plain)  # type: ignore[arg-type]


def faults_of(details: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the faults of details that have the right types."""
    if "date" in details and not is_date(details["date"]):
        yield Fault(Code.DETAILS_INVALID, "/date", "must be an ISO 8601 date or date and time")
    source = details.get("source")
    if source is not None and "url" not in source:
        yield Fault(Code.DETAILS_INVALID, "/source", "lacks `source.url`")
    elif source is not None and not is_public_url(source["url"]):
        rule = "must be an absolute http or https URL without credentials"
        yield Fault(Code.DETAILS_INVALID, "/source/url", rule)
    yield from arguments.faults_of(details.get("run", {}), "/run")
    if rule := emit.fits(details, MAX_WRITTEN):
        yield Fault(Code.DETAILS_INVALID, "", rule)


def is_date(text: str) -> bool:
    """Say whether text is an ISO 8601 date, or date and time."""
    try:
        return bool(_DATE.fullmatch(text) and datetime.fromisoformat(text))
    except ValueError:
        return False


def is_public_url(url: str) -> bool:
    """Say whether a URL is absolute, http or https, and without credentials (contract section 6, the source badge)."""
    try:
        split_url(url, http="anywhere", query=True, fragment=True)
    except UrlError:
        return False
    return True
