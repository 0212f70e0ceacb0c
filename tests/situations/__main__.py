"""Write the expected texts again: `python -m tests.situations [AREA...]`. Then read the difference."""

import sys
import tempfile
from pathlib import Path

from tests.situations.table import AREAS
from tests.situations.texts import describe, write
from tests.situations.world import meet, world

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, world(Path(name)) as shared:
        for area in sys.argv[1:] or AREAS:
            write(area, {each.title: describe(each, meet(each, shared)) for each in AREAS[area]})
