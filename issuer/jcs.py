"""RFC 8785 canonical bytes and the digests over them. The only file that knows how.

msgspec's sorted encoder writes the same bytes as RFC 8785 where every key is ASCII, whole floats are written as
integers and other floats lie in [1e-5, 1e16): nearly every document here, at a tenth of the cost. Everything else goes
to the rfc8785 package, which is also the oracle of the property test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
import rfc8785

from issuer.strict_json import JSON, MAX_EXACT_INTEGER

_encode = msgspec.json.Encoder(order="sorted").encode


class _OutOfRange(Exception):
    """The value is outside the range in which the two encoders agree."""


def canonical(value: JSON) -> bytes:
    """Return the RFC 8785 bytes. Raises ValueError for what has none: NaN, huge integers, lone surrogates."""
    try:
        return _encode(_plain(value))
    except _OutOfRange:
        return rfc8785.dumps(value)


def digest(value: JSON) -> str:
    """Return `sha256:<64 lowercase hex>` over the canonical bytes."""
    return digest_of_bytes(canonical(value))


def digest_of_bytes(raw: bytes) -> str:
    """Return `sha256:<64 lowercase hex>` over bytes that are already canonical."""
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _plain(value: JSON) -> JSON:
    """Return the value with whole floats as integers, or raise _OutOfRange."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        if not -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:  # type: ignore[operator]
            raise _OutOfRange
        return value
    if kind is float:
        return _plain_float(value)  # type: ignore[arg-type]
    if kind is dict or isinstance(value, Mapping):
        return _plain_members(value)  # type: ignore[arg-type]
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]  # type: ignore[union-attr]
    raise _OutOfRange  # text of an enumeration, bytes, a set: iterated, they would pass for lists


def _plain_members(members: Mapping[str, JSON]) -> JSON:
    try:
        if not "".join(members).isascii():
            raise _OutOfRange
    except TypeError:
        raise _OutOfRange from None  # a key that is no text
    # Most members are text, which is plain as it is: not calling for them halves the walk.
    return {name: item if type(item) is str else _plain(item) for name, item in members.items()}


def _plain_float(value: float) -> int | float:
    if value.is_integer():  # msgspec would write 2^53 as 9007199254740992.0
        return _plain(int(value))  # type: ignore[return-value]
    if 1e-5 <= abs(value) < 1e16:
        return value
    raise _OutOfRange
