"""The bill of materials: the packages of `run.lock` and the wheel, as CycloneDX 1.6 (JSON). Pure.

The commit determines its bytes: the time is the commit's, and the serial number comes from the wheel's digest. The
dependencies are those that the lock lists (`# via`). A requirement for some machines only has its marker (PEP 508) as a
property. Licences are missing, because the lock does not have them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "eval-token-issuer"
COMMIT, MARKER = f"{NAME}:commit", f"{NAME}:marker"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^    # (?:via)? +(?P<name>[A-Za-z0-9._-]+)(?: \(pyproject\.toml(?::build)?\))?$", re.MULTILINE)


class Locked(NamedTuple):
    """A requirement of a lock, with the SHA-256 `hashes` of its files. The packages `by` depend on it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    by: tuple[str, ...]


def read_lock(text: str) -> Iterator[Locked]:
    """Yield the requirements of a lock compiled by uv. Raises ValueError if one is not pinned to one version."""
    for block in re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip()):
        requirement = Requirement(block.partition(" \\\n")[0])
        (pin,) = requirement.specifier
        by = (canonicalize_name(found["name"]) for found in _VIA.finditer(block))
        marker = "" if requirement.marker is None else str(requirement.marker)
        yield Locked(canonicalize_name(requirement.name), pin.version, marker, tuple(_HASH.findall(block)), tuple(by))


def write_sbom(lock: str, version: str, commit: str, time: int, wheel: str) -> bytes:
    """Return the bill of a wheel with this version and SHA-256. `time` is the commit's, in Unix seconds."""
    root = Component(
        name=NAME, version=version, type=ComponentType.APPLICATION, bom_ref=NAME,
        purl=PackageURL("pypi", None, NAME, version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel)],
        properties=[Property(name=COMMIT, value=commit)],
    )  # fmt: skip
    listed = [*read_lock(lock)]
    components = {NAME: root} | {one.name: _component(one) for one in listed}
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, wheel),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(time, UTC)),
        components=[components[one.name] for one in listed],
    )
    for name, component in components.items():
        bom.register_dependency(component, [components[one.name] for one in listed if name in one.by])
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n".encode()


def _component(one: Locked) -> Component:
    return Component(
        name=one.name, version=one.version, type=ComponentType.LIBRARY, bom_ref=one.name,
        scope=ComponentScope.OPTIONAL if one.marker else ComponentScope.REQUIRED,
        purl=PackageURL("pypi", None, one.name, one.version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in one.hashes],
        properties=[Property(name=MARKER, value=one.marker)] if one.marker else [],
    )  # fmt: skip
