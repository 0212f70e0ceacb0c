"""`issuer keys`: commands for the life of a signing key, from its making until its last token ends. They print no
private key; service/signing/commands.py does the work."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec import Struct

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import home_by, who
from issuer.cli.options import A_FILE, config_option, json_option, read_time
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, say_document
from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats.times import show_span, show_time
from issuer.io.files import read
from issuer.io.keyfile import MAX_PASSPHRASE_FILE
from issuer.service.settings.model import Settings
from issuer.service.settings.reader import read_settings
from issuer.service.signing.bounds import FEW_KEYS_LEFT, HISTORY_TURN_S, MAX_SIGNED_KEYS, PUBLISHED_S
from issuer.service.signing.commands import Custody, Made, Target
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.key_files import OTHERS, KeyFile, find_file, find_files
from issuer.service.signing.keyring import Opener
from issuer.service.signing.lifecycle import STATES, Lives, Plan, Step, Words, jwk_of, may_sign_from

_DAY_S = 86_400
_SUFFIX = re.compile(r"\.(pem|yaml)\Z")
_SEEN_EARLY = (
    f"For at most {show_span(PUBLISHED_S)} relying parties hold key sets without this key. They ask for the set once "
    "more; one that cannot ask says undecided, not failed. The key before is believed until `issuer keys revoke`."
)


_FEW = f"more keys may sign: relying parties read an archive of {MAX_SIGNED_KEYS}. Rotate less often."
_NO_KEY = (
    "No key is active: no token is issued. `issuer keys rotate --compromised` has the next key sign at once, and makes "
    "one where there is none."
)


@click.group()
def keys() -> None:
    """Make, rotate, list, publish and revoke signing keys."""


# -- options ----------------------------------------------------------------------------------------------------------


def _places(command: Callable[..., None]) -> Callable[..., None]:
    """Add how a command finds keys, history and passphrase: as the service does, or each by its own option."""

    @config_option
    @click.option("--dir", "folder", type=A_FILE, envvar="ISSUER_KEYS_FOLDER", help="The keys, if not by the settings.")
    @click.option("--data", type=A_FILE, envvar="ISSUER_DATA", help="Where their history is, if not by the settings.")
    @click.option("--passphrase-file", type=A_FILE, envvar="ISSUER_KEYS_PASSPHRASE_FILE", help="It encrypts the keys.")
    @wraps(command)
    def found(
        config: Path | None, folder: Path | None, data: Path | None, passphrase_file: Path | None, **rest: Any
    ) -> None:
        command(Places(config, folder, data, passphrase_file), **rest)

    return found


class Places(Struct, frozen=True):
    """Where keys, history and passphrase are, as far as the options say."""

    config: Path | None
    folder: Path | None
    data: Path | None
    passphrase_file: Path | None

    def custody(self, why: str = "") -> Custody:
        """Return what the commands work on. Raises SetupError and InputError."""
        settings = self._settings()
        folder, data = self.folder, self.data
        passphrase = self.passphrase
        if settings is not None:
            folder, data = folder or settings.keys_folder, data or Path(settings.data)
            passphrase = passphrase if self.passphrase_file else settings.passphrase
        assert folder is not None  # noqa: S101 (for the type checker)
        assert data is not None  # noqa: S101
        history = KeyHistory(home_by(settings, data), HISTORY_TURN_S)
        return Custody(folder, history, cache(passphrase), int(time.time()), who(), why)

    def _settings(self) -> Settings | None:
        """Read the service's settings. Return None without settings: then the options name everything."""
        try:
            return read_settings(self.config)
        except SetupError as error:
            if self.config is None and self.folder is not None and self.data is not None:
                return None
            detail = f"{error.detail}; or give --dir, the keys, and --data, their history"
            raise SetupError(error.code, detail) from None

    def passphrase(self) -> bytes | None:
        """Read the passphrase, if there is one. Raises InputError."""
        path = self.passphrase_file
        return None if path is None else read(path, MAX_PASSPHRASE_FILE, pipe=True).rstrip(b"\r\n")


