"""deploy/logrotate/issuer, by the real logrotate, under an audit that goes on."""

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from issuer.service.audit.sink import FileAudit
from tests.support.command import issuer
from tests.support.decisions import decision
from tests.support.shared import ROOT
from tests.support.waiting import eventually

SHOWN = (ROOT / "deploy" / "logrotate" / "issuer").read_text("utf-8")


def rotate(folder: Path) -> None:
    text = SHOWN.replace("/var/lib/issuer/data", str(folder / "data")).replace("    su issuer issuer\n", "")
    assert "/var/lib" not in text
    (folder / "logrotate.conf").write_text(text)
    (folder / "logrotate.conf").chmod(0o644)
    command: list[str | Path] = ["logrotate", "--force", "--state", folder / "state", folder / "logrotate.conf"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    )
    assert done.returncode == 0, done.stderr


async def record(audit: FileAudit, numbers: range) -> None:
    for number in numbers:
        await audit.record(decision(number))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="needs logrotate")
def test_the_chain_continues_over_rotations(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    audit = FileAudit(data / "audit.jsonl")
    with capture_logs() as logged:
        for day in range(3):
            asyncio.run(record(audit, range(day * 20, day * 20 + 20)))
            rotate(tmp_path)
            rotated = int(time.time())
            eventually(lambda: time.time() >= rotated + 1)  # noqa: B023 (logrotate puts the second into the file's name)
        asyncio.run(record(audit, range(60, 67)))
        audit.close()
    heads = tmp_path / "service.log"
    heads.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in logged))
    files = sorted(map(str, data.iterdir()))
    assert len(files) == 4
    assert sum(name.endswith(".gz") for name in files) == 2, "the newest rotated file is compressed a day later"
    assert all(Path(name).stat().st_mode & 0o077 == 0 for name in files)
    good = issuer("audit", "verify", *files, "--heads", str(heads))
    assert (good.returncode, "good: 67 events of 1 workers" in good.stdout) == (0, True), good
    lacking = issuer("audit", "verify", *files[:2], *files[3:], "--heads", str(heads))
    assert lacking.returncode == 1
