"""Calls of the JavaScript verifier's modules, many in one process: `ask.mjs` makes them in Node, and a browser may.

A test collects its calls, so that a thousand cost one start, and compares the answers with Python's own.
"""

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from issuer.errors import FormatError, InputError
from tests.support.shared import ROOT

VERIFIER = ROOT / "issuer/page/verify"
_HERE = Path(__file__).parent
# A command that makes calls: it takes the modules' folder and a file of JSON lines, and prints an answer a line.
Engine = Sequence[str]
NODE: Engine = ("node", "--no-warnings", str(_HERE / "ask.mjs"))


def firefox(folder: Path) -> Engine:
    """Return the engine of Debian's Firefox, with its profile in `folder`."""
    return _in_page(folder, "firefox-esr", "--headless", "--profile", str(folder))


def webkit(folder: Path) -> Engine:
    """Return Safari's engine: WebKitGTK in its own smallest browser, on a virtual display."""
    browser = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
    return _in_page(folder, "xvfb-run", "--auto-servernum", str(browser))


def _in_page(folder: Path, *command: str) -> Engine:
    homes = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return ["env", *(f"{name}={folder}" for name in homes), "node", str(_HERE / "ask-page.mjs"), *command]


class Failed(Struct, frozen=True):
    """A FormatError that a call threw; `name` is `Beyond` for a file that only `issuer verify` reads."""

    name: str
    code: str
    message: str
    pointer: str
    line: int
    column: int


SAID = ("code", "pointer")


def in_python(work: Callable[..., Any], *given: Any, said: Sequence[str] = SAID) -> Any:
    """Return the result of a call in Python; of a refusal what it said, with these members of `Failed`."""
    try:
        return work(*given)
    except (FormatError, InputError) as error:
        line = error.place.line if isinstance(error, InputError) else error.line
        known = {"code": error.code, "pointer": error.pointer, "message": error.detail, "line": line}
        return tuple(known[name] for name in said)


def in_javascript(answer: Any, said: Sequence[str] = SAID) -> Any:
    """Return the same of an answer of JavaScript."""
    return tuple(getattr(answer, name) for name in said) if isinstance(answer, Failed) else answer


class Line(Struct, frozen=True):
    """The value of an earlier call of the same run, as an argument."""

    number: int


class Calls:
    """Calls to make in one process. `add` returns the place of the answer in what `run` returns."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, module: str, call: str, *args: Any) -> Line:
        """Call an exported function (`leafHash`), a class (`new CheckedNotes`) or a method (`.check`, on the first)."""
        self._lines.append(json.dumps({"module": module, "call": call, "args": _written(args)}))
        return Line(len(self._lines) - 1)

    def run(self, engine: Engine = NODE) -> Sequence[Any]:
        """Return the answers, in the calls' order: values, `Failed` for a FormatError. Anything else thrown fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.write("\n".join(self._lines))
            file.flush()
            command = [*engine, str(VERIFIER), file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]
        answers = [json.loads(line) for line in done.stdout.split("\n") if line]
        assert len(answers) == len(self._lines)
        return [Failed(**said["error"]) if "error" in said else _read(said.get("value")) for said in answers]


def _written(value: Any) -> Any:
    match value:
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case Line():
            return {"$line": value.number}
        case dict():
            return {name: _written(part) for name, part in value.items()}
        case list() | tuple():
            return [_written(part) for part in value]
        case _:
            return value


def big(value: int) -> dict[str, str]:
    return {"$big": str(value)}


def mapping(pairs: dict[str, Any]) -> dict[str, Any]:
    return {"$map": [[name, _written(value)] for name, value in pairs.items()]}


def _read(value: Any) -> Any:
    """Read a value: a Float as a Python float, other whole numbers as int, a Map as a dict, undefined as None."""
    if isinstance(value, list):
        return [_read(part) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$bytes": str(text)}:
            return base64.b64decode(text)
        case {"$big": str(text)}:
            return int(text)
        case {"$float": number}:
            return float(number)
        case {"$map": list(pairs)}:
            return {name: _read(part) for name, part in pairs}
        case {"$set": list(parts)}:
            return set(parts)
        case {"$nothing": True}:
            return None
        case _:
            return {name: _read(part) for name, part in value.items()}
