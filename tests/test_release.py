"""A release has all that git holds, is the same bytes each time, and installs without a checkout."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.dist import Differs, commit_of, compare, release
from release.sbom import read_lock, write_sbom
from tests.support.shared import ROOT

# Two builds, an environment and a demo: minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)
LOCK = (ROOT / "run.lock").read_text("utf-8")
COMMIT, WHEEL, TIME = "ab" * 20, "cd" * 32, 1_795_000_000


@cache
def bill() -> bytes:
    return write_sbom(LOCK, "1.2.3", COMMIT, TIME, WHEEL)


def test_the_bill_lists_every_requirement_of_run_lock_with_its_hashes() -> None:
    listed = {one["name"]: one for one in json.loads(bill())["components"]}
    locked = {one.name: one for one in read_lock(LOCK)}
    assert listed.keys() == locked.keys() > {"litestar", "cryptography"}
    for name, one in listed.items():
        assert one["purl"] == f"pkg:pypi/{name}@{locked[name].version}"
        assert {found["content"] for found in one["hashes"]} == set(locked[name].hashes)
        assert one["scope"] == ("optional" if locked[name].marker else "required")
    assert sum(len(one.hashes) for one in locked.values()) == LOCK.count("--hash=sha256:")


def test_the_bill_has_each_requirement_s_requirements() -> None:
    needs = {one["ref"]: set(one.get("dependsOn", [])) for one in json.loads(bill())["dependencies"]}
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [need for extra in ("server", "embedded") for need in project["optional-dependencies"][extra]]
    direct = {canonicalize_name(Requirement(text).name) for text in (*project["dependencies"], *extras)}
    assert direct <= needs["eval-token-issuer"]
    reached, due = set[str](), ["eval-token-issuer"]
    while due:
        reached |= (new := needs[due.pop()] - reached)
        due += new
    assert reached == {one.name for one in read_lock(LOCK)}


def test_the_bill_follows_from_the_commit_alone() -> None:
    said = json.loads(bill())
    assert said["metadata"]["timestamp"] == "2026-11-18T11:06:40+00:00"
    assert said["metadata"]["component"]["properties"] == [{"name": "eval-token-issuer:commit", "value": COMMIT}]
    assert write_sbom(LOCK, "1.2.3", COMMIT, TIME, WHEEL) == bill()
    other = json.loads(write_sbom(LOCK, "1.2.3", COMMIT, TIME, "ef" * 32))
    assert other["serialNumber"] != said["serialNumber"]


@pytest.mark.long
def test_the_bill_is_cyclonedx() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill().decode()) is None


def test_two_builds_that_differ_are_refused() -> None:
    compare({"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"})
    for second in ({"a": b"1", "b": b"3"}, {"a": b"1"}, {"a": b"1", "b": b"2", "c": b""}):
        with pytest.raises(Differs, match=r"^[bc] differs between"):
            compare({"a": b"1", "b": b"2"}, second)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The release of this commit, from a checkout with changed and added files: its files by their ending."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    folder = tmp_path_factory.mktemp("release")
    checkout = folder / "checkout"
    git(ROOT, "clone", "--quiet", str(ROOT), str(checkout))
    (checkout / "issuer" / "unsaved.py").write_text("raise SystemExit\n")
    (checkout / "issuer" / "codes.py").write_text("raise SystemExit\n")
    (checkout / "issuer" / "io" / "files.py").chmod(0o755)
    before = git(checkout, "status", "--short")
    written = release(checkout, folder / "dist")
    assert git(checkout, "status", "--short") == before, "the checkout is as it was"
    return {"".join(path.suffixes[-1:]): path for path in written}


@pytest.mark.long
def test_a_release_has_the_files_that_git_holds_and_their_digests(made: dict[str, Path]) -> None:
    wheel = zipfile.ZipFile(made[".whl"])
    assert wheel.read("issuer/commit.txt").decode() == f"{commit_of(ROOT).id}\n"
    assert "issuer/unsaved.py" not in wheel.namelist()
    assert wheel.read("issuer/codes.py") == git(ROOT, "show", "HEAD:issuer/codes.py").encode() + b"\n"
    held = set(git(ROOT, "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    assert {name for name in held if name.startswith("issuer/")} <= set(wheel.namelist())
    with tarfile.open(made[".gz"]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    of_a_checkout = {".ci/run", ".dockerignore", ".gitignore", ".pre-commit-config.yaml"}
    assert held - packed <= of_a_checkout, "the sdist runs its tests and builds the wheel"
    sums = made[""]
    done = subprocess.run(["sha256sum", "--check", "--strict", sums.name], cwd=sums.parent, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert {line.split()[1] for line in sums.read_text().splitlines()} == {
        path.name for path in sums.parent.iterdir() if path != sums
    }


@pytest.fixture(scope="module")
def installed(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a fresh environment with the wheel and the requirements of run.lock."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--require-hashes", "-r", str(ROOT / "run.lock")], check=True)
    subprocess.run([*install, str(made[".whl"])], check=True)
    return folder / "bin" / "issuer"


def issuer(command: Path, folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ISSUER_"))}
    done = subprocess.run([str(command), *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_wheel_says_its_commit_and_its_demo_leaves_nothing_behind(installed: Path, tmp_path: Path) -> None:
    assert f"commit   {commit_of(ROOT).id}\n" in issuer(installed, tmp_path, "--version")
    shown = issuer(installed, tmp_path, "demo")
    texts = ("supplied model_repo", "  verified", "8  FAIL", "byte for byte the same token", "409 identity.replayed")
    assert [text for text in texts if text not in shown] == []
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_wheel_has_the_samples_the_unit_and_the_compose_file(installed: Path, tmp_path: Path) -> None:
    issuer(installed, tmp_path, "init", "made", "--url", "https://issuer.example")
    assert (tmp_path / "made" / "compose.yaml").read_bytes() == (ROOT / "deploy" / "compose.yaml").read_bytes()
    assert str(installed) in (tmp_path / "made" / "issuer.service").read_text("utf-8")
    issuer(installed, tmp_path, "policy", "test", "made/policies")
