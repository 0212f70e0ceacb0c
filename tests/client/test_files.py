"""Result files: written in one step, durably, in folders that are made for them."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from issuer.client.files import demand_place, put_entry, rehearse_entry, shaped
from issuer.codes import Code
from issuer.errors import InputError
from issuer.formats import jcs
from issuer.results.entry import write_entry
from tests.support.disk import disk_calls
from tests.support.make import BENCHMARK, PATH, file_for, submission, token_for

ENTRY = file_for(submission())
BOTH = write_entry(submission().form, token_for(submission()), profile="both")


def test_a_file_is_made_with_its_folders_by_the_umask_and_is_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "model" / ".eval_results" / "gsm8k.yaml"
    before = os.umask(0o027)
    try:
        assert disk_calls(lambda: put_entry(path, ENTRY)) == ["folder"] * 2 + ["file", "rename", "folder"]
    finally:
        os.umask(before)
    assert path.read_text() == BOTH
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o750


def test_an_existing_entry_or_a_file_of_bytes_changes_nothing_unless_appended(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.yaml"
    assert [put_entry(path, ENTRY), put_entry(path, ENTRY)] == [True, False]
    assert path.read_text() == BOTH
    assert put_entry(path, ENTRY, append=True)
    assert path.read_text() == BOTH * 2
    path.write_bytes(b"# \xff\n")
    with pytest.raises(InputError) as refused:
        put_entry(path, ENTRY)
    assert (refused.value.code, refused.value.place.file) == (Code.FILE_UNREADABLE, str(path))
    assert path.read_bytes() == b"# \xff\n"


def test_jobs_that_write_one_file_at_once_lose_no_entry(tmp_path: Path) -> None:
    """As the jobs of a matrix on one machine do; the lock leaves nothing beside the file."""
    path = tmp_path / ".eval_results" / "gsm8k.yaml"
    entries = [ENTRY.replace("value: 20.9", f"value: {number}.5") for number in range(24)]
    with ThreadPoolExecutor(8) as jobs:  # each opens the folder for itself, as a process would
        assert all(jobs.map(put_entry, [path] * len(entries), entries))
    written = "".join(shaped(entry, None, None) for entry in entries)
    assert sorted(path.read_text().split("- dataset:")) == sorted(written.split("- dataset:"))
    assert os.listdir(path.parent) == [path.name]


def test_no_link_of_a_checkout_is_read_or_written_through(tmp_path: Path) -> None:
    checkout, outside = tmp_path / "checkout", tmp_path / "outside"
    for folder in (checkout, outside):
        folder.mkdir()
    (checkout / "link").symlink_to(outside)
    (checkout / "file.yaml").symlink_to(tmp_path / "other.yaml")
    (tmp_path / "other.yaml").write_text(ENTRY)
    for place in ("link/gsm8k.yaml", "link/new/gsm8k.yaml", "file.yaml"):
        for append in (False, True):
            with pytest.raises((OSError, InputError), match="symbolic link"):
                put_entry(checkout / place, ENTRY, append=append)
    assert not list(outside.iterdir())
    assert (tmp_path / "other.yaml").read_text() == ENTRY


SUBMISSION = submission()


def test_an_existing_entry_keeps_its_form_unless_another_is_given(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.yaml"
    renewed = write_entry(SUBMISSION.form, "x.y.z")
    path.write_text(write_entry(SUBMISSION.form, profile="both"))  # as `results build` writes it, without a token
    put_entry(path, ENTRY)
    both = path.read_text()
    assert both == BOTH
    assert not put_entry(path, ENTRY)
    assert put_entry(path, renewed)
    assert path.read_text() == both.replace(token_for(SUBMISSION), "x.y.z")
    assert put_entry(path, renewed, profile="target")
    assert not put_entry(path, renewed)
    assert path.read_text() == renewed
    assert put_entry(path, renewed, primary="accuracy")
    assert not put_entry(path, renewed, profile="both")


def test_no_token_is_spent_on_an_entry_whose_value_is_another(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.yaml"
    put_entry(path, ENTRY, profile="both", primary="accuracy")
    good = path.read_text()
    rehearse_entry(path, SUBMISSION, primary=None)
    path.write_text(good.replace("\n  value: ", "\n  value: 9"))
    changed = path.read_text()
    assert changed != good
    with pytest.raises(InputError, match="would not verify with any token"):
        rehearse_entry(path, SUBMISSION, primary=None)
    with pytest.raises(InputError, match="would not verify with any token"):
        put_entry(path, write_entry(SUBMISSION.form, "x.y.z"))
    assert path.read_text() == changed
    put_entry(path, ENTRY, profile="both", primary="accuracy")  # the value is written anew
    assert path.read_text() == good


def test_a_rehearsal_finds_every_entry_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "gsm8k.yaml"
    rehearse_entry(path, SUBMISSION, profile="both", primary="accuracy")
    assert not path.exists()
    two = submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": "f1", "value": 2}])
    for said, primary in ((SUBMISSION, "f1"), (two, None)):
        with pytest.raises(InputError, match="primary metric"):
            rehearse_entry(None, said, profile="both", primary=primary)
    assert [rehearse_entry(path, said, primary=None) for said in (SUBMISSION, two)] == [True, False]
    path.write_bytes(b"[" + jcs.canonical(SUBMISSION.form) + b", {dataset: {id: a/b}}]\n")
    rehearse_entry(path, SUBMISSION, primary=None)
    with pytest.raises(InputError, match="cannot be edited"):
        rehearse_entry(path, SUBMISSION, profile="target", primary=None)
    with pytest.raises(InputError, match="cannot be edited"):
        rehearse_entry(path, SUBMISSION, append=True, primary=None)
    path.write_text("- dataset: {id: a/b}\n" * 999)
    rehearse_entry(path, SUBMISSION, primary=None)
    path.write_text("- dataset: {id: a/b}\n" * 1000)
    with pytest.raises(InputError, match="cannot be edited"):
        rehearse_entry(path, SUBMISSION, primary=None)


def test_the_place_is_the_benchmark_s_path_and_may_have_a_result_file_but_no_link(tmp_path: Path) -> None:
    path = tmp_path / PATH
    demand_place(path, BENCHMARK)
    demand_place(tmp_path / "anywhere.yaml", 7)  # a bad name is refused elsewhere
    for wrong in (tmp_path / "other" / Path(PATH).name, path.with_name("other.yaml")):
        with pytest.raises(InputError, match="use this path") as refused:
            demand_place(wrong, BENCHMARK)
        assert (refused.value.code, refused.value.place.file) == (Code.RESULT_FILE_NAME, str(wrong))
    path.parent.mkdir()
    path.write_text("a: b\n")
    with pytest.raises(InputError) as refused:
        demand_place(path, BENCHMARK)
    assert refused.value.place.file == str(path)
    path.write_text(ENTRY)
    demand_place(path, BENCHMARK)
    path.rename(tmp_path / "other.yaml")
    path.symlink_to(tmp_path / "other.yaml")
    with pytest.raises(OSError, match="symbolic link"):
        demand_place(path, BENCHMARK)
    path.unlink()
    path.parent.rename(tmp_path / "elsewhere")
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        demand_place(path, BENCHMARK)
