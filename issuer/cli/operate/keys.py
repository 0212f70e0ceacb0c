"""`issuer keys`: make, list, publish, rotate and revoke signing keys, by the library service/signing/commands.py.

The commands never print a private key.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache, wraps
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec import Struct

from issuer.cli.exits import Exit
from issuer.cli.operate.operator import home_of_data, read_passphrase, settings_or, who
from issuer.cli.options import A_FILE, config_option, json_option, read_time
from issuer.cli.render import render_table
from issuer.cli.terminal import printable, say, say_document
from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats.times import show_span, show_time
from issuer.service.settings.model import Settings
from issuer.service.signing.bounds import FEW_KEYS_LEFT, HISTORY_TURN_S, MAX_SIGNED_KEYS, PUBLISHED_S
from issuer.service.signing.commands import Custody, Made, Target
from issuer.service.signing.history import KeyHistory
from issuer.service.signing.inventory import Inventory
from issuer.service.signing.key_files import OTHERS, KeyFile, find_file, find_files
from issuer.service.signing.keyring import Opener
from issuer.service.signing.lifecycle import STATES, KeyPlan, KeyStep, Lives, Words, jwk_of, may_sign_from

_DAY_S = 86_400
_SUFFIX = re.compile(r"\.(pem|yaml)\Z")
_SEEN_EARLY = (
    f"For up to {show_span(PUBLISHED_S)}, relying parties may have key sets without this key. They fetch the set once "
    "more. A relying party that cannot fetch it answers undecided, not failed. Relying parties trust the old key until "
    "`issuer keys revoke`."
)
_FEW = f"more keys may sign: relying parties read an archive of at most {MAX_SIGNED_KEYS}. Rotate less often."
_NO_KEY = (
    "No key is active, so the service issues no tokens. `issuer keys rotate --compromised` activates the next key at "
    "once, and makes one if necessary."
)


@click.group()
def keys() -> None:
    """Make, rotate, list, publish and revoke signing keys."""


def _place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that locate keys, history and passphrase. The command gets them as its first argument."""

    @config_option
    @click.option(
        "--dir", "folder", type=A_FILE, envvar="ISSUER_KEYS_FOLDER", help="The keys, instead of the settings'."
    )
    @click.option("--data", type=A_FILE, envvar="ISSUER_DATA", help="Their history, instead of the settings'.")
    @click.option("--passphrase-file", type=A_FILE, envvar="ISSUER_KEYS_PASSPHRASE_FILE", help="The keys' passphrase.")
    @wraps(command)
    def run(
        config: Path | None, folder: Path | None, data: Path | None, passphrase_file: Path | None, **rest: Any
    ) -> None:
        command(Places(config, folder, data, passphrase_file), **rest)

    return run


class Places(Struct, frozen=True):
    """The places of keys, history and passphrase that the options give. The settings give the others."""

    config: Path | None
    folder: Path | None
    data: Path | None
    passphrase_file: Path | None

    def custody(self, why: str = "") -> Custody:
        """Return the keys with their history, for a command with the reason `why`. Raises SetupError and InputError."""
        settings = self._settings()
        folder, data = self.folder, self.data
        passphrase = self.passphrase
        if settings is not None:
            folder, data = folder or settings.keys_folder, data or Path(settings.data)
            passphrase = passphrase if self.passphrase_file else settings.passphrase
        assert folder is not None  # noqa: S101 (for the type checker)
        assert data is not None  # noqa: S101
        history = KeyHistory(home_of_data(settings, data), HISTORY_TURN_S)
        return Custody(folder, history, cache(passphrase), int(time.time()), who(), why)

    def demand_history(self) -> None:
        """Raise SetupError if the service's history is missing: a new one would allow any key to sign."""
        settings = self._settings()
        if settings is None or (self.folder or settings.keys_folder) != settings.keys_folder:
            return
        data = Path(settings.data)
        if (self.data or data) == data:
            with closing(home_of_data(settings, data)) as home:
                Inventory(settings, home).demand_history()

    def _settings(self) -> Settings | None:
        """Return the service's settings, or None if they are missing and the options name every place."""
        try:
            return settings_or("--dir, the keys, and --data, their history", self.config)
        except SetupError:
            if self.config is None and self.folder is not None and self.data is not None:
                return None
            raise

    def passphrase(self) -> bytes | None:
        """Read the passphrase, if there is one. Raises InputError."""
        return None if self.passphrase_file is None else read_passphrase(self.passphrase_file)


