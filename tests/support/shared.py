"""Paths of the repository, our vectors, and the published vectors and real files beside it; and counts of examples."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

EXAMPLES = 100  # Hypothesis' default
ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
PUBLISHED = SHARED / "vectors"
VECTORS = ROOT / "tests" / "vectors"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data beside the repository")


def vectors(name: str) -> Any:
    return json.loads((VECTORS / name).read_bytes())


def hub_files(kind: str, folder: str) -> list[Path]:
    """Return files in the forms that live repositories have: ours, and the real ones beside the repository."""
    return [*sorted((VECTORS / "hub").glob(f"{kind}_*.yaml")), *sorted((SHARED / folder).glob("*.yaml"))]


def published(name: str) -> Any:
    """Read a file of published vectors; {} if it is missing, so the collection of parametrized tests works."""
    path = PUBLISHED / name
    return json.loads(path.read_bytes()) if path.is_file() else {}


def examples(count: int) -> settings:
    """Try this many examples in `make check`, and a quarter of them in `make test`."""
    return settings(max_examples=count * settings().max_examples // EXAMPLES)
