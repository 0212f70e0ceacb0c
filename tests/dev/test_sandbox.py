"""The folders of throw-away issuers."""

import os
import tempfile
from pathlib import Path

from issuer.dev.sandbox import sandbox
from issuer.io import files


def test_the_next_sandbox_removes_the_folder_of_a_killed_one() -> None:
    killed, running, new = (Path(tempfile.mkdtemp(prefix="issuer-sandbox-")) for _ in range(3))
    (killed / "key").write_text("a private key")
    for old in (killed, running):
        os.utime(old, (0, 0))
    try:
        with files.folder_locked(running, wait_s=0), sandbox() as box:
            assert not killed.exists()
            assert running.exists(), "its lock is held"
            assert new.exists(), "its issuer is about to take the lock"
        assert not box.folder.exists()
    finally:
        for folder in (running, new):
            folder.rmdir()
