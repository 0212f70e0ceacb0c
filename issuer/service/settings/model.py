"""The service's settings: one frozen value with groups. `reader.py` reads it from a file and the environment.

A setting's name includes its group, as in `store.url`. In the file it is a member of its group; in the environment it
is `ISSUER_STORE_URL`.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import FieldInfo

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats.times import LEEWAY_S
from issuer.io import files
from issuer.io.keyfile import MAX_PASSPHRASE_FILE
from issuer.limits.rate import Ceilings

# An empty path would mean the service's working directory.
Text = Annotated[str, Meta(min_length=1)]
PREFIX = "ISSUER_"
EMBEDDED = "embedded"
# The shortest prefix of a network, by IP version, that can plausibly have only the proxies of one site.
NARROW = {4: 24, 6: 64}


class Listen(Struct, frozen=True, forbid_unknown_fields=True):
    """The address of the service, and the proxies that it trusts to name the source of a request."""

    host: Annotated[Text, Meta(description="the address to listen at")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="the TCP port")] = 8000
    trusted_proxies: Annotated[
        str, Meta(description="proxies whose X-Forwarded-For is trusted: addresses and small networks, with commas")
    ] = ""


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """The signing keys."""

    folder: Annotated[Text, Meta(description="the folder of keys")]
    passphrase_file: Annotated[str, Meta(description="the file with the passphrase of encrypted keys")] = ""


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    """The store of limits and uses, which all workers and hosts share.

    `noeviction_stated` and `durable` are promises of the operator about properties that the store cannot report itself.
    `epoch_leeway_s` is 30 unless every provider shares the store's clock.
    """

    url: Annotated[
        Text,
        Meta(description="redis://, rediss://, unix://PATH, redis+sentinel://, or embedded: a process without a disk"),
    ]
    noeviction_stated: Annotated[bool, Meta(description="you promise that the store never evicts")] = False
    durable: Annotated[bool, Meta(description="you promise that the store never loses a write")] = False
    wait_replicas: Annotated[
        int, Meta(ge=0, le=8, description="how many replicas must confirm a use before a token is issued")
    ] = 0
    epoch_leeway_s: Annotated[
        int, Meta(ge=0, le=3600, description="seconds that clocks may differ after the store has lost its data")
    ] = LEEWAY_S
    secret_file: Annotated[
        str, Meta(description="the file of the secret that several hosts share; default: store-secret in `data`")
    ] = ""


class LogRoom(Struct, frozen=True, forbid_unknown_fields=True):
    """The transparency log, if it has an origin."""

    origin: Annotated[str, Meta(description="the origin line of the transparency log; without it the log is off")] = ""
    database: Annotated[
        str, Meta(description="the log's SQLite file (default: log/log.sqlite in `data`), or postgresql://")
    ] = ""
    key_file: Annotated[str, Meta(description="the log's key; default: log/log.pem in `keys.folder`")] = ""
    records: Annotated[str, Meta(description="a folder on another disk, for copies of the newest checkpoint")] = ""
    witness_policy: Annotated[str, Meta(description="a witness policy (C2SP tlog-policy)")] = ""
    witnesses: Annotated[
        Literal["async", "sync"], Meta(description="sync: a token waits until a quorum of witnesses has cosigned it")
    ] = "async"
    witnesses_excluded: Annotated[str, Meta(description="names of witnesses to leave out, with commas")] = ""
    witness_monitors: Annotated[
        str, Meta(description="NAME=URL with commas: the URL of a witness's checkpoints, if its policy has another")
    ] = ""


class MetricsRoom(Struct, frozen=True, forbid_unknown_fields=True):
    """The address of the metrics. It needs no credential, so only Prometheus and the operator may reach it."""

    host: Annotated[Text, Meta(description="the address that Prometheus scrapes")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="the TCP port; 0: no metrics")] = 0
    names: Annotated[str, Meta(description="further names that requests may use for this address, with commas")] = ""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. A missing group has its defaults."""

    url: Annotated[
        Text, Meta(description="this issuer's name (iss) and public address, https, without a trailing slash")
    ]
    policies: Annotated[Text, Meta(description="the folder of policies and providers")]
    data: Annotated[Text, Meta(description="the folder of the audit, the revocations, and copies of all policies used")]
    keys: Keys
    store: Store
    version: Annotated[Literal[1], Meta(description="the version of this file's format")] = 1
    listen: Listen = field(default_factory=Listen)
    log: LogRoom = field(default_factory=LogRoom)
    metrics: MetricsRoom = field(default_factory=MetricsRoom)
    ceilings: Ceilings = Ceilings()
    pats: Annotated[str, Meta(description="the folder of personal access tokens; default: pats in `data`")] = ""
    trust: Annotated[str, Meta(description="the trust file for POST /verify; without it, there is no /verify")] = ""
    ui: Annotated[bool, Meta(description="serve the pages for people under /ui")] = True
    development: Annotated[bool, Meta(description="allow providers and url with plain http at loopback addresses")] = (
        False
    )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings for the log stream about valid settings that are probably a mistake."""
        proxies = map(ipaddress.ip_network, listed(self.listen.trusted_proxies))
        return tuple(
            f"listen.trusted_proxies: {network} is a network of {network.num_addresses} addresses. With "
            "X-Forwarded-For, a client at any of them can choose its source and the network of its access token: name "
            "only the proxies"
            for network in proxies
            if network.prefixlen < NARROW[network.version]
        )

    @property
    def audit_file(self) -> Path:
        """The path of the audit file."""
        return Path(self.data) / "audit.jsonl"

    @property
    def policies_folder(self) -> Path:
        """The folder of policies and providers."""
        return Path(self.policies)

    @property
    def kept_folder(self) -> Path:
        """The folder that keeps every policy that decided or that a start found, by digest."""
        return Path(self.data) / "policies"

    @property
    def keys_folder(self) -> Path:
        """The folder of signing keys."""
        return Path(self.keys.folder)

    @property
    def pats_folder(self) -> Path:
        """The folder of personal access tokens."""
        return Path(self.pats) if self.pats else Path(self.data) / "pats"

    @property
    def log_place(self) -> str:
        """The log's database: the path of a SQLite file, or a PostgreSQL URL."""
        return self.log.database or str(Path(self.data) / "log" / "log.sqlite")

    @property
    def store_secret(self) -> Path:
        """The file of the secret that seals templates in the store."""
        return Path(self.store.secret_file) if self.store.secret_file else Path(self.data) / "store-secret"

    def demand_guarded(self) -> None:
        """Demand that no other user may write to this service's own files, the witness policy or the trust file.
        Raises InputError (`file.unsafe`)."""
        self.demand_own()
        for named in filter(None, (self.log.witness_policy, self.trust)):
            _demand_if_there(Path(named), own=False)

    def demand_own(self) -> None:
        """Demand that no other user may write to this service's own files: `data` and its content, access tokens, the
        log, its records. Raises InputError (`file.unsafe`)."""
        log = [] if self.log_place.startswith("postgresql://") else [Path(self.log_place).parent]
        records = [Path(self.log.records)] if self.log.records else []
        for folder in (Path(self.data), *log, *records):
            for path in (folder, *_entries(folder)):
                _demand_if_there(path, own=True)
        _demand_if_there(self.pats_folder, own=True)

    def passphrase(self) -> bytes | None:
        """Read the passphrase of the signing keys; None if no file is set. Raises SetupError."""
        if not self.keys.passphrase_file:
            return None
        try:
            path = Path(self.keys.passphrase_file)
            passphrase = files.read(path, MAX_PASSPHRASE_FILE, private=True).rstrip(b"\r\n")
        except (InputError, OSError) as error:
            why = error.detail if isinstance(error, InputError) else error.strerror
            raise SetupError(Code.SETTINGS_INVALID, f"keys.passphrase_file: {why}") from None
        if not passphrase:
            raise SetupError(Code.SETTINGS_INVALID, "keys.passphrase_file: the file is empty")
        return passphrase