def _words(_: click.Context, __: click.Parameter, text: str) -> str:
    try:
        text.encode()
        return msgspec.convert(text, Words)
    except (UnicodeEncodeError, msgspec.ValidationError):
        raise click.BadParameter("give at most 512 characters of UTF-8") from None


def _kid(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Return the kid of an argument that is a kid or a key's file name. A bare kid may begin with `-`, like options."""
    return text and _SUFFIX.sub("", Path(text).name).removeprefix("key-")


_reason = click.option("--reason", default="", metavar="TEXT", callback=_words, help="The reason, for the history.")


@keys.command("generate")
@_place_options
@_reason
@click.option("--state", type=click.Choice(get_args(Made)), help="Default: active for the first key, else next.")
def generate_key(places: Places, state: Made | None, reason: str) -> None:
    """Make an Ed25519 key, which only its owner can read, and print its file.

    The first key of an issuer signs at once. Every other key is published first, and signs after `issuer keys rotate`.
    """
    places.demand_history()
    path = places.custody(reason).generate(state)
    say(printable(str(path)))
    say(_describe_new(path), err=True)


def _describe_new(path: Path) -> str:
    if path.parent.name == "active":
        return "It signs at once, because no relying party has a key set yet."
    return f"It may sign {show_span(PUBLISHED_S)} after every host has published it. Run `issuer keys rotate` then."


@keys.command("list")
@_place_options
@json_option
def list_keys(places: Places, as_json: bool) -> None:
    """List every key, also keys that cannot be opened. Exit code 6 if there is such a key."""
    custody, lives, failures = places.custody(), None, list[str]()
    try:
        found, lives = custody.look()
    except (SetupError, OSError) as error:  # without a history, list the files
        found, failures = find_files(custody.folder, custody.passphrase, custody.opener, {}), [_why(error)]
    rows = [*(_Row.of(file, lives) for file in found), *_rows_without_file(found, lives or {})]
    if as_json:
        say_document({"version": 1, "keys": rows})
    elif rows:
        table = [row.cells(custody.now) for row in rows]
        shown = len(_COLUMNS) if any(cells[-1] for cells in table) else len(_COLUMNS) - 1
        say(render_table([cells[:shown] for cells in (_COLUMNS, *table)]))
    else:
        say(f"{custody.folder} contains no keys; make one with `issuer keys generate`", err=True)
    failures += [file.why for file in found if file.why]
    for failure in failures:
        say(f"issuer: {printable(failure)}", err=True)
    sys.exit(Exit.LOCAL if failures else Exit.GOOD)


def _why(error: SetupError | OSError) -> str:
    return error.detail if isinstance(error, SetupError) else f"{error.filename}: {error.strerror}"


class _Row(Struct, frozen=True):
    """A key's JSON members. Times are Unix seconds; null means unknown or never."""

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


_COLUMNS = ["KID", "STATE", "AGE", "ENCRYPTED", "MAY SIGN FROM", "FILE"]  # FILE: empty if the file's name has the kid


def _rows_without_file(found: Iterable[KeyFile], lives: Lives) -> list[_Row]:
    """Return rows for the keys that only the history has."""
    here = {file.kid for file in found}
    return [_Row(life.kid, life.what, life.seen) for life in lives.values() if life.kid not in here]


def _age(seconds: int) -> str:
    for unit_s, unit in ((_DAY_S, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {unit}"
    return "0 min"


@keys.command()
@_place_options
@click.option("--of", "kind", type=A_FILE, default=Path("signing"), show_default=True,
              metavar="WHOSE", help="signing, receipt, revocation, or the file of one key.")  # fmt: skip
def public(places: Places, kind: Path) -> None:
    """Print the public keys as a JWK set, for a trust file."""
    kinds = {"signing": STATES, **{name: (name,) for name in OTHERS}}
    found = (
        [file for file in places.custody().look()[0] if file.state in kinds[str(kind)]]
        if str(kind) in kinds
        else [find_file(kind, "", places.passphrase, Opener(), {})]
    )
    if not found:
        raise SetupError(Code.KEY_UNUSABLE, f"there is no {kind} key")
    for file in found:
        if not file.x:
            raise SetupError(Code.KEY_UNUSABLE, file.why or f"{file.path} is encrypted: give --passphrase-file")
    say_document({"keys": [jwk_of(file.x) for file in found]})


@keys.command()
@_place_options
@_reason
@click.argument("kid", required=False, callback=_kid)
@click.option("--to", type=click.Choice(get_args(Target)), help="Bring KID into this state, if that is allowed.")
@click.option("--plan", "as_plan", is_flag=True, help="Print when each step is due, and change nothing.")
@click.option("--compromised", is_flag=True, help="Activate another key at once: the active key may be stolen.")
def rotate(places: Places, kid: str | None, to: Target | None, as_plan: bool, compromised: bool, reason: str) -> None:
    """Do the next step of a rotation if it is due, and say when the following step is due. Safe to run at any time.

    The command does the first of these steps that is due: archive a key whose last token has expired; activate the next
    key and retire the old one, if every relying party can know the next key; make the next key. KID is a kid, or the
    name of its file.
    """
    if bool(kid) != bool(to):
        raise click.UsageError("KID and --to go together: `issuer keys rotate KID --to STATE`")
    if as_plan and (kid or compromised):
        raise click.UsageError("--plan shows all keys: give it alone")
    if as_plan:
        say(_render_plan(places.custody().plan()))
        return
    places.demand_history()
    custody = places.custody(reason)
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


def _render_plan(plans: Iterable[KeyPlan]) -> str:
    head = ["KID", "STATE", "PUBLISHED", "SIGNS FROM", "RETIRES", "LAST TOKEN EXPIRES"]
    rows = [
        [one.kid or "-", one.state, *map(_time, (one.published, one.may_sign_from, one.retires, one.leaves))]
        for one in plans
    ]
    return f"{render_table([head, *rows])}\nA key leaves the key set after its last token has expired."


def _time(moment: int | None) -> str:
    return "-" if moment is None else "at once" if moment == 0 else show_time(moment)


def _describe_done(step: KeyStep | None, made: Path | None, *, compromised: bool) -> str:
    if step is None:
        return "No step is due."
    if made is not None:
        return printable(str(made)) if compromised else f"{printable(str(made))}\n{_describe_new(made)}"
    return f"{step.kid} {'signs from now on' if step.do == 'activate' else 'is archived'}."


def _describe_next(step: KeyStep, now: int) -> str:
    if step.due is None:
        return f"{step.kid} waits until every host has published it. No service has confirmed that: is one running?"
    at = f"from {show_time(step.due)}" if step.due > now else "now"
    if step.do == "generate":
        return f"The next rotation may begin {at}, by `issuer keys rotate`."
    what = "may sign" if step.do == "activate" else "may leave the key set, its last token having expired,"
    return f"{step.kid} {what} {at}: run `issuer keys rotate` then."


@keys.command()
@_place_options
@click.argument("kid", callback=_kid)
@click.option("--from", "since", required=True, metavar="TIME", help="The earliest time at which a thief may have it.")
@click.option("--reason", required=True, metavar="TEXT", callback=_words, help="The reason, for the history.")
def revoke(places: Places, kid: str, since: str, reason: str) -> None:
    """Revoke KID for ever: it signs no more, and relying parties refuse its tokens without a receipt from before TIME.

    The command moves its file to keys/revoked/, and running services drop the key within seconds.
    """
    custody = places.custody(reason)
    moment = read_time(since, "--from")
    if moment > custody.now:
        raise click.BadParameter("the time is in the future", param_hint="--from")
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
