"""The numbers of the page for relying parties. Its examples are a story (tests/test_stories.py)."""

from pathlib import Path

import issuer.relying
from issuer.relying.documents import LONGEST_AGE_S, MAX_CACHE_BYTES, MAX_DOCUMENT_BYTES

PAGE = (Path(issuer.relying.__file__).parent / "README.md").read_text("utf-8")


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"{MAX_CACHE_BYTES // 2**20} MiB" in PAGE
    assert f"{MAX_DOCUMENT_BYTES // 2**20} MiB" in PAGE
    assert LONGEST_AGE_S == 86_400
