"""What the tests of the readers share: runs to edit, archives to make, and the refusals of both."""

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import zstandard

from issuer.adapters import Supplied
from issuer.errors import InputError
from tests.support.shared import ROOT, SHARED

DATA = ROOT / "tests" / "data"
MODEL_COMMIT = "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"
BENCHMARK_COMMIT = "5503434ddd753f426f4b38109466949a1217c2bb"
OTHER_COMMIT = "0" * 40

ALL = Supplied(
    model_repo="acme/open-model",
    model_revision=MODEL_COMMIT,
    benchmark_repo="openai/gsm8k",
    benchmark_revision=BENCHMARK_COMMIT,
    task_id="gsm8k",
    framework_version="1.0",
    command="evaluate",
)


def edited(raw: bytes, pointer: str, value: object) -> bytes:
    """Return the JSON document with one member set, or removed where the value is `...`."""
    document = json.loads(raw)
    *parents, last = (part.replace("~1", "/") for part in pointer[1:].split("/"))
    place: Any = document
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place.setdefault(name, {})
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        place.pop(key, None) if isinstance(place, dict) else place.pop(key)
    else:
        place[key] = value
    return json.dumps(document).encode()


def refusal(work: Callable[..., object], *arguments: object, **more: object) -> InputError:
    """Return the InputError that the work raises; any other exception is the test's failure."""
    with pytest.raises(InputError) as caught:
        work(*arguments, **more)
    return caught.value


def refusal_or_none(work: Callable[..., object], *arguments: object) -> InputError | None:
    """Return the refusal, or None without one; any other exception is the test's failure."""
    try:
        work(*arguments)
    except InputError as error:
        return error
    return None


def shared(path: str) -> bytes:
    """Read a file beside the repository."""
    return (SHARED / path).read_bytes()


PACKERS: Mapping[int, Callable[[bytes], bytes]] = {
    0: lambda data: data,
    8: lambda data: (packer := zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)).compress(data) + packer.flush(),
    93: lambda data: zstandard.ZstdCompressor().compress(data),
}


def zipped(
    members: list[tuple[str, bytes]], method: int = 8, *, packed: bytes | None = None, comment: bytes = b"",
    local_name: str | None = None, flags: int = 0, **lies: int,
) -> bytes:  # fmt: skip
    """Make a zip archive that may lie: about `unpacked`, `packed_size`, `checksum`, `offset`, `count`."""
    body, directory = bytearray(), bytearray()
    for name, data in members:
        content = PACKERS.get(method, PACKERS[0])(data) if packed is None else packed
        checksum = lies.get("checksum", zlib.crc32(data))
        sizes = lies.get("packed_size", len(content)), lies.get("unpacked", len(data))
        own, offset = (local_name or name).encode(), lies.get("offset", len(body))
        directory += struct.pack(
            "<4s6H3L5H2L", b"PK\x01\x02", 45, 45, flags, method, 0, 33, checksum, *sizes, len(name.encode()),
            0, 0, 0, 0, 0, offset,
        ) + name.encode()  # fmt: skip
        body += struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, flags, method, 0, 33, checksum, *sizes, len(own), 0)
        body += own + content
    count = lies.get("count", len(members))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), len(comment))
    return bytes(body + directory + end + comment)


def end64(count: int, size: int, offset: int) -> bytes:
    """Return the end of an archive whose directory has more members than 16 bits count."""
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, offset + size, 1)
    return record + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
