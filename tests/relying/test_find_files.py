"""The search in a folder of other people's repositories: order, links, loops, and other files than plain ones."""

import os
from pathlib import Path

import pytest

from issuer.io.files import A_LINK
from issuer.relying.bulk import walk


def place(root: Path, name: str, raw: bytes = b"[]\n") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def names(root: Path) -> list[str]:
    return [found.file.removeprefix(f"{root}/") for found in walk(root)]


def faults(root: Path) -> dict[str, str]:
    return {found.file.removeprefix(f"{root}/"): found.fault for found in walk(root) if found.fault}


def test_result_files_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    wanted = [f"{name}.yaml" for name in (
        "a/z/.eval_results/b", "b/a/.eval_results/a", "b/a/.eval_results/b", "b/c/.eval_results/a",
    )]  # fmt: skip
    for name in reversed(wanted):
        place(tmp_path, name)
    for other in ("README.md", "a/x.yaml", "a/z/eval.yaml", "a/z/.eval_results/b.yml", "a/z/.eval_results/sub/c.yaml",
                  "a/z/deep/.eval_results/c.yaml", ".eval_results/top.yaml", "a/plain"):  # fmt: skip
        place(tmp_path, other)
    assert names(tmp_path) == wanted
    assert [found.repo for found in walk(tmp_path)] == ["a/z", "b/a", "b/a", "b/c"]
    fractions = [found.fraction for found in walk(tmp_path)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1)


def test_a_file_that_vanishes_hides_none_of_the_others(tmp_path: Path) -> None:
    for name in "abc":
        place(tmp_path, f"o/n/.eval_results/{name}.yaml")
    walking = walk(tmp_path)
    next(walking)
    (tmp_path / "o/n/.eval_results/b.yaml").unlink()
    assert [Path(found.file).name for found in walking] == ["b.yaml", "c.yaml"], "reading it says that it is gone"


def test_links_to_folders_are_findings_and_never_followed(tmp_path: Path) -> None:
    place(tmp_path, "a/m/.eval_results/r.yaml")
    (tmp_path / "self").symlink_to(".")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "n").mkdir()
    (tmp_path / "a" / "n" / ".eval_results").symlink_to("../m/.eval_results")
    (tmp_path / "README.md").symlink_to(place(tmp_path, "a/notes.md"))
    assert faults(tmp_path) == dict.fromkeys(("self", "loop", "a/up", "a/n/.eval_results"), A_LINK)
    assert [name for name in names(tmp_path) if name.endswith(".yaml")] == ["a/m/.eval_results/r.yaml"]


def test_a_folder_that_cannot_be_opened_is_a_finding(tmp_path: Path) -> None:
    place(tmp_path, "a/m/.eval_results", b"a file")
    assert faults(tmp_path) == {"a/m/.eval_results": "Not a directory"}
    assert faults(tmp_path / "none") == {str(tmp_path / "none"): "No such file or directory"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_without_permission_is_a_finding(tmp_path: Path) -> None:
    inner = place(tmp_path, "a/m/.eval_results/r.yaml").parent
    inner.chmod(0)
    try:
        assert faults(tmp_path) == {"a/m/.eval_results": "Permission denied"}
    finally:
        inner.chmod(0o700)


def test_a_name_that_is_not_utf_8_is_a_finding_that_can_be_printed(tmp_path: Path) -> None:
    place(tmp_path, "a/m/.eval_results/r.yaml")
    os.rename(tmp_path / "a/m/.eval_results/r.yaml", os.fsencode(tmp_path / "a/m/.eval_results") + b"/\xff.yaml")
    assert faults(tmp_path) == {"a/m/.eval_results/\\udcff.yaml": "its name is not UTF-8"}
    os.rename(tmp_path / "a", os.fsencode(tmp_path) + b"/\xfe")
    (found,) = walk(tmp_path)
    found.file.encode()
    found.repo.encode()
