"""The details of a result: an entry's members that are not run claims, as a request may send them. Pure.

Knows their types and rules (contract sections 1 and 3). Never repairs: a member that breaks one is refused with its
place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import UNSET, UnsetType

from issuer.codes import Code
from issuer.errors import Fault, FormatError, Refused
from issuer.formats.strict_json import JSON, convert
from issuer.formats.url import UrlError, split_url
from issuer.results import emit
from issuer.results.entry import EntryDetails, EntrySource, drop_nulls

MAX_WRITTEN = 512 * 1024  # half of the largest result file

_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


class Source(EntrySource, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a result comes from. `url` is required, absolute and free of credentials."""

    url: str


class Details(EntryDetails, frozen=True, forbid_unknown_fields=True):
    """An entry's members that are not run claims, as a request may send them: nothing unknown, and no source without a
    URL."""

    source: Source | UnsetType = UNSET


def read_details(value: JSON, pointer: str = "") -> dict[str, JSON]:
    """Read the details of a request from JSON that a strict reader returned; nulls are dropped as in the target form.
    Raises Refused(`details.invalid`) with every fault, pointers below `pointer`."""
    try:
        plain = drop_nulls(value)
        if plain is None and isinstance(value, Mapping):
            plain = {}  # every member was null, so absent
        details = convert(plain, Details)
    except FormatError as error:
        raise Refused.of([Fault(Code.DETAILS_INVALID, pointer + error.pointer, error.detail)]) from None
    faults = []
    if details.date is not UNSET and not is_date(details.date):
        faults.append(Fault(Code.DETAILS_INVALID, f"{pointer}/date", "must be an ISO 8601 date or date and time"))
    if details.source is not UNSET and not is_public_url(details.source.url):
        rule = "must be an absolute http or https URL without credentials"
        faults.append(Fault(Code.DETAILS_INVALID, f"{pointer}/source/url", rule))
    if rule := emit.fits(plain, MAX_WRITTEN):
        faults.append(Fault(Code.DETAILS_INVALID, pointer, rule))
    if faults:
        raise Refused.of(faults)
    return dict(plain)  # type: ignore[arg-type]


def is_date(text: str) -> bool:
    """Say whether a text is an ISO 8601 date, or date and time, as details have it."""
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
