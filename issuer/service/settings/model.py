"""The service's settings: one frozen value, by rooms. `reader.py` makes it of a file and the environment.

A setting is named with its room, as `store.url`. In the file it stands in its room, in the environment it is
`ISSUER_STORE_URL`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
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

# An empty path would be the service's working directory.
Text = Annotated[str, Meta(min_length=1)]
PREFIX = "ISSUER_"
EMBEDDED = "embedded"
# The shortest prefix of a network, by IP version, that may be one place's proxies and nobody else's.
NARROW = {4: 24, 6: 64}


class Listen(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens, and whom it believes about the source of a request."""

    host: Annotated[Text, Meta(description="the address to listen at")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="the TCP port")] = 8000
    trusted_proxies: Annotated[
        str, Meta(description="addresses and small networks, separated by commas, whose X-Forwarded-For is believed")
    ] = ""


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """The signing keys."""

    folder: Annotated[Text, Meta(description="the folder of keys")]
    passphrase_file: Annotated[str, Meta(description="the passphrase of encrypted keys")] = ""


class Store(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits and uses: what several workers and hosts must agree on. `stated` and `durable` are the operator's word
    for what the store itself cannot be asked. `epoch_leeway_s` is 30 unless every provider shares this clock."""

    url: Annotated[
        Text,
        Meta(description="redis://, rediss://, unix://PATH, redis+sentinel://, or embedded: a child that forgets"),
    ]
    noeviction_stated: Annotated[bool, Meta(description="your word that it never evicts")] = False
    durable: Annotated[bool, Meta(description="your word that it loses nothing")] = False
    wait_replicas: Annotated[
        int, Meta(ge=0, le=8, description="how many replicas must have a use before it counts")
    ] = 0
    epoch_leeway_s: Annotated[
        int, Meta(ge=0, le=3600, description="seconds that clocks may differ where the store has forgotten")
    ] = LEEWAY_S
    secret_file: Annotated[
        str, Meta(description="the secret that several hosts share; store-secret in `data` where it is not set")
    ] = ""


class LogRoom(Struct, frozen=True, forbid_unknown_fields=True):
    """The transparency log; without an origin there is none."""

    origin: Annotated[str, Meta(description="the origin line of the transparency log; without it there is no log")] = ""
    database: Annotated[
        str, Meta(description="its SQLite file, log/log.sqlite in `data` where it is not set, or postgresql://")
    ] = ""
    key_file: Annotated[str, Meta(description="its key, log/log.pem in `keys.folder` where it is not set")] = ""
    records: Annotated[str, Meta(description="a folder elsewhere, where its newest checkpoint is kept")] = ""
    witness_policy: Annotated[str, Meta(description="a witness policy (C2SP tlog-policy)")] = ""
    witnesses: Annotated[
        Literal["async", "sync"], Meta(description="sync: a token waits until a quorum has cosigned its entry")
    ] = "async"
    witnesses_excluded: Annotated[str, Meta(description="names of witnesses that are not asked, with commas")] = ""
    witness_monitors: Annotated[
        str, Meta(description="NAME=URL with commas: where a witness shows checkpoints, if not as its policy says")
    ] = ""


class MetricsRoom(Struct, frozen=True, forbid_unknown_fields=True):
    """Where Prometheus scrapes, and nobody else can reach: who reads it needs no credential."""

    host: Annotated[Text, Meta(description="the address at which metrics are scraped")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="the TCP port; 0: no metrics")] = 0
    names: Annotated[
        str, Meta(description="names with a dot that this address is asked by, with commas, beside its host")
    ] = ""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that an operator can set. Of a room that is not there each setting has its default."""

    url: Annotated[
        Text, Meta(description="this issuer's name (iss) and public address, https, without a trailing slash")
    ]
    policies: Annotated[Text, Meta(description="the folder of policies and providers")]
    data: Annotated[Text, Meta(description="the folder of the audit, of what is revoked, and of what was decided by")]
    keys: Keys
    store: Store
    version: Annotated[Literal[1], Meta(description="the version of this file's form")] = 1
    listen: Listen = field(default_factory=Listen)
    log: LogRoom = field(default_factory=LogRoom)
    metrics: MetricsRoom = field(default_factory=MetricsRoom)
    pats: Annotated[
        str, Meta(description="the folder of personal access tokens; pats in `data` where it is not set")
    ] = ""
    trust: Annotated[str, Meta(description="the trust file that POST /verify judges by; without it there is none")] = ""
    ui: Annotated[bool, Meta(description="serves pages for people under /ui; false: none")] = True
    development: Annotated[bool, Meta(description="lets providers and url be plain http at loopback addresses")] = False

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is allowed here and seldom meant, in words for the log stream."""
        proxies = map(ipaddress.ip_network, listed(self.listen.trusted_proxies))
        return tuple(
            f"listen.trusted_proxies: {network} is a network of {network.num_addresses} addresses. Whoever has one of "
            "them chooses, by X-Forwarded-For, as which source it is counted and from which network its access token "
            "comes: name the proxies alone"
            for network in proxies
            if network.prefixlen < NARROW[network.version]
        )

    @property
    def audit_file(self) -> Path:
        """The path of the audit file."""
        return Path(self.data) / "audit.jsonl"

    @property
    def policies_folder(self) -> Path:
        """Where policies and providers are."""
        return Path(self.policies)

    @property
    def kept_folder(self) -> Path:
        """Where every policy that ever decided is kept, under its digest."""
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
        """Where the log's database is: the path of a SQLite file, or the URL of a PostgreSQL database."""
        return self.log.database or str(Path(self.data) / "log" / "log.sqlite")

    @property
    def store_secret(self) -> Path:
        """The file of the secret that seals what is kept in the store."""
        return Path(self.store.secret_file) if self.store.secret_file else Path(self.data) / "store-secret"

    def passphrase(self) -> bytes | None:
        """Read the passphrase of the signing keys, if they have one."""
        if not self.keys.passphrase_file:
            return None
        try:
            path = Path(self.keys.passphrase_file)
            passphrase = files.read(path, MAX_PASSPHRASE_FILE, private=True).rstrip(b"\r\n")
        except InputError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"keys.passphrase_file: {error.detail}") from None
        except OSError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"keys.passphrase_file: {error.strerror}") from None
        if not passphrase:
            raise SetupError(Code.SETTINGS_INVALID, "keys.passphrase_file: the file is empty")
        return passphrase


