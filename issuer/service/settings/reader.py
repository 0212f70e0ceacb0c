"""The reader of the settings: a YAML file, which environment variables override.

No other file of the service reads settings. The reader reports all errors at once, with their places in the file. For
an unknown name it suggests the nearest known one.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, SetupError
from issuer.formats import strict_yaml
from issuer.formats.strict_json import convert, pointer_along
from issuer.formats.strict_yaml import Document
from issuer.formats.url import UrlError, split_url
from issuer.io import files
from issuer.service.settings.model import MEMBERS, PREFIX, ROOMS, VARIABLES, Settings, about, put

# Variables of other commands (`issuer help environment`), which the service ignores.
OTHERS = frozenset({
    "ISSUER_ACCESS_TOKEN", "ISSUER_CLIENT_SECRET", "ISSUER_COMMIT", "ISSUER_ID_TOKEN", "ISSUER_SOURCE",
    "ISSUER_VERIEVALS_KEY", "ISSUER_VERIEVALS_ROOT",
})  # fmt: skip
OF_RUNS = "ISSUER_RUN_"
_NEAR = 0.7
# The name of a group is not a variable. The suggestion for it is the group's first setting.
_ROOMS_AS_VARIABLES = [
    (room, next(variable for variable, name in VARIABLES.items() if name.startswith(f"{room}."))) for room in ROOMS
]


def read_settings(
    file: Path | None = None, environ: Mapping[str, str] | None = None, *, guarded: bool = True
) -> Settings:
    """Read the settings. Raises one error about all faults: InputError if any is in the file, else SetupError. Without
    `guarded`, others may write to the file: a check of policies reads the checkout of a CI."""
    return find_settings(file, environ, guarded=guarded)[0]


def find_settings(
    file: Path | None = None, environ: Mapping[str, str] | None = None, *, guarded: bool = True
) -> tuple[Settings, Mapping[str, str]]:
    """Read the settings, and return the origin of each that is set: `FILE:LINE` or `$VARIABLE`. Raises the same."""
    reading = _Reading()
    if file:
        if guarded:
            files.demand_guarded(file, group=False)  # it names the folders of keys and policies
        reading.take_file(strict_yaml.load(files.read(file, strict_yaml.MAX_BYTES), str(file)))
    reading.take_environment(os.environ if environ is None else environ)
    reading.demand_rules()
    reading.demand_all(file)
    reading.end()
    return msgspec.convert(reading.values, Settings), reading.origins


class _Reading:
    """The values read so far, their origins, and the faults."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self._places: dict[str, Place] = {}
        self._in_file: list[InputError] = []
        self._elsewhere: list[str] = []

    def take_file(self, document: Document) -> None:
        if not isinstance(document.value, dict):
            raise document.error(Code.FILE_SCHEMA, "", "a settings file is a map")
        if "version" not in document.value:
            self._in_file.append(document.error(Code.FILE_SCHEMA, "", "the file must begin with `version: 1`"))
        for name, value in document.value.items():
            if name not in ROOMS:
                self._take(document, (None, name), name, value)
            elif isinstance(value, dict):
                for inner, one in value.items():
                    self._take(document, ((None, name), inner), f"{name}.{inner}", one)
            else:
                names = ", ".join(
                    member.removeprefix(f"{name}.") for member in MEMBERS if member.startswith(f"{name}.")
                )
                detail = f"a group of settings is a map of {names}"
                self._in_file.append(document.error(Code.FILE_SCHEMA, pointer_along((None, name)), detail))

    def _take(self, document: Document, path: Any, name: str, value: object) -> None:
        pointer = pointer_along(path)
        # A key with a dot does not name a setting in a group.
        if name not in MEMBERS or name.count(".") != pointer.count("/") - 1:
            known = [*_spellings({each: each for each in MEMBERS}), *((room, room) for room in ROOMS)]
            detail = f"this setting is not known{_suggestion(name.rpartition('.')[2], known)}"
            self._in_file.append(document.error(Code.FILE_UNKNOWN_MEMBER, pointer, detail))
            return
        self._places[name] = document.place(pointer)
        self.origins[name] = f"{self._places[name].file}:{self._places[name].line}"
        try:
            put(self.values, name, convert(value, MEMBERS[name].type))  # type: ignore[arg-type]  # of a strict reader
        except FormatError as error:
            put(self.values, name, None)
            self._in_file.append(document.locate(error, pointer))

    def take_environment(self, environ: Mapping[str, str]) -> None:
        for variable, value in environ.items():
            if not variable.startswith(PREFIX) or variable in OTHERS or variable.startswith(OF_RUNS):
                continue
            if variable not in VARIABLES:
                others = ((each.removeprefix(PREFIX).lower(), each) for each in sorted(OTHERS))
                known = [*_spellings({name: each for each, name in VARIABLES.items()}), *others, *_ROOMS_AS_VARIABLES]
                suggestion = _suggestion(variable.removeprefix(PREFIX), known)
                self._elsewhere.append(f"{variable} is not a setting, and no command reads it{suggestion}")
                continue
            name = VARIABLES[variable]
            self._places.pop(name, None)
            self.origins[name] = f"${variable}"
            try:
                put(self.values, name, msgspec.convert(value, MEMBERS[name].type, strict=False))
            except msgspec.ValidationError as error:
                put(self.values, name, None)
                why = str(error).partition(" '")[0]  # for a choice, msgspec quotes the value: it may be a secret
                self._elsewhere.append(f"{variable}, which sets `{name}`: {why}. The setting is {about(name)}")

    def demand_rules(self) -> None:
        """Check the rules that types cannot express."""
        if url := self.values.get("url"):
            self._demand("url", fault_of_url(url, development=self.values.get("development") is True))
        if proxies := (self.values.get("listen") or {}).get("trusted_proxies"):
            self._demand("listen.trusted_proxies", _fault_of_proxies(proxies))

    def _demand(self, name: str, fault: str) -> None:
        if fault and name in self._places:
            self._in_file.append(InputError(Code.SETTINGS_INVALID, fault, self._places[name]))
        elif fault:
            self._elsewhere.append(fault)

    def demand_all(self, file: Path | None) -> None:
        """Add a fault if settings without a default are missing."""
        missing = [
            f"`{name}` ({variable})"
            for variable, name in VARIABLES.items()
            if MEMBERS[name].required and name not in self.origins
        ]
        if missing:
            where = f"in {file}" if file else "in a settings file (--config; `issuer init DIR` writes one)"
            self._elsewhere.append(f"not set: {', '.join(missing)}. Set each {where}, or with its variable")

    def end(self) -> None:
        """Raise one error about all faults."""
        if self._in_file:
            others = (InputError(Code.SETTINGS_INVALID, detail, Place("environment")) for detail in self._elsewhere)
            raise InputError.of([*self._in_file, *others])
        if self._elsewhere:
            raise SetupError(Code.SETTINGS_INVALID, "\n".join(self._elsewhere))


