"""A plugin of pytest: what a failed test prints. At most 60 lines: the failure, what the services logged, the command.

`logged` is called for each log that a service writes to. The plugin prints what was added to them during the test.
"""

import json
import shlex
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

FAILURE, OUTPUT, LOGS = 30, 6, 18  # lines
LONGEST = 240  # characters of a line
_sizes: dict[Path, int] = {}


def logged(log: Path) -> None:
    """Note the log of a service that a test starts."""
    _sizes.setdefault(log, 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Note how large each log is, so that a failure prints only what this test caused."""
    _sizes.update((log, log.stat().st_size if log.exists() else 0) for log in _sizes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shorten the report of a failure, and add the logs and the command that repeats it."""
    report = yield
    if report.failed:
        error = call.excinfo.exconly() if call.excinfo is not None else "failed"
        output = [line for _, text in report.sections for line in text.splitlines()]
        report.sections = []
        report.longrepr = "\n".join(
            [
                error.partition("\n")[0][:LONGEST],  # pytest's summary shows the first line
                *shortened(str(report.longrepr).splitlines(), FAILURE),
                *headed("printed", shortened(output, OUTPUT)),
                *headed("logged by services", shortened(list(_new_lines()), LOGS)),
                f"run it alone: .venv/bin/pytest {shlex.quote(item.nodeid)}",
            ]
        )
    return report


def shortened(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines and the last: of a failure these are the test and the error."""
    if len(lines) > most:
        first = most // 3
        lines = [*lines[:first], f"... {len(lines) - most + 1} lines ...", *lines[first + 1 - most :]]
    return [line[:LONGEST] for line in lines]


def headed(head: str, lines: Sequence[str]) -> list[str]:
    """Return the lines with a head, or nothing without lines."""
    return [f"-- {head}:", *lines] if lines else []


def _new_lines() -> Generator[str]:
    """Yield what the services logged during the test: errors last, because the end of a long list is printed."""
    texts = [log.read_bytes()[size:].decode("utf-8", "replace") for log, size in _sizes.items() if log.exists()]
    lines = [line for text in texts for line in text.splitlines()]
    yield from sorted(map(_readable, lines), key=lambda line: "exception" in line.lower())


def _readable(line: str) -> str:
    """Return a line of a log with only the end of its exception: the type, the message and the place."""
    try:
        event = json.loads(line)
        for error in event.get("exception", ()):
            frame = (error["frames"] or [{}])[-1]
            place = f"{frame.get('filename')}:{frame.get('lineno')}"
            event["exception"] = f"{error['exc_type']}: {error['exc_value']} ({place})"
        return json.dumps(event)
    except (ValueError, AttributeError, KeyError, TypeError):
        return line