# -- names ------------------------------------------------------------------------------------------------------------


def _is_room(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _members(kind: type[Struct], room: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for each in msgspec.structs.fields(kind):
        if _is_room(each.type):
            yield from _members(each.type, f"{room}{each.name}.")
        else:
            yield f"{room}{each.name}", each


# Every setting, by its name with its rooms.
MEMBERS = dict(_members(Settings))
ROOMS = tuple(each.name for each in msgspec.structs.fields(Settings) if _is_room(each.type))
# And by its variable. The form of a file is said in the file alone.
VARIABLES = {f"{PREFIX}{name.replace('.', '_').upper()}": name for name in MEMBERS if name != "version"}


def about(name: str) -> str:
    """Say what a setting is."""
    metas: tuple[Meta, ...] = get_args(MEMBERS[name].type)[1:]
    return next(meta.description for meta in metas if meta.description)


def values_of(settings: Settings) -> dict[str, Any]:
    """Return each setting's value by its name."""
    return {name: _value_at(msgspec.to_builtins(settings), name) for name in MEMBERS}


def changed(settings: Settings, **values: object) -> Settings:
    """Return settings with other values, named as variables are, in small letters: `store_url="embedded"`.

    Raises msgspec.ValidationError for what does not fit, and KeyError for a name that is no setting.
    """
    nested = msgspec.to_builtins(settings)
    for name, value in values.items():
        put(nested, VARIABLES[f"{PREFIX}{name.upper()}"], value)
    return msgspec.convert(nested, Settings)


def listed(text: str) -> list[str]:
    """Split what is separated by commas."""
    return [each.strip() for each in text.split(",")] if text else []


def _value_at(nested: Mapping[str, Any], name: str) -> Any:
    value: Any = nested
    for part in name.split("."):
        value = value[part]
    return value


def put(nested: dict[str, Any], name: str, value: object) -> None:
    """Put a value into its room."""
    room, _, last = name.rpartition(".")
    (nested.setdefault(room, {}) if room else nested)[last] = value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a settings file. What it lacks a variable may set, so only its version is required."""
    described = msgspec.json.schema(Settings)
    for each in described["$defs"].values():
        each.pop("required", None)
    described["$defs"]["Settings"]["required"] = ["version"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}