def _entries(folder: Path) -> list[Path]:
    """Return the content of a folder that the service may read; none if it is missing, or if its reader refuses it.

    The service reads no hidden name, such as a file server's `.snapshot`, and of `backed-up` only the time.
    """
    with suppress(OSError):
        return [path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "backed-up"]
    return []


def _demand_if_there(path: Path, *, own: bool) -> None:
    """Demand that a path is guarded. A missing one is made, or its reader refuses it; a draft may vanish."""
    try:
        files.demand_guarded(path, group=not own, own=own)
    except InputError:
        if os.path.exists(path):
            raise


# -- names ------------------------------------------------------------------------------------------------------------


def _is_room(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _members(kind: type[Struct], room: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for each in msgspec.structs.fields(kind):
        if _is_room(each.type):
            yield from _members(each.type, f"{room}{each.name}.")
        else:
            yield f"{room}{each.name}", each


# Every setting by its name, which includes its group.
MEMBERS = dict(_members(Settings))
ROOMS = tuple(each.name for each in msgspec.structs.fields(Settings) if _is_room(each.type))
# Names of settings by their environment variables. `version` describes the file, so it has no variable.
VARIABLES = {f"{PREFIX}{name.replace('.', '_').upper()}": name for name in MEMBERS if name != "version"}


def about(name: str) -> str:
    """Return the description of a setting."""
    metas: tuple[Meta, ...] = get_args(MEMBERS[name].type)[1:]
    return next(meta.description for meta in metas if meta.description)


def values_of(settings: Settings) -> dict[str, Any]:
    """Return the value of each setting, by name."""
    nested = msgspec.to_builtins(settings)
    return {name: reduce(getitem, name.split("."), nested) for name in MEMBERS}


def changed(settings: Settings, **values: object) -> Settings:
    """Return settings with some values replaced. Keywords are names of variables in lowercase: `store_url="embedded"`.

    Raises msgspec.ValidationError for an invalid value, and KeyError for an unknown name.
    """
    nested = msgspec.to_builtins(settings)
    for name, value in values.items():
        put(nested, VARIABLES[f"{PREFIX}{name.upper()}"], value)
    return msgspec.convert(nested, Settings)


def listed(text: str) -> list[str]:
    """Split a list with commas."""
    return [each.strip() for each in text.split(",")] if text else []


def put(nested: dict[str, Any], name: str, value: object) -> None:
    """Set a value in its group."""
    room, _, last = name.rpartition(".")
    (nested.setdefault(room, {}) if room else nested)[last] = value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a settings file. Only `version` is required, because variables may set the rest."""
    described = msgspec.json.schema(Settings)
    for each in described["$defs"].values():
        each.pop("required", None)
    described["$defs"]["Settings"]["required"] = ["version"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}