def fault_of_url(url: str, *, development: bool) -> str:
    """Return the reason why a URL cannot be an issuer's name; "" if it can."""
    plain = "url must be scheme, host and path, without a trailing slash"
    try:
        split_url(url, http="loopback" if development else "nowhere")
    except UrlError as error:
        https = "url must be https (http in development only, at a loopback address)"
        return https if error.fault == "scheme" else plain
    return plain if url.endswith("/") else ""


def _fault_of_proxies(proxies: str) -> str:
    """Return a fault unless all are addresses or networks: anything else would look trusted but never match."""
    try:
        for proxy in proxies.split(","):
            ipaddress.ip_network(proxy.strip())
    except ValueError:
        return "listen.trusted_proxies: name addresses or small networks (192.0.2.10, 192.0.2.16/28), with commas"
    return ""


# -- suggestions ---------------------------------------------------------------------------------------------------


def _suggestion(name: str, known: Iterable[tuple[str, str]]) -> str:
    """Return a question with the nearest known name, or "". `known` has pairs of a spelling and the correct name."""
    names: dict[str, str] = {}
    for spelling, correct in known:
        names.setdefault(spelling, correct)
    near = get_close_matches(name.lower(), names, 1, _NEAR)
    return f" (did you mean `{names[near[0]]}`?)" if near else ""


def _spellings(correct_names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of a possible spelling and the correct name, including spellings without the group."""
    for name, correct in correct_names.items():
        yield name.replace(".", "_"), correct
        yield name, correct
    for name, correct in correct_names.items():
        yield name.rpartition(".")[2], correct
