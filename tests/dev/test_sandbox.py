"""What a throw-away issuer leaves behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from issuer.dev.sandbox import sandbox
from issuer.io import files


def test_the_folder_of_one_that_was_killed_goes_when_the_next_one_starts() -> None:
    killed, running, new = (Path(tempfile.mkdtemp(prefix="issuer-sandbox-")) for _ in range(3))
    (killed / "key").write_text("a private key")
    for old in (killed, running):
        os.utime(old, (0, 0))
    try:
        with files.folder_locked(running, wait_s=0), sandbox() as box:
            assert not killed.exists()
            assert running.exists(), "somebody's, who runs"
            assert new.exists(), "of one that is about to take its lock"
        assert not box.folder.exists()
    finally:
        for folder in (running, new):
            folder.rmdir()
