"""Backs up a running service as a timer does: deploy/backup.sh, with our command on the path; for tests."""

import os
import subprocess
from pathlib import Path

from tests.support.command import install_issuer
from tests.support.running import Running
from tests.support.shared import ROOT

BACKUP = ROOT / "deploy" / "backup.sh"


def backup(service: Running, target: Path, path: Path) -> None:
    """Copy what the service must not lose to `target`; in `path` our command is put."""
    starter = install_issuer(path)
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    copy = ["sh", str(BACKUP), service.settings.data, str(target)]
    done = subprocess.run(copy, env=environ, pass_fds=[starter], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
