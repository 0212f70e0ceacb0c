"""The inventory: the parts of `data` that a service has had, in `data/inventory.json`.

A service makes a part that is missing. If it had the part before, that is a loss: a disk is not mounted, or a backup
was put back in part. A new list of revocations would make revoked tokens valid again, and with a new history any key
signs at once. So no service starts while a part of its inventory is missing. If the inventory is missing, too, the
audit, the history and the folders of keys show which parts there were.

The transparency log is not in it, because a service never makes a log (log/sequencer/setup.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

import msgspec
import structlog
from msgspec import Struct

from issuer.codes import Code
from issuer.errors import IssuerError, SetupError
from issuer.io import files
from issuer.io.bounds import MAX_RECORD_BYTES
from issuer.io.common_documents import HISTORY, LIST, RECORD, Home
from issuer.io.followed import Complaint, Failure, describe
from issuer.service.settings.background import OwnThread
from issuer.service.settings.model import Settings
from issuer.service.signing.bounds import MAX_INVENTORY_BYTES
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.key_files import PUT_AWAY
from issuer.service.signing.keyring import SUFFIXES
from issuer.service.signing.lifecycle import STATES

Part = Literal["key-history", "revocations", "revocation-list", "policies", "store-secret", "access-tokens"]
PARTS: tuple[Part, ...] = get_args(Part)
_DOCUMENTS: dict[Part, str] = {"key-history": HISTORY, "revocations": RECORD, "revocation-list": LIST}
_FILE = "inventory.json"
_log = structlog.get_logger("issuer")


class _Listed(Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    parts: tuple[Part, ...]


_decode = msgspec.json.Decoder(_Listed).decode


class Inventory:
    """The inventory of one service. `home` has its common documents. All methods block."""

    def __init__(self, settings: Settings, home: Home) -> None:
        self._settings = settings
        self._home = home
        self._path = Path(settings.data) / _FILE

    def demand(self, begin_anew: Collection[str] = (), *, had: Collection[Part] = ()) -> frozenset[Part]:
        """Return the parts that exist. Raise SetupError if one is missing that the service had, by the inventory or
        according to `had`. The parts in `begin_anew` leave the inventory; each must be missing."""
        found = frozenset(part for part in PARTS if self._exists(part))
        lost = self._lost(found, had)
        if unknown := [name for name in begin_anew if name not in lost]:
            rule = f"--begin-anew {unknown[0]}: no such part is missing. Omit the option. Parts: {', '.join(PARTS)}"
            raise SetupError(Code.SETTINGS_INVALID, rule)
        if missing := [part for part in lost if part not in begin_anew]:
            code = Code.KEY_HISTORY if "key-history" in missing else Code.DATA_MISSING
            raise SetupError(code, self._loss(missing))
        if lost:
            self._write(found)
            _log.warning("begun anew", parts=lost)
        return found

    def demand_documents(self) -> None:
        """Raise SetupError as `demand_history` does, if neither a history nor a record nor a list exists: a revocation
        must work although one of them is lost, but not go to an empty folder in place of `data`."""
        if not any(map(self._exists, _DOCUMENTS)):
            self.demand_history()

    def demand_history(self) -> None:
        """Raise SetupError if this host signs tokens, and the history is missing that it had: `data` is probably not
        mounted. A new history in its place would hide that from the next start."""
        signs_tokens = any(_has_file(self._settings.keys_folder / state, *SUFFIXES) for state in STATES)
        if signs_tokens and not self._exists("key-history") and "key-history" in self._lost(frozenset(), ()):
            raise SetupError(Code.KEY_HISTORY, self._loss(["key-history"]))

    def _lost(self, found: Collection[Part], had: Collection[Part]) -> list[Part]:
        listed = self.read()
        expected = {*had, *(self._shown(found) if listed is None else listed)}
        return [part for part in PARTS if part in expected and part not in found]

    def read(self) -> frozenset[Part] | None:
        """Return the listed parts; None without an inventory. Raises SetupError for a damaged one."""
        try:
            if not os.path.lexists(self._path):
                return None
            raw = files.read(self._path, MAX_INVENTORY_BYTES, follow=False)
            return frozenset(_decode(raw).parts)
        except (IssuerError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = error.detail if isinstance(error, IssuerError) else str(error)
            rule = f"{self._path}: {why}. Put back the backup's, or remove it: then the next start writes it anew"
            raise SetupError(Code.DATA_MISSING, rule) from None

    def add(self, known: Collection[Part]) -> frozenset[Part]:
        """Add the `known` parts and those that exist now, and return all. A part that cannot be read now is not added.
        Raises SetupError and OSError."""
        before = self.read() or frozenset()
        now = before.union(known)
        now = now.union(part for part in PARTS if part not in now and self._is_readable(part))
        if now != before:
            self._write(now)
        return now

    def _write(self, parts: Collection[Part]) -> None:
        files.make_folder(self._path.parent, shared=True)
        raw = msgspec.json.encode(_Listed(1, tuple(part for part in PARTS if part in parts)))
        files.replace(self._path, raw + b"\n", mode=0o600, durable=True, shared=True)

    def _exists(self, part: Part) -> bool:
        """Return whether a part exists. An unreadable one exists: its own reader refuses it."""
        try:
            return self._has(part)
        except (IssuerError, OSError):
            return True

    def _is_readable(self, part: Part) -> bool:
        try:
            return self._has(part)
        except (IssuerError, OSError):
            return False

    def _has(self, part: Part) -> bool:
        settings = self._settings
        match part:
            case "policies":
                return _has_file(settings.kept_folder, ".json")
            case "access-tokens":  # `used` stays after an operator has removed old records
                return _has_file(settings.pats_folder, "")
            case "store-secret":  # a named file is the operator's: without it no service starts
                return not settings.store.secret_file and os.path.lexists(settings.store_secret)
        return bool(self._home.read(_DOCUMENTS[part], MAX_RECORD_BYTES))

    def _shown(self, found: Collection[Part]) -> Iterator[Part]:
        """Yield the parts that a service without an inventory must have had."""
        settings, keys = self._settings, self._settings.keys_folder
        if has_run := self._has_audit():  # its first event comes after all of these
            yield from ("key-history", "policies")
            if not settings.store.secret_file:
                yield "store-secret"
        signs_lists = _has_file(keys / "revocation", ".pem")
        if signs_lists or any(_has_file(keys / state, *SUFFIXES) for state in ("retiring", *PUT_AWAY)):
            yield "key-history"
        if signs_lists and (has_run or "key-history" not in found or self._has_published()):
            yield "revocation-list"

    def _has_audit(self) -> bool:
        with suppress(OSError), os.scandir(self._settings.data) as entries:
            return any(entry.name.startswith("audit.jsonl") and entry.stat().st_size for entry in entries)
        return False

    def _has_published(self) -> bool:
        """Return whether a service has published a key, by the history."""
        try:
            return any(life.published is not None for life in KeyHistory(self._home).read().values())
        except (IssuerError, OSError):
            return True

    def _loss(self, missing: Collection[Part]) -> str:
        places = {
            "policies": self._settings.kept_folder,
            "store-secret": self._settings.store_secret,
            "access-tokens": self._settings.pats_folder,
            **{part: self._home.place(name) for part, name in _DOCUMENTS.items()},
        }
        options = " ".join(f"--begin-anew {part}" for part in missing)
        is_listed = os.path.lexists(self._path)
        shown = f"as {self._path} says" if is_listed else "as the keys, the history or the audit show"
        return (
            f"missing: {', '.join(str(places[part]) for part in missing)}. This issuer had it, {shown}. Mount the "
            "disk, or put the backup back (deploy/STATE.md). If it is lost for ever, or the issuer never ran, start "
            f"the service once with `{options}`"
        )


class InventoryKeeper:
    """Keeps the inventory of a running service complete, also in a folder that took the place of `data`.

    Its owner calls `turn`.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._known: frozenset[Part] = frozenset()
        self._thread = OwnThread()
        self._complaint = Complaint(_log_failure)

    async def turn(self, _asked: bool) -> None:
        """Add the parts that exist now. A failure is logged once, and stops nothing."""
        try:
            self._known = await self._thread.run(lambda: self._inventory.add(self._known))
        except (SetupError, OSError) as error:
            self._complaint.note(error)
        else:
            self._complaint.note(None)


def _has_file(folder: Path, *suffixes: str) -> bool:
    """Return whether a folder has a file with one of these suffixes. Raises OSError, unless the folder is missing."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return any(entry.name.endswith(suffixes) and not entry.name.startswith(".") for entry in entries)
    return False


def _log_failure(error: Failure | None) -> None:
    if error is None:
        _log.info("inventory written again")
    else:
        code, detail = describe(error, Code.MACHINE_FAILED)
        _log.error("inventory not written", code=str(code), detail=detail)
