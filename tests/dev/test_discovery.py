"""How `issuer dev token` finds the issuer that runs: only one of the user's own, and only while it is there."""

from __future__ import annotations

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


def test_it_is_found_while_it_runs_by_its_owner_alone(local: LocalProvider, tmp_path: Path) -> None:
    mine = found(local, 8001)
    with announced(tmp_path, mine):
        assert find(tmp_path, None) == find(tmp_path, 8001) == mine
        (path,) = (tmp_path / "dev").glob("*.json")
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert absent(tmp_path, 8002).code is Code.DEV_ABSENT
    assert absent(tmp_path).code is Code.DEV_ABSENT
    assert not path.exists()


def test_of_several_one_is_chosen_by_its_port(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)), announced(tmp_path, found(local, 8002)):
        assert "8001, 8002" in absent(tmp_path).detail
        assert find(tmp_path, 8002).port == "8002"


def test_one_that_was_killed_is_none_whoever_listens_at_its_port_now(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)):
        (path,) = (tmp_path / "dev").glob("*.json")
        left = path.read_bytes()
    path.write_bytes(left)
    path.chmod(0o600)
    asked = local.requests.total()
    assert absent(tmp_path).code is Code.DEV_ABSENT
    assert local.requests.total() == asked, "nobody is sent the request token of a dead one"
    assert not path.exists()


def test_a_second_one_of_the_same_port_does_not_take_the_place_of_the_first(
    local: LocalProvider, tmp_path: Path
) -> None:
    with announced(tmp_path, found(local, 8001)):
        with pytest.raises(BlockingIOError), announced(tmp_path, found(local, 8001)):
            pass
        assert find(tmp_path, 8001).port == "8001"


def test_a_port_where_none_runs_is_not_called_the_absence_of_all(local: LocalProvider, tmp_path: Path) -> None:
    with announced(tmp_path, found(local, 8001)):
        assert absent(tmp_path, 8002).detail == "port 8002 has no `issuer dev`; the running ones have 8001"


def test_a_file_or_folder_that_others_may_write_is_believed_in_nothing(local: LocalProvider, tmp_path: Path) -> None:
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


def test_a_user_without_a_home_is_told(local: LocalProvider) -> None:
    with announced(None, found(local, 8001)):
        assert absent(None).code is Code.DEV_ABSENT
