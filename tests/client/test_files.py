"""Result files are written in one step, in folders that are made for them, and to the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from issuer.client.files import put_entry
from issuer.codes import Code
from issuer.errors import InputError
from tests.support.disk import disk_calls
from tests.support.make import file_for, submission

ENTRY = file_for(submission())


def test_a_file_is_made_with_its_folders_and_is_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "model" / ".eval_results" / "gsm8k.yaml"
    assert disk_calls(lambda: put_entry(path, ENTRY)) == ["folder"] * 2 + ["file", "rename", "folder"]
    assert path.read_text() == ENTRY


def test_a_file_that_is_no_text_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.yaml"
    path.write_bytes(b"# \xff\n")
    with pytest.raises(InputError) as refused:
        put_entry(path, ENTRY)
    assert (refused.value.code, refused.value.place.file) == (Code.FILE_UNREADABLE, str(path))
    assert path.read_bytes() == b"# \xff\n"
