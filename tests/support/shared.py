"""Where the repository is, where the real files and published vectors beside it are, and how many examples are tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

EXAMPLES = 100  # Hypothesis' default
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
VECTORS = SHARED / "vectors"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the repository")


def vectors(name: str) -> Any:
    """Read a file of vectors; nothing where it is missing, so that tests parametrized by it are collected."""
    path = VECTORS / name
    return json.loads(path.read_bytes()) if path.is_file() else []


def examples(count: int) -> settings:
    """Try this many examples in `make check`, and a quarter of them in `make test`."""
    return settings(max_examples=count * settings().max_examples // EXAMPLES)
