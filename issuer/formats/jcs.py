"""Canonical JSON bytes (RFC 8785, JCS) and SHA-256 digests over them.

msgspec's sorted encoder writes RFC 8785 bytes if every key is ASCII, whole floats are converted to integers and other
floats are between 1e-5 and 2^53. That holds for nearly every document here, at a tenth of the cost. The rfc8785 package
writes the other parts of a value, and is the oracle of the property test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NewType, TypeAlias

import msgspec
import rfc8785

from issuer.formats.strict_json import JSON, MAX_EXACT_INTEGER

# A value that `plain` has returned.
Plain = NewType("Plain", object)
# Plain values and canonical bytes may be combined without another walk. The names of a map must be ASCII.
Encodable: TypeAlias = "Plain | msgspec.Raw | str | Sequence[Encodable] | Mapping[str, Encodable]"

# Writes the RFC 8785 bytes of plain values.
encode: Callable[[Encodable], bytes] = msgspec.json.Encoder(order="sorted").encode


def written(value: Encodable) -> msgspec.Raw:
    """Return the encoded value, which `encode` copies. Use it for a part of several values."""
    return msgspec.Raw(encode(value))


def canonical(value: JSON) -> bytes:
    """Return the RFC 8785 bytes. Raises ValueError for values that have none: NaN, huge integers, lone surrogates."""
    return encode(plain(value))


def digest(value: JSON) -> str:
    """Return `sha256:<64 lowercase hex>` over the canonical bytes."""
    return digest_of_bytes(canonical(value))


def digest_of_bytes(raw: bytes) -> str:
    """Return `sha256:<64 lowercase hex>` over bytes that are already canonical."""
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def plain(value: JSON) -> Plain:
    """Return the value in the form that `encode` takes. A value that is digested, stored and signed needs this walk
    only once. Raises ValueError as `canonical` does, except for lone surrogates."""
    walked: Plain = _plain(value)
    return walked


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int and -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:
        return value
    if kind is float:
        return _plain_float(value)
    if kind is dict:
        return _plain_members(value)
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):  # last: the ABC's check takes longer than all the others
        return _plain_members(value)
    return _write_by_reference(value)  # it refuses bytes and sets, which iteration would turn into lists


def _plain_members(members: Mapping[str, JSON]) -> Any:
    try:
        if not "".join(members).isascii():
            return _write_by_reference(members)
    except TypeError:
        return _write_by_reference(members)  # a key that is not text
    # Most members are text, which is plain already. Without a call for each, the walk takes half the time.
    return {name: item if type(item) is str else _plain(item) for name, item in members.items()}


def _plain_float(value: float) -> Any:
    if value.is_integer() and abs(value) <= MAX_EXACT_INTEGER:
        return int(value)
    if 1e-5 <= abs(value) < MAX_EXACT_INTEGER:
        return value
    return msgspec.Raw(_small(value).encode()) if abs(value) < 1e-5 else _write_by_reference(value)


def _small(value: float) -> str:
    """Write a small fraction as ECMAScript does, with the digits of `repr`. The reference takes 8 us for each."""
    text = repr(value)
    if abs(value) >= 1e-6:
        return format(Decimal(text), "f")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def _write_by_reference(value: JSON) -> msgspec.Raw:
    return msgspec.Raw(rfc8785.dumps(value))
