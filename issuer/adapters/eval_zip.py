"""A strict reader for members of untrusted zip archives (APPNOTE 6.3; methods 0, 8 and 93). Pure.

The standard library's reader is lenient, and lacks zstd in Python 3.11. Here the end record, the directory and the
member's header must agree, names must be relative paths, and sizes are checked before unpacking.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator

from msgspec import Struct

from issuer.adapters.evidence import Octets, too_large
from issuer.codes import Code
from issuer.errors import InputError, Place

MAX_MEMBERS = 200_000
MAX_NAME = 512
MAX_RATIO = 200  # samples of long, repetitive transcripts reach 40
RATIO_FREE = 1024 * 1024  # members of at most this unpacked size may have any ratio
_PIECE = 2**12  # bytes that are inflated at once, to at most 4 MiB

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED, _ZSTD = 0, 8, 93
_ENCRYPTED = 0x0001
_NAME = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[^\\]+")


class Member(Struct, frozen=True):
    """One member of an archive, as the directory describes it. Sizes are in bytes."""

    name: str
    method: int
    packed: int
    unpacked: int
    checksum: int
    offset: int


def is_zip(raw: Octets) -> bool:
    """Return whether these bytes begin like a zip archive that has members."""
    return raw[:4] == b"PK\x03\x04"


def directory(raw: Octets, name: str) -> dict[str, Member]:
    """Read the central directory, and return the members by name. Raises InputError: `file.syntax` for a malformed
    archive, `file.duplicate_key` for two members with the same name, `file.feature` for encryption, several parts and
    unknown methods, `file.too_large` for too many members, or a member that is packed like a zip bomb."""
    count, size, start, end = _ends(raw, name)
    if count > MAX_MEMBERS:
        raise too_large(name, f"an archive of more than {MAX_MEMBERS} members")
    if start + size != end:
        raise _malformed("its directory does not end where it should", name)
    members: dict[str, Member] = {}
    at = start
    for _ in range(count):
        if at + _CENTRAL.size > end:
            raise _malformed("its directory is cut short", name)
        member, at = _member(raw, at, name)
        if member.name in members:
            raise InputError(Code.FILE_DUPLICATE_KEY, f"two members have the name {member.name!r}", Place(name))
        members[member.name] = member
    if at != end:
        raise _malformed("its directory has bytes after its last member", name)
    # A hundred thousand members could share the same bytes, which would be unpacked for each.
    if sum(member.packed for member in members.values()) > len(raw):
        raise _malformed("its members overlap", name)
    return members


def unpack(raw: Octets, member: Member, *, max_bytes: int, name: str) -> bytearray:
    """Unpack one member of at most `max_bytes`, and check its length and CRC-32. Raises InputError."""
    if member.unpacked > max_bytes:
        raise too_large(name, f"{member.name} is larger than {max_bytes} bytes")
    packed, data = _packed(raw, member, name), bytearray()
    try:
        for chunk in _chunks(packed, member):
            data += chunk
    except (zlib.error, _ZstdError):
        raise _malformed(f"{member.name} cannot be unpacked", name) from None
    if len(data) != member.unpacked or zlib.crc32(data) != member.checksum:
        raise _malformed(f"{member.name} is not what the directory says (length or CRC-32)", name)
    return data


def _ends(raw: Octets, name: str) -> tuple[int, int, int, int]:
    """Return the directory's count, size, start and end from the end record, or from the ZIP64 record before it."""
    at = raw.rfind(b"PK\x05\x06", max(0, len(raw) - _END.size - 0xFFFF))
    if at < 0 or at + _END.size > len(raw):
        raise _malformed("it has no end record, because it is cut short or not a zip archive", name)
    _, disk, first, here, count, size, start, comment = _END.unpack_from(raw, at)
    if at + _END.size + comment != len(raw):
        raise _malformed("something follows its end record", name)
    end = at
    if 0xFFFF in {here, count} or 0xFFFFFFFF in {size, start}:
        end, (disk, first, here, count, size, start) = _end64(raw, at, name)
    if disk or first or here != count:
        raise InputError(Code.FILE_FEATURE, "an archive in several parts", Place(name))
    return count, size, start, end


def _end64(raw: Octets, at: int, name: str) -> tuple[int, tuple[int, ...]]:
    locator = at - _LOCATOR64.size
    if locator < 0 or raw[locator : locator + 4] != b"PK\x06\x07":
        raise _malformed("no ZIP64 end record", name)
    end = _LOCATOR64.unpack_from(raw, locator)[2]
    if end + _END64.size != locator or raw[end : end + 4] != b"PK\x06\x06":
        raise _malformed("no ZIP64 end record where it should be", name)
    return end, _END64.unpack_from(raw, end)[4:]


