"""The memory that workers share: one copy of the loaded policies, close together."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.policies import ISSUER_URL, POLICY, changed, write

# In its own process: other tests would leave holes in the heap.
MEASURED = """
import sys
from pathlib import Path
from issuer.policy.authoring.load import PolicySource
from issuer.service.policies.watcher import Follower
from issuer.service.process.server import settle

def anonymous_kb():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))

folder = Path(sys.argv[1])
before = anonymous_kb()
loaded = Follower(PolicySource(folder, sys.argv[2]), folder.parent / "kept")
after = anonymous_kb()
settle()
print(after - before, anonymous_kb() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_the_memory_of_reading_policies_is_freed_before_workers_are_forked(tmp_path: Path) -> None:
    count = 500
    texts = (changed(POLICY, "integration: inspect-ai", f"integration: name-{number}") for number in range(count))
    many = {f"name_{number}": changed(text, '"7"', f'"{number}"') for number, text in enumerate(texts)}
    (tmp_path / "policies").mkdir()
    folder = write(tmp_path / "policies", **many)
    done = subprocess.run([sys.executable, "-c", MEASURED, str(folder), ISSUER_URL], capture_output=True, check=True)
    read_kb, kept_kb = (int(word) / count for word in done.stdout.split())
    assert kept_kb < read_kb - 1.5, "the process frees the text of each file, and the bytes that its digest covers"
    assert kept_kb < 7, "an integration, with the state of its file"
