"""How `issuer dev token` finds the running issuer: only the user's own, and only while it runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.dev.discovery import RunningIssuer, announced, find
from issuer.dev.provider import LocalProvider
from issuer.errors import SetupError


@pytest.fixture(scope="module")
def local() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


def found(local: LocalProvider, port: int) -> RunningIssuer:
    return RunningIssuer(f"http://127.0.0.1:{port}", local.issuer, "secret")


def absent(state: Path | None, port: int | None = None) -> SetupError:
    with pytest.raises(SetupError) as caught:
        find(state, port)
    return caught.value


def test_an_issuer_is_found_while_it_runs_by_its_owner_alone(local: LocalProvider, tmp_path: Path) -> None:
    mine = found(local, 8001)
    with announced(tmp_path, mine):
        assert find(tmp_path, None) == find(tmp_path, 8001) == mine
        (path,) = (tmp_path / "dev").glob("*.json")
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert absent(tmp_path, 8002).code is Code.DEV_ABSENT
    assert absent(tmp_path).code is Code.DEV_ABSENT
    assert not path.exists()


def test_one_of_several_issuers_is_chosen_by_its_port(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)):
        assert absent(tmp_path, 8002).detail == "port 8002 has no `issuer dev`; the running ones have 8001"
        with pytest.raises(BlockingIOError), announced(tmp_path, found(local, 8001)):
            pass  # a second one of the same port
        with announced(tmp_path, found(local, 8002)):
            assert "8001, 8002" in absent(tmp_path).detail
            assert [find(tmp_path, port).port for port in (8001, 8002)] == ["8001", "8002"]
    with announced(None, found(local, 8001)):  # a user without a home
        assert absent(None).code is Code.DEV_ABSENT


def test_a_killed_issuer_is_not_found_though_its_port_is_in_use(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)):
        (path,) = (tmp_path / "dev").glob("*.json")
        left = path.read_bytes()
    path.write_bytes(left)
    path.chmod(0o600)
    asked = local.requests.total()
    assert absent(tmp_path).code is Code.DEV_ABSENT
    assert local.requests.total() == asked, "its request token is sent to no server"
    assert not path.exists()


def test_a_file_or_folder_that_others_may_write_is_ignored(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)):
        (path,) = (tmp_path / "dev").glob("*.json")
        path.chmod(0o644)
        assert absent(tmp_path).code is Code.DEV_ABSENT
        path.chmod(0o600)
        (tmp_path / "dev").chmod(0o777)
        assert absent(tmp_path).code is Code.CACHE_UNSAFE
        (tmp_path / "dev").chmod(0o700)
        (tmp_path / "dev" / "8002.json").symlink_to(path)
        assert find(tmp_path, None).port == "8001", "a link is not followed"
        path.write_text("[]")
        assert absent(tmp_path).code is Code.DEV_ABSENT
