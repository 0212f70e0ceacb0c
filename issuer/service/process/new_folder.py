"""The folder of a new service: settings with comments, the first key, a sample policy, a systemd unit, compose.yaml.

`issuer init` makes it as a draft beside its place, then renames the draft. If it is killed, only the draft is left, and
the next `issuer init` names it. It never replaces a file.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.io import files
from issuer.io.common_documents import FolderHome
from issuer.service.settings.model import MEMBERS, Settings, about
from issuer.service.signing.bounds import HISTORY_TURN_S
from issuer.service.signing.commands import Custody
from issuer.service.signing.history import KeyHistory

# These folders are package data in an installed wheel, and top-level folders in a checkout.
_PLACES = (Path(__file__).parents[2], Path(__file__).parents[3])
DEPLOY = next(folder for place in _PLACES if (folder := place / "deploy").is_dir())
POLICIES = next(folder for place in (_PLACES[0] / "dev", _PLACES[1]) if (folder := place / "policies").is_dir())
SAMPLE = "inspect-ai.yaml"
SETTINGS, UNIT, COMPOSE = "settings.yaml", "issuer.service", "compose.yaml"
_WIDTH = 100
_HEAD = """\
# The settings of this issuer. `issuer config check` finds mistakes; `issuer config show --origin` prints what is
# in force. A setting after a # has its default. A variable wins over this file: ISSUER_LISTEN_PORT over port below.
"""
# The head of the unit. The rest is deploy/systemd/issuer.service with the paths and the owner of the folder.
_UNIT_HEAD = """\
# For /etc/systemd/system. Made by `issuer init` from deploy/systemd/issuer.service. ProtectHome hides /home.
# Once the keys have a passphrase: deploy/systemd/issuer.service.d.
"""
_STATE = "StateDirectory=issuer\nStateDirectoryMode=0700\nWorkingDirectory=/var/lib/issuer\n"


class Wish(Struct, frozen=True):
    """The operator's choices: the URLs of issuer and store, and the port. `who` goes into the history of the keys."""

    url: str
    store_url: str
    port: int
    who: str