def _member(raw: Octets, at: int, name: str) -> tuple[Member, int]:
    (mark, _, _, flags, method, _, _, checksum, packed, unpacked, name_size, extra_size, comment_size, disk, _, _,
     offset) = _CENTRAL.unpack_from(raw, at)  # fmt: skip
    if mark != b"PK\x01\x02" or disk:
        raise _malformed("its directory is broken", name)
    after = at + _CENTRAL.size + name_size
    member_name = _name(raw[at + _CENTRAL.size : after], name)
    if flags & _ENCRYPTED or method not in {_STORED, _DEFLATED, _ZSTD}:
        rule = f"{member_name!r} is encrypted, or packed by an unsupported method ({method})"
        raise InputError(Code.FILE_FEATURE, rule, Place(name))
    wide = _wide(raw[after : after + extra_size])
    unpacked = next(wide, 0) if unpacked == 0xFFFFFFFF else unpacked
    packed = next(wide, 0) if packed == 0xFFFFFFFF else packed
    offset = next(wide, 0) if offset == 0xFFFFFFFF else offset
    if unpacked > RATIO_FREE and unpacked > MAX_RATIO * packed:
        raise too_large(name, f"{member_name!r} unpacks to more than {MAX_RATIO} times its size")
    return Member(member_name, method, packed, unpacked, checksum, offset), after + extra_size + comment_size


def _wide(extra: Octets) -> Iterator[int]:
    """Yield the 64-bit numbers of the ZIP64 extra field (APPNOTE 4.5.3)."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field = bytes(extra[at + 4 : at + 4 + size])
            yield from (number for (number,) in struct.iter_unpack("<Q", field[: len(field) // 8 * 8]))
            return
        at += 4 + size


def _name(raw: Octets, name: str) -> str:
    try:
        text = bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if len(raw) > MAX_NAME or not text.isprintable() or not _NAME.fullmatch(text):
        raise InputError(Code.FILE_RULE, "a member's name is not a plain relative path", Place(name))
    return text


def _packed(raw: Octets, member: Member, name: str) -> memoryview:
    """Return the member's packed bytes. Raises InputError if the header before them differs from the directory."""
    at = member.offset
    if at + _LOCAL.size > len(raw) or raw[at : at + 4] != b"PK\x03\x04":
        raise _malformed(f"{member.name} is not where the directory says", name)
    _, _, flags, method, _, _, checksum, _, _, name_size, extra_size = _LOCAL.unpack_from(raw, at)
    begin = at + _LOCAL.size + name_size + extra_size
    own_name = bytes(raw[at + _LOCAL.size : at + _LOCAL.size + name_size])
    streamed = flags & 0x0008  # sizes and checksum follow the data
    same = own_name == member.name.encode() and method == member.method and (streamed or checksum == member.checksum)
    if not same or flags & _ENCRYPTED or begin + member.packed > len(raw):
        raise _malformed(f"{member.name} is not what the directory says", name)
    return memoryview(raw)[begin : begin + member.packed]


def _chunks(packed: memoryview, member: Member) -> Iterator[bytes]:
    """Yield the unpacked bytes, at most one more than the directory says: the caller compares the length."""
    limit = member.unpacked + 1
    if member.method == _STORED:
        yield bytes(packed[:limit])
    elif member.method == _DEFLATED:
        inflate, at = zlib.decompressobj(-zlib.MAX_WBITS), 0
        while limit > 0 and at < len(packed) and not inflate.eof:
            chunk = inflate.decompress(packed[at : at + _PIECE], limit)
            limit, at = limit - len(chunk), at + _PIECE
            yield chunk
    else:
        yield from _unzstd(packed, limit)


def _unzstd(packed: memoryview, limit: int) -> Iterator[bytes]:
    import zstandard  # 40 ms that only archives need

    # A hostile frame may request a huge window. Every decoder should support 8 MiB (RFC 8878 3.1.1.1.2).
    reader = zstandard.ZstdDecompressor(max_window_size=8 * 2**20).stream_reader(packed, read_across_frames=True)
    try:
        while limit > 0 and (chunk := reader.read(min(limit, 2**20))):
            limit -= len(chunk)
            yield chunk
    except zstandard.ZstdError as error:
        raise _ZstdError from error


class _ZstdError(Exception):
    """A ZstdError of zstandard, which is imported only on demand."""


def _malformed(detail: str, name: str) -> InputError:
    return InputError(Code.FILE_SYNTAX, f"not a whole zip archive: {detail}", Place(name))
