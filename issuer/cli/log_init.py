"""`issuer log init`: begin a log. The service itself never does.

Exit codes (contract section 6): 0 done, 3 the settings file is malformed, 6 a log is there already, its origin was used
before, or a file cannot be written.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer import files, keyfile
from issuer.cli.log_settings import config_option, log_of
from issuer.cli.terminal import printable, say

if TYPE_CHECKING:
    from issuer.service.log.setup import LogSettings


@click.command("init")
@config_option
def init_log(config: Path | None) -> None:
    """Begin the log that the settings name: its key, the empty tree, and its records. Once.

    Without `log.origin` it makes one up that was never used, after the issuer's URL. It prints what to put into the
    settings, and the line by which witness policies name the log. Nothing is replaced: a key that is there is used.
    """
    from issuer.service.log.accept import shown_now
    from issuer.service.log.setup import init, read_seal
    from issuer.service.read_settings import read_settings
    from issuer.service.settings import changed

    settings = read_settings(config)
    origin = settings.log.origin or _origin_for(settings.url, int(time.time()))
    log = log_of(changed(settings, log_origin=origin))
    made = _make_key(log)
    try:
        init(log, () if made else shown_now(log, read_seal(log)))  # nobody knows what a new key has signed
    except BaseException:  # without a log the key is nobody's, and the next one finds no key in its way
        if made:
            Path(log.key_file).unlink()
        raise
    say(_begun(log, made=made))
    say(_LINES.format(origin=printable(origin), vkey=printable(read_seal(log).vkey)))


def _origin_for(url: str, now: int) -> str:
    """Return an origin line that was never used: the issuer's URL without its scheme, the day, and a random number."""
    day = datetime.fromtimestamp(now, UTC).date()
    return f"{url.partition('://')[2]}/log/{day}-{secrets.token_hex(2)}"


def _make_key(log: LogSettings) -> bool:
    """Make the log's key, unless there is one; say whether it was made. Raises SetupError and OSError."""
    path = Path(log.key_file)
    files.make_folder(path.parent, follow=False, shared=True)
    try:
        keyfile.write(path, keyfile.generate(), log.passphrase)
    except FileExistsError:
        return False
    return True


def _begun(log: LogSettings, *, made: bool) -> str:
    from issuer.service.log.engines import database_at

    key = f"{'made' if made else 'uses'}   {log.key_file}"
    return printable(
        f"begun  {log.origin}\n{key}\nempty  {database_at(log.database).place}\nrecord {log.records}", "\n"
    )


_LINES = """
For the settings file:

log:
  origin: "{origin}"

For witness policies: those of relying parties, of monitors and of witnesses:

log {vkey}"""