def begin(folder: Path, wish: Wish, now: int) -> None:
    """Make the folder at `now` (Unix seconds). If root runs this, the owner of the parent or of the old folder owns it.

    Raises SetupError if the place is taken, or if a unit cannot name it, and OSError.
    """
    folder = Path(os.path.abspath(folder))
    demand_free(folder)
    files.make_folder(folder.parent, mode=0o755)
    owner = os.stat(folder if folder.exists() else folder.parent)
    draft = folder.parent / f".{folder.name}.draft"
    _begin_draft(draft)
    try:
        _fill(draft, folder, wish, owner.st_uid, now)
        if os.geteuid() == 0:
            give_away(draft, owner.st_uid, owner.st_gid)
        _take_place(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def give_away(folder: Path, user: int, group: int) -> None:
    """Give a folder of root and everything in it to a user: the contents first, by descriptors, following no link.
    Otherwise the new owner of a folder could put a link to a file of root into it before the next step."""
    for _, folders, names, inside in os.fwalk(folder, topdown=False):
        for name in (*folders, *names):
            os.chown(name, user, group, dir_fd=inside, follow_symlinks=False)
    os.chown(folder, user, group, follow_symlinks=False)


def demand_free(folder: Path) -> None:
    """Raise SetupError unless the place is free or an empty folder."""
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        detail = f"{folder} exists and is not empty; `init` replaces no file: name a new or an empty folder"
        raise SetupError(Code.MACHINE_FAILED, detail)


def _begin_draft(draft: Path) -> None:
    """Make the folder of the draft. An existing one may belong to a command that still runs, so it is not removed."""
    try:
        os.mkdir(draft, 0o700)
    except FileExistsError:
        detail = (
            f"{draft} is left from an `issuer init` that was killed; its private key was never used: "
            f"if no `issuer init` runs, remove it and try again: rm -r {shlex.quote(str(draft))}"
        )
        raise SetupError(Code.MACHINE_FAILED, detail) from None


def _take_place(draft: Path, folder: Path) -> None:
    try:
        files.put_folder(draft, folder)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            demand_free(folder)
        raise


def _fill(draft: Path, folder: Path, wish: Wish, user: int, now: int) -> None:
    for name, mode in (("policies", 0o755), ("keys", 0o700), ("data", 0o700)):
        files.make_folder(draft / name)
        (draft / name).chmod(mode)
    for name, text in _texts(folder, wish, user):
        files.create(draft / name, text.encode(), mode=0o600 if name == SETTINGS else 0o644)
    with closing(FolderHome(draft / "data")) as home:
        history = KeyHistory(home, HISTORY_TURN_S)
        Custody(draft / "keys", history, lambda: None, now, wish.who, "the first key of this issuer").generate()
    draft.chmod(0o755)


def _texts(folder: Path, wish: Wish, user: int) -> Iterator[tuple[str, str]]:
    yield SETTINGS, settings_text(folder, wish)
    yield "policies/providers.yaml", _sample("providers.yaml")
    yield f"policies/{SAMPLE}", sample_policy()
    yield UNIT, unit_text(folder, user)
    yield COMPOSE, _of_deploy("compose.yaml")


def _of_deploy(name: str) -> str:
    return files.read(DEPLOY / name, MAX_BYTES).decode()


def _sample(name: str) -> str:
    """Return a sample without the line for the YAML language server, whose schema is not in the folder."""
    text = files.read(POLICIES / name, MAX_BYTES).decode()
    return "".join(line for line in text.splitlines(keepends=True) if "yaml-language-server" not in line)


def sample_policy() -> str:
    """Return the sample policy, staged: its made-up ids may belong to a real account, so it must not issue tokens."""
    staged = "mode: staged                 # judged and audited, never issued: with your own ids make it active"
    return _sample(SAMPLE).replace("mode: active", staged, 1)


def unit_text(folder: Path, user: int) -> str:
    """Return the systemd unit for a service in this folder; `user` is the number of its owner."""
    _, mark, text = _of_deploy("systemd/issuer.service").partition("[Unit]\n")
    program, settings = (_in_unit(path) for path in (Path(sys.executable).parent / "issuer", folder / SETTINGS))
    run = f"ExecStart={program} serve --config {settings}\n".replace("$", "$$")  # `$` would begin a variable
    writes = f"ReadWritePaths={_in_unit(folder / 'keys')} {_in_unit(folder / 'data')}\n"
    for said, own in (
        ("RequiresMountsFor=/var/lib/issuer\n", f"RequiresMountsFor={_in_unit(folder)}\n"),
        (_STATE, f"WorkingDirectory={str(folder).replace('%', '%%')}\n{writes}"),  # this line takes no quotes
        ("ExecStart=/opt/issuer/bin/issuer serve --config /etc/issuer/settings.yaml\n", run),
        ("User=issuer\nGroup=issuer\n", f"User={_name_of(user)}\n"),
    ):
        text = text.replace(said, own)
    return _UNIT_HEAD + mark + text


def _in_unit(path: Path) -> str:
    """Write a path as a word of a unit, in which `%` begins a specifier and blanks separate words (systemd.unit(5)).

    Raises SetupError for characters that each line of a unit would escape differently, and that no sane path has.
    """
    text = str(path)
    if not text.isprintable() or set(text) & set("\\\"'") or any(part.endswith(" ") for part in path.parts):
        detail = "a systemd unit cannot name this path: use no quotes, backslashes, control characters or final blanks"
        raise SetupError(Code.MACHINE_FAILED, f"{text!r}: {detail}")
    text = text.replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # the user of a container may have only a number
        return str(user)


# -- the settings -----------------------------------------------------------------------------------------------------


def settings_text(folder: Path, wish: Wish) -> str:
    """Return a settings file that explains every setting; most have their default."""
    chosen: dict[str, Any] = {
        "version": 1,
        "url": wish.url,
        "policies": str(folder / "policies"),
        "data": str(folder / "data"),
        "keys.folder": str(folder / "keys"),
        "store.url": wish.store_url,
        "listen.port": wish.port,
        "metrics.port": 9464,
    }
    if wish.url.startswith("http://"):
        chosen["development"] = True
    order = sorted(fields(Settings), key=lambda each: each.name != "version")
    blocks = [_block(each.name, chosen) for each in order]
    return _HEAD + "".join(f"\n{block}" for block in blocks)


def _block(name: str, chosen: dict[str, Any]) -> str:
    """Write one setting or a group. A group without a chosen setting is all comment, because it must not be empty."""
    inside = [each for each in MEMBERS if each.startswith(f"{name}.")]
    if not inside:
        return "".join(_setting(name, chosen, ""))
    lines = [line for each in inside for line in _setting(each, chosen, "  ")]
    return f"{'' if chosen.keys() & set(inside) else '#'}{name}:\n" + "".join(lines)


def _setting(name: str, chosen: dict[str, Any], indent: str) -> Iterator[str]:
    for line in textwrap.wrap(about(name), _WIDTH - len(indent)):
        yield f"{indent}# {line}\n"
    value = json.dumps(chosen.get(name, MEMBERS[name].default), ensure_ascii=False)
    yield f"{'' if name in chosen else '#'}{indent}{name.rpartition('.')[2]}: {value}\n"
