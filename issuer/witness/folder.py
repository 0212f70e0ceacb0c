"""What belongs to one witness: a folder with its key and its state, and the file of the logs that it witnesses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from issuer import files, keyfile
from issuer.codes import Code
from issuer.errors import InputError, Place, SetupError
from issuer.tlog.note import Cosigner
from issuer.tlog.witness_policy import parse_policy
from issuer.witness.state import State, create
from issuer.witness.witness import Logs, Witness

KEY_FILE = "witness.pem"
STATE_FILE = "witness.sqlite"
_MAX_LOGS_FILE_BYTES = 1024 * 1024


def init(folder: Path, name: str) -> str:
    """Make a witness: its folder, its key, its empty state. Returns its vkey, which it has for life.

    Raises SetupError where there is one already: whoever loses a witness's state has to give up its key, too.
    """
    key = keyfile.generate()
    vkey = Cosigner(name, key).verifier.to_text()
    try:
        files.make_folder(folder)
        create(folder / STATE_FILE, name)
        keyfile.write(folder / KEY_FILE, key)
    except FileExistsError as error:
        detail = f"{error.filename} is there: a witness is made once. Give another --dir for another one"
        raise SetupError(Code.WITNESS_STATE, detail) from None
    return vkey


def open_witness(folder: Path, logs: Path, clock: Callable[[], int]) -> tuple[Witness, Cosigner]:
    """Open the witness in a folder for the logs in a policy file. Raises SetupError and InputError."""
    witnessed = read_logs(logs)
    state = State(folder / STATE_FILE)
    cosigner = Cosigner(state.name, keyfile.read(folder / KEY_FILE))
    return Witness(cosigner, witnessed, state, clock), cosigner


def read_logs(path: Path) -> Logs:
    """Read the `log` lines of a policy file (c2sp.org/tlog-policy), by origin; the rest of it is for others.

    Several keys of one origin are one log, whose key is being replaced. Raises InputError.
    """
    policy = parse_policy(files.read(path, _MAX_LOGS_FILE_BYTES), str(path))
    if not policy.logs:
        raise InputError(Code.LOG_POLICY, "no log is named: add a line `log VKEY`", Place(str(path)))
    keys = [log.verifier for log in policy.logs]
    return {key.name: tuple(own for own in keys if own.name == key.name) for key in keys}
