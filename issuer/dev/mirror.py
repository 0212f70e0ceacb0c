"""The author's policies as a throw-away issuer reads them: with local providers, and without limits to speak of.

Every other rule is as the author wrote it, so that what is refused here is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from issuer import files
from issuer.formats.strict_yaml import MAX_BYTES, load
from issuer.identity.profiles import PROFILES
from issuer.identity.table import SIGNED
from issuer.policy.authoring.load import BENCHMARKS_FOLDER, PROVIDERS_FILE
from issuer.policy.authoring.stops import STOPS_FILE

_MAX_COPY = 8 * MAX_BYTES  # a flow of one value a line is longer than what it says
_WIDE = {"count": 1_000_000, "per_s": 60, "burst": 50_000}
LIMITS = {"identity": _WIDE, "integration": _WIDE, "refusals": _WIDE}
# What says whose tokens a provider's are, where they are and for whom: here, the local provider's, for this issuer.
_LOCAL = frozenset({"issuer", "audience", "keys"})


def mirror(source: Path, target: Path, local_issuer: Callable[[str], str]) -> None:
    """Make `target` say what `source` says, which is good; `local_issuer` names the issuer of a provider by its id.

    Raises InputError and OSError where `source` cannot be read: then nothing is changed.
    """
    wanted = {name: _as_here(name, raw, local_issuer) for name, raw in _policies_in(source)}
    for name, raw in wanted.items():
        path = target / name
        files.make_folder(path.parent)
        if not path.exists() or files.read(path, _MAX_COPY) != raw:
            files.replace(path, raw, mode=0o600, durable=False)
    for path in [*target.rglob("*.yaml")]:
        if str(path.relative_to(target)) not in wanted:
            path.unlink()


def _policies_in(source: Path) -> Iterator[tuple[str, bytes]]:
    for path in (*source.glob("*.yaml"), *(source / BENCHMARKS_FOLDER).rglob("*.yaml")):
        if path.is_file() and not path.name.startswith("."):
            yield str(path.relative_to(source)), files.read(path, MAX_BYTES)


def _as_here(name: str, raw: bytes, local_issuer: Callable[[str], str]) -> bytes:
    if name == STOPS_FILE or "/" in name:
        return raw
    value: Any = load(raw, name, bare_dates=lambda _: True).value
    if name != PROVIDERS_FILE:
        return _written({**value, "limits": LIMITS})
    providers = {id: _local(id, entry, local_issuer) for id, entry in value["providers"].items()}
    return _written({**value, "providers": providers})


def _local(id: str, entry: dict[str, Any], local_issuer: Callable[[str], str]) -> dict[str, Any]:
    """Return a provider's entry with the local issuer, where its tokens are signed; else as it is."""
    if PROFILES[entry["profile"]].kind not in SIGNED:
        return entry
    return {**{name: value for name, value in entry.items() if name not in _LOCAL}, "issuer": local_issuer(id)}


def _written(value: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)  # JSON is YAML
