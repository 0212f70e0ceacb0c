"""What holds for all tests.

No deadlines for examples: the machine's speed says nothing about the code. Every run tries the same ones. A test whose
command is missing says so.
"""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import side_by_side
from tests.support.shared import EXAMPLES
from tests.support.tools import missing, skipped

pytest_plugins = ["tests.support.failures"]
settings.register_profile(
    "make check", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("make test", settings.get_profile("make check"), max_examples=EXAMPLES // 4)
settings.load_profile("make check")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-tool", action="store_true", help="fail, not skip, where a command of the system is missing"
    )
    parser.addoption(
        "--skips", type=Path, help="write one line to this file: how many tests were skipped, and for which commands"
    )
    parser.addoption(
        "--processes", type=int, default=0, help="run the files of tests side by side, in this many processes"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try a quarter of the examples where the long tests are left out; before any test is imported."""
    if config.option.markexpr == "not long":
        settings.load_profile("make test")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage only when all tests are there, and never again in them: it is a third of collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make attack` runs. Begin with the service: its tests wait, and others fill that time."""
    if config.option.markexpr != "attack":
        items[:] = [item for item in items if item.get_closest_marker("attack") is None]
    items.sort(key=lambda item: "service" not in item.path.parts)


def pytest_runtestloop(session: pytest.Session) -> object:
    """Run the tests side by side, where that is asked for, and all files could be collected."""
    option = session.config.option
    if not option.processes or option.collectonly or session.testsfailed:
        return None
    side_by_side.run(session, option.processes)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the line about skipped tests, which `make test` prints last."""
    if config.option.skips:
        reports = terminalreporter.stats.get("skipped", [])
        config.option.skips.write_text(skipped(report.longrepr[2] for report in reports) + "\n", "utf-8")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose command is missing, or fail where every command has to be there."""
    commands = {command for mark in item.iter_markers("needs_tool") for command in mark.args}
    if absent := missing(*sorted(commands)):
        (pytest.fail if item.config.getoption("every_tool") else pytest.skip)(f"needs {absent}")
