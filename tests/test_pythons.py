"""The other Pythons of pyproject.toml, if their interpreters are installed: the requirements of dev.lock install, and the
tests that read, judge, sign and serve pass."""

import os
import platform
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.frameworks import interpreter
from tests.support.shared import ROOT

PART = (
    "tests/formats", "tests/results", "tests/identity", "tests/policy", "tests/issuance", "tests/tlog", "tests/verify",
    "tests/service/http/test_tokens.py", "tests/service/log/database/test_store.py", "tests/test_api.py", "tests/test_stored.py",
)  # fmt: skip
_PREFIX = "Programming Language :: Python :: 3."


def others() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if each.startswith(_PREFIX)]
    return [version for version in named if not platform.python_version().startswith(f"{version}.")]


def test_every_python_from_the_oldest_on_is_named() -> None:
    assert {*others(), ".".join(platform.python_version_tuple()[:2])} >= {"3.11", "3.12", "3.13"}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", others())
def test_the_suite_passes_on(version: str, tmp_path: Path) -> None:
    found = interpreter(version)
    if not found:
        pytest.skip(f"no python{version} is here")
    subprocess.run([found, "-m", "venv", str(tmp_path)], check=True)
    python = [str(tmp_path / "bin" / "python"), "-m"]
    install = [*python, "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--require-hashes", "-r", "dev.lock"], cwd=ROOT, check=True)
    subprocess.run([*install, "--no-build-isolation", "-e", "."], cwd=ROOT, check=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_"))}
    done = subprocess.run(
        [*python, "pytest", "-q", "--processes", "2", "-m", "not long", "-p", "no:cacheprovider", *PART],
        cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