def _words(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        text.encode()
        return msgspec.convert(text, Words)
    except (UnicodeEncodeError, msgspec.ValidationError):
        raise click.BadParameter("give at most 512 characters of UTF-8") from None


def _kid(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Take a kid, or the name of its file: a kid may begin with `-`, as an option does."""
    return text and _SUFFIX.sub("", Path(text).name).removeprefix("key-")


_reason = click.option("--reason", default="", metavar="TEXT", callback=_words, help="Why; it is in the history.")


# -- making -----------------------------------------------------------------------------------------------------------


@keys.command("generate")
@_places
@_reason
@click.option("--state", type=click.Choice(get_args(Made)), help="Default: active for the first key, else next.")
def generate_key(places: Places, state: Made | None, reason: str) -> None:
    """Make an Ed25519 key, readable by its owner alone, and print its file.

    The first key of an issuer signs at once. Any other one is published first, and signs after `issuer keys rotate`.
    """
    path = places.custody(reason).generate(state)
    say(printable(str(path)))
    say(_of_new(path), err=True)


def _of_new(path: Path) -> str:
    if path.parent.name == "active":
        return "It signs at once: no relying party can hold a key set without it."
    return f"It may sign {show_span(PUBLISHED_S)} after every host has published it: `issuer keys rotate` then."


# -- looking ----------------------------------------------------------------------------------------------------------


@keys.command("list")
@_places
@json_option
def list_keys(places: Places, as_json: bool) -> None:
    """List every key, also those that cannot be opened. Exit code 6 where there is one."""
    custody, lives, failures = places.custody(), None, list[str]()
    try:
        found, lives = custody.look()
    except (SetupError, OSError) as error:  # without a history the files are all that is known
        found, failures = find_files(custody.folder, custody.passphrase, custody.opener, {}), [_why(error)]
    rows = [*(_Row.of(file, lives) for file in found), *_gone(found, lives or {})]
    if as_json:
        say_document({"version": 1, "keys": rows})
    elif rows:
        table = [row.cells(custody.now) for row in rows]
        shown = len(_COLUMNS) if any(cells[-1] for cells in table) else len(_COLUMNS) - 1
        say(render_table([cells[:shown] for cells in (_COLUMNS, *table)]))
    else:
        say(f"{custody.folder} holds no key; make one with `issuer keys generate`", err=True)
    failures += [file.why for file in found if file.why]
    for failure in failures:
        say(f"issuer: {printable(failure)}", err=True)
    sys.exit(Exit.LOCAL if failures else Exit.GOOD)


def _why(error: SetupError | OSError) -> str:
    return error.detail if isinstance(error, SetupError) else f"{error.filename}: {error.strerror}"


class _Row(Struct, frozen=True):
    """A key as JSON describes it: times in Unix seconds, null where something is not known, or never will be."""

    kid: str
    state: str
    since: int
    encrypted: bool | None = None
    opened: bool = False
    may_sign_from: int | None = None
    file: str | None = None
    why: str = ""

    @classmethod
    def of(cls, file: KeyFile, lives: Lives | None) -> _Row:
        life = lives.get(file.kid) if lives else None
        since = file.made if life is None else min(life.seen, file.made or life.seen)
        signs_from = may_sign_from(lives, file.kid) if lives and file.state in STATES else None
        return cls(file.kid, file.state, since, file.encrypted, file.opened, signs_from, str(file.path), file.why)

    def cells(self, now: int) -> list[str]:
        encrypted = {None: "-", True: "yes" if self.opened else "yes, not opened", False: "no"}[self.encrypted]
        return [
            self.kid or "not known",
            self.state,
            _age(now - self.since) if self.since else "-",
            encrypted,
            self._signs_from(now),
            "" if self.file and self.kid and self.kid in self.file else self.file or "gone",
        ]

    def _signs_from(self, now: int) -> str:
        if self.may_sign_from is None:
            return {"next": "not published yet", "revoked": "never"}.get(self.state, "-")
        return "now" if self.may_sign_from <= now else show_time(self.may_sign_from)


# A file that is named after its key is not named once more.
_COLUMNS = ["KID", "STATE", "AGE", "ENCRYPTED", "MAY SIGN FROM", "FILE"]


def _gone(found: Iterable[KeyFile], lives: Lives) -> list[_Row]:
    """Describe the keys of which only the history is left."""
    here = {file.kid for file in found}
    return [_Row(life.kid, life.what, life.seen) for life in lives.values() if life.kid not in here]


def _age(seconds: int) -> str:
    for unit_s, unit in ((_DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit}"
    return "0 min"


@keys.command()
@_places
@click.option("--of", "whose", type=A_FILE, default=Path("signing"), show_default=True,
              metavar="WHOSE", help="signing, receipt, revocation, or the file of one key.")  # fmt: skip
def public(places: Places, whose: Path) -> None:
    """Print the public halves as a JWK set, for a trust file."""
    kinds = {"signing": STATES, **{name: (name,) for name in OTHERS}}
    found = (
        [file for file in places.custody().look()[0] if file.state in kinds[str(whose)]]
        if str(whose) in kinds
        else [find_file(whose, "", places.passphrase, Opener(), {})]
    )
    if not found:
        raise SetupError(Code.KEY_UNUSABLE, f"there is no {whose} key")
    for file in found:
        if not file.x:
            raise SetupError(Code.KEY_UNUSABLE, file.why or f"{file.path} is encrypted: give --passphrase-file")
    say_document({"keys": [jwk_of(file.x) for file in found]})


# -- rotating ---------------------------------------------------------------------------------------------------------


@keys.command()
@_places
@_reason
@click.argument("kid", required=False, callback=_kid)
@click.option("--to", type=click.Choice(get_args(Target)), help="Bring KID into this state, if that is allowed.")
@click.option("--plan", "as_plan", is_flag=True, help="Print when each step is due, and change nothing.")
@click.option("--compromised", is_flag=True, help="Have a key sign at once: the active one may be stolen.")
def rotate(places: Places, kid: str | None, to: Target | None, as_plan: bool, compromised: bool, reason: str) -> None:
    """Do the next step of a rotation that is due, and say when the one after it is. Safe to run at any time.

    Archive a key whose last token has expired; else have the next key sign, if every relying party can know it, while
    the one before retires; else make the next key. KID is a kid, or the name of its file.
    """
    if bool(kid) != bool(to):
        raise click.UsageError("KID and --to go together: `issuer keys rotate KID --to STATE`")
    if as_plan and (kid or compromised):
        raise click.UsageError("--plan is the plan of all keys: give it alone")
    custody = places.custody(reason)
    if as_plan:
        say(_render_plan(custody.plan()))
        return
    if kid and to:
        custody.bring(kid, to, compromised=compromised)
        say(f"{printable(kid)} is {to}")
    else:
        rotated = custody.rotate(compromised=compromised)
        say(_describe_done(rotated.done, rotated.made, compromised=compromised))
        say(_describe_next(rotated.next, custody.now))
        if rotated.keys_left < FEW_KEYS_LEFT:
            say(f"warning: {rotated.keys_left} {_FEW}", err=True)
    if compromised:
        say(_SEEN_EARLY)


def _render_plan(plans: Iterable[Plan]) -> str:
    head = ["KID", "STATE", "PUBLISHED", "SIGNS FROM", "RETIRES", "LAST TOKEN EXPIRES"]
    rows = [
        [one.kid or "-", one.state, *map(_time, (one.published, one.may_sign_from, one.retires, one.leaves))]
        for one in plans
    ]
    return f"{render_table([head, *rows])}\nA key leaves the key set when its last token has expired."


def _time(moment: int | None) -> str:
    return "-" if moment is None else "at once" if moment == 0 else show_time(moment)


def _describe_done(step: Step | None, made: Path | None, *, compromised: bool) -> str:
    if step is None:
        return "Nothing is due."
    if made is not None:
        return printable(str(made)) if compromised else f"{printable(str(made))}\n{_of_new(made)}"
    return f"{step.kid} {'signs from now on' if step.do == 'activate' else 'is archived'}."


def _describe_next(step: Step, now: int) -> str:
    if step.due is None:
        return f"{step.kid} waits until every host has published it, which no service has said yet: is it running?"
    at = f"from {show_time(step.due)}" if step.due > now else "now"
    if step.do == "generate":
        return f"The next rotation may begin {at}, by `issuer keys rotate`."
    what = "may sign" if step.do == "activate" else "may leave the key set, its last token having expired,"
    return f"{step.kid} {what} {at}: run `issuer keys rotate` then."


# -- taking back ------------------------------------------------------------------------------------------------------


@keys.command()
@_places
@click.argument("kid", callback=_kid)
@click.option("--from", "since", required=True, metavar="TIME", help="Since when a thief may have used it.")
@click.option("--reason", required=True, metavar="TEXT", callback=_words, help="Why; it is in the history.")
def revoke(places: Places, kid: str, since: str, reason: str) -> None:
    """Take KID back for good: nothing signs with it, and no token of it is believed without a receipt from before TIME.

    Its file goes to keys/revoked/, and running services drop it within seconds.
    """
    custody = places.custody(reason)
    moment = read_time(since, "--from")
    if moment > custody.now:
        raise click.BadParameter("it lies in the future", param_hint="--from")
    revoked = custody.revoke(kid, moment)
    for path in revoked.paths:
        say(printable(str(path)))
    if len(revoked.failures) < 2:
        say(f"{kid} is revoked from {show_time(moment)} on.")
    for failure in revoked.failures:
        say(f"issuer: {printable(failure)}", err=True)
    if not revoked.has_active:
        say(_NO_KEY)
    sys.exit(Exit.LOCAL if revoked.failures else Exit.GOOD)
