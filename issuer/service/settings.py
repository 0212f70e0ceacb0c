"""The service's settings: a YAML file and the environment, into one frozen value. The only reader of os.environ.

Each member of `Settings` can be set in the file under its name and in the environment as `ISSUER_<NAME>`, which wins.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from issuer import files
from issuer.codes import Code
from issuer.errors import FormatError, InputError, SetupError
from issuer.formats import strict_yaml
from issuer.formats.strict_json import convert, pointer_to
from issuer.identity.token import LEEWAY_S
from issuer.keyfile import MAX_PASSPHRASE_FILE
from issuer.url import UrlError, split_url

# An empty path would be the service's working directory.
Text = Annotated[str, Meta(min_length=1)]
PREFIX = "ISSUER_"
EMBEDDED = "embedded"
# The shortest prefix of a network, by IP version, that may be one place's proxies and nobody else's.
NARROW = {4: 24, 6: 64}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that an operator can set.

    `url` is this issuer's name (`iss`) and public address, without a trailing slash. `policies`, `keys` and `data` are
    folders; `data` holds the audit file, every policy by digest and what is revoked. `pats` is the folder of personal
    access tokens, in `data` where it is not set. `redis_url` is `redis://`, `rediss://`, `unix://PATH`,
    `redis+sentinel://` (client.py) or `embedded`. `trust` is the trust file that `POST /verify` judges by; without one
    there is no such endpoint. `wait_replicas` is how many replicas must have a use before it counts.
    `noeviction_stated` and `durable_store` are the operator's word for what the store itself cannot be asked.
    `epoch_leeway_s` is 30 unless every provider shares this machine's clock. `store_secret_file` is the secret that
    several hosts on one store share; without it one is made in `data`. `development` allows providers on plain http at
    loopback addresses. `trusted_proxies` are addresses and networks, separated by commas, from which `X-Forwarded-For`
    is believed.

    `log_origin` is the origin line of the transparency log; without one there is no log. `log_database` is the path of
    its SQLite file, in `data` where it is not set, or a `postgresql://` URL; `log_key_file` is its key, in `keys` where
    it is not set; `log_records` a folder on another disk, where its newest checkpoint is kept. `log_witness_policy` is
    a witness policy (C2SP tlog-policy); with `log_witnesses: sync` a token waits until a quorum has cosigned its entry.
    `log_witnesses_excluded` names those of its witnesses that are not asked, and `log_witness_monitors` (`NAME=URL`)
    where one shows checkpoints, if that is not the URL that the policy has for it; both are separated by commas.
    """

    url: Text
    policies: Text
    keys: Text
    data: Text
    redis_url: Text
    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    key_passphrase_file: str = ""
    pats: str = ""
    trust: str = ""
    noeviction_stated: bool = False
    durable_store: bool = False
    wait_replicas: Annotated[int, Meta(ge=0, le=8)] = 0
    epoch_leeway_s: Annotated[int, Meta(ge=0, le=3600)] = LEEWAY_S
    store_secret_file: str = ""
    development: bool = False
    trusted_proxies: str = ""
    log_origin: str = ""
    log_database: str = ""
    log_key_file: str = ""
    log_records: str = ""
    log_witness_policy: str = ""
    log_witnesses: Literal["async", "sync"] = "async"
    log_witnesses_excluded: str = ""
    log_witness_monitors: str = ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is allowed here and seldom meant, in words for the log stream."""
        proxies = (ipaddress.ip_network(proxy.strip()) for proxy in filter(None, self.trusted_proxies.split(",")))
        return tuple(
            f"trusted_proxies: {network} is a network of {network.num_addresses} addresses. Whoever has one of them "
            "chooses, by X-Forwarded-For, as which source it is counted and from which network its access token comes: "
            "name the proxies alone"
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
    def pats_folder(self) -> Path:
        """The folder of personal access tokens."""
        return Path(self.pats) if self.pats else Path(self.data) / "pats"

    @property
    def log_place(self) -> str:
        """Where the log's database is: the path of a SQLite file, or the URL of a PostgreSQL database."""
        return self.log_database or str(Path(self.data) / "log" / "log.sqlite")

    @property
    def store_secret(self) -> Path:
        """The file of the secret that seals what is kept in the store."""
        return Path(self.store_secret_file) if self.store_secret_file else Path(self.data) / "store-secret"

    def passphrase(self) -> bytes | None:
        """Read the passphrase of the signing keys, if they have one."""
        if not self.key_passphrase_file:
            return None
        try:
            passphrase = files.read(Path(self.key_passphrase_file), MAX_PASSPHRASE_FILE, private=True).rstrip(b"\r\n")
        except InputError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"key_passphrase_file: {error.detail}") from None
        except OSError as error:
            raise SetupError(Code.SETTINGS_INVALID, f"key_passphrase_file: {error.strerror}") from None
        if not passphrase:
            raise SetupError(Code.SETTINGS_INVALID, "key_passphrase_file: the file is empty")
        return passphrase


def read_settings(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings. Raises InputError for the file, SetupError for the environment and for what is missing."""
    values: dict[str, Any] = _from_file(file) if file else {}
    for name, value in (os.environ if environ is None else environ).items():
        if name.startswith(PREFIX) and (member := name.removeprefix(PREFIX).lower()) in Settings.__struct_fields__:
            values[member] = value
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        hint = f"set {PREFIX}<NAME> or the member of the settings file"
        raise SetupError(Code.SETTINGS_INVALID, f"{error}: {hint}") from None
    _check_url(settings)
    _check_proxies(settings.trusted_proxies)
    return settings


def _from_file(file: Path) -> dict[str, Any]:
    document = strict_yaml.load(files.read(file, strict_yaml.MAX_BYTES), str(file))
    if not isinstance(document.value, dict):
        raise document.error(Code.FILE_SCHEMA, "", "a settings file is a map")
    kinds = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    for name, value in document.value.items():
        place = pointer_to("", name)
        if name not in kinds:
            raise document.error(Code.FILE_UNKNOWN_MEMBER, place, "this setting is not known")
        try:
            convert(value, kinds[name])
        except FormatError as error:
            raise document.locate(error, place) from None
    return dict(document.value)


def _check_url(settings: Settings) -> None:
    plain = "url must be scheme, host and path, without a trailing slash"
    try:
        split_url(settings.url, http="loopback" if settings.development else "nowhere")
    except UrlError as error:
        https = "url must be https (http in development only, at a loopback address)"
        raise SetupError(Code.SETTINGS_INVALID, https if error.fault == "scheme" else plain) from None
    if settings.url.endswith("/"):
        raise SetupError(Code.SETTINGS_INVALID, plain)


def _check_proxies(proxies: str) -> None:
    """Demand addresses or networks: anything else would look trusted, and never match."""
    for proxy in proxies.split(",") if proxies else ():
        try:
            ipaddress.ip_network(proxy.strip())
        except ValueError:
            raise SetupError(
                Code.SETTINGS_INVALID,
                "trusted_proxies: name addresses or small networks (192.0.2.10, 192.0.2.16/28), separated by commas",
            ) from None
