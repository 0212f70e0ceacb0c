"""No service starts without a part of `data` that it had: a new part in its place would forget what the old one held."""

import shutil
from itertools import combinations
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment
from issuer.errors import InputError, SetupError
from issuer.io import files
from issuer.io.common_documents import FolderHome
from issuer.service.settings.model import Settings, changed
from issuer.service.signing.inventory import PARTS, Inventory, InventoryKeeper
from tests.support.command import issuer
from tests.support.running import begin_history, rewrite, running, serve, write_folder
from tests.support.waiting import eventually

FILES: dict[str, tuple[str, ...]] = {
    "key-history": ("key-history.jsonl",), "revocations": ("revocations.jsonl",),
    "revocation-list": ("revocations.jwt",), "policies": ("policies",), "store-secret": ("store-secret",),
    "access-tokens": ("pats",), "inventory": ("inventory.json",),
}  # fmt: skip


def command(settings: Settings, *arguments: object) -> tuple[int, str]:
    done = issuer(*arguments, env=environment(settings))
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Settings:
    """A stopped service that has had every part; one token is revoked."""
    folder = tmp_path_factory.mktemp("past")
    write_folder(folder, provider)
    with running(folder, provider) as service:
        settings = service.settings
        jti = service.post(service.token()).json()["jti"]
    assert command(settings, "revocations", "init")[0] == 0
    assert command(settings, "revoke", "--jti", jti, "--reason", "leaked")[0] == 0
    assert command(settings, "pat", "create", "--account", "robot", "--scope", "tokens")[0] == 0
    with running(folder, provider, port=settings.listen.port) as service:
        assert service.http.get("/health/ready").status_code == 200
    return settings


@pytest.fixture
def copied(past: Settings, tmp_path: Path) -> Settings:
    """A copy of that service: a test may change its data."""
    for folder in (past.data, past.keys.folder):
        shutil.copytree(folder, tmp_path / Path(folder).name)
    return changed(past, data=str(tmp_path / Path(past.data).name), keys_folder=str(tmp_path / "keys"))


def inventory(settings: Settings) -> Inventory:
    return Inventory(settings, FolderHome(Path(settings.data)))


def lose(settings: Settings, *parts: str) -> None:
    for name in (name for part in parts for name in FILES[part]):
        path = Path(settings.data) / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def refusal(settings: Settings, *anew: str) -> SetupError:
    with pytest.raises(SetupError) as refused:
        inventory(settings).demand(anew)
    return refused.value


def missing(settings: Settings) -> list[str]:
    """Return the parts that a refused start names, with their paths; none if the service may start."""
    try:
        inventory(settings).demand()
    except SetupError as error:
        data, detail = Path(settings.data), error.detail
        return [part for part in PARTS if f"--begin-anew {part}" in detail and str(data / FILES[part][0]) in detail]
    return []


def test_without_a_part_or_a_pair_of_parts_no_service_starts(copied: Settings, tmp_path: Path) -> None:
    assert list(FILES)[:-1] == list(PARTS)
    shutil.copytree(copied.data, tmp_path / "backup")
    refused, losses = {}, [*combinations(FILES, 1), *combinations(FILES, 2)]
    for lost in losses:
        lose(copied, *lost)
        refused[lost] = missing(copied)
        shutil.rmtree(copied.data)
        shutil.copytree(tmp_path / "backup", copied.data)
    expected = {lost: [part for part in PARTS if part in lost] for lost in losses}
    # Without the inventory nothing shows these two. The list still revokes, and an unknown access token is refused.
    expected["revocations", "inventory"] = expected["access-tokens", "inventory"] = []
    assert refused == expected
    (Path(copied.data) / "pats" / "used").mkdir(exist_ok=True)
    for record in Path(copied.data).glob("pats/*.json"):
        record.unlink()
    inventory(copied).demand()  # an operator has removed old records


def test_without_all_its_data_a_service_with_a_past_does_not_start(copied: Settings) -> None:
    shutil.rmtree(copied.data)
    assert missing(copied) == ["key-history", "revocation-list"]
    assert refusal(copied).code is Code.KEY_HISTORY
    keys = Path(copied.keys.folder)
    shutil.rmtree(keys / "revocation")
    inventory(copied).demand()
    for state in ("retiring", "archived", "revoked"):
        files.make_folder(keys / state)
        for name, refused in (("old.pem", ["key-history"]), ("README.txt", []), (".old.pem", [])):
            (keys / state / name).touch()
            assert missing(copied) == refused
            (keys / state / name).unlink()
    (keys / "revoked" / "old.pem").touch()
    inventory(copied).demand(["key-history"])
    inventory(copied).demand()


def test_a_part_begins_anew_by_its_name_once_and_only_a_missing_one(copied: Settings) -> None:
    lose(copied, "revocation-list", "key-history")
    assert missing(copied) == ["key-history", "revocation-list"]
    for anew in (["key-history"], ["revocation-list"]):
        assert refusal(copied, *anew).code in {Code.KEY_HISTORY, Code.DATA_MISSING}
    for name in ("policies", "sessions"):
        assert refusal(copied, "revocation-list", "key-history", name).code is Code.SETTINGS_INVALID
    inventory(copied).demand(("revocation-list", "key-history"))
    inventory(copied).demand()
    assert refusal(copied, "key-history").code is Code.SETTINGS_INVALID


def test_a_damaged_inventory_is_refused(copied: Settings) -> None:
    path = Path(copied.data) / "inventory.json"
    for raw in (
        b"", b'{"version":2,"parts":[]}', b'{"version":1,"parts":["sessions"]}', b'{"version":1,"parts":["\xff"]}',
    ):  # fmt: skip
        path.write_bytes(raw)
        assert refusal(copied).code is Code.DATA_MISSING
    path.unlink()
    path.symlink_to("elsewhere")
    assert "symbolic link" in refusal(copied).detail


async def test_a_running_service_adds_parts_and_forgets_none(copied: Settings, tmp_path: Path) -> None:
    keeper, path = InventoryKeeper(inventory(copied)), Path(copied.data) / "inventory.json"
    lose(copied, "revocations", "inventory")
    await keeper.turn(False)
    first = inventory(copied).read()
    assert first == frozenset(PARTS) - {"revocations"}
    shutil.move(copied.data, tmp_path / "away")
    await keeper.turn(False)
    files.make_folder(path.parent)  # an empty folder takes its place
    await keeper.turn(False)
    assert inventory(copied).read() == first


def test_a_service_and_the_commands_begin_no_list_or_history_on_a_lost_disk(
    past: Settings, copied: Settings, tmp_path: Path
) -> None:
    data = Path(copied.data)
    data.rename(tmp_path / "away")
    data.mkdir(mode=0o700)
    for arguments in (
        ["serve"], ["keys", "rotate"], ["keys", "generate"], ["revocations", "renew"], ["revoke", "--jti", "A" * 22],
    ):  # fmt: skip
        code, err = command(copied, *arguments, *(["--reason", "x"] if arguments[0] == "revoke" else []))
        assert (code, err.count("key.history: missing: ")) == (6, 1), (arguments, err)
    assert list(data.iterdir()) == []
    data.rmdir()
    (tmp_path / "away").rename(data)
    lose(copied, "key-history")
    revoking = command(copied, "revoke", "--jti", "A" * 22, "--reason", "x")
    assert (revoking[0], command(copied, "keys", "rotate")[0]) == (0, 6), "a revocation works, and no history begins"
    shutil.rmtree(data)
    shutil.copytree(past.data, data)
    lose(copied, "revocation-list")
    code, err = command(copied, "serve")
    assert (code, err.count("issuer: data.missing")) == (6, 1)
    assert not (data / "revocations.jwt").exists()


def test_a_service_does_not_start_with_a_file_that_another_user_may_replace(copied: Settings, tmp_path: Path) -> None:
    data, log, policy, trust = Path(copied.data), tmp_path / "log", tmp_path / "policy", tmp_path / "trust.yaml"
    (log / "records").mkdir(parents=True)
    for path in (log / "log.sqlite", policy, trust):
        path.touch()
    named = {
        "log_database": str(log / "log.sqlite"),
        "log_records": str(log / "records"),
        "log_witness_policy": str(policy),
    }
    settings = changed(copied, trust=str(trust), pats=str(tmp_path / "pats"), **named)
    settings.demand_guarded()
    (tmp_path / "pats").mkdir()
    for path in (
        data, data / "key-history.jsonl", data / "audit.jsonl", data / "inventory.json", data / "policies", tmp_path / "pats",
        log, log / "log.sqlite", log / "records", policy, trust,
    ):  # fmt: skip
        before = path.stat().st_mode
        path.chmod(before | 0o002)
        with pytest.raises(InputError, match=f"others may write to it. Run `chmod .*{path}`"):
            settings.demand_guarded()
        path.chmod(before)
    for unread in (".snapshot", "backed-up"):
        (data / unread).mkdir()
        (data / unread).chmod(0o777)
    settings.demand_guarded()
    data.chmod(0o777)
    code, err = command(copied, "serve")
    assert (code, f"chmod go-w {data}`" in err or f"chmod o-w {data}`" in err) == (3, True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refused_first_start_does_not_prevent_the_next_one(
    tmp_path: Path, provider: LocalProvider, workers: int
) -> None:
    write_folder(tmp_path, provider)
    begin_history(tmp_path)
    rewrite(tmp_path, "^mode: active$", "mode: actve")
    with pytest.raises(AssertionError, match="did not start"), running(tmp_path, provider, command=serve(workers)):
        pytest.fail("it started")
    rewrite(tmp_path, "^mode: actve$", "mode: active")
    with running(tmp_path, provider, command=serve(workers)) as service:
        eventually(lambda: (Path(service.settings.data) / "inventory.json").exists())


def test_a_worker_is_not_restarted_on_a_lost_disk(copied: Settings, tmp_path: Path) -> None:
    found = inventory(copied).demand()
    shutil.rmtree(copied.data)
    with pytest.raises(SetupError) as refused:
        inventory(copied).demand(had=found)
    assert all(f"--begin-anew {part}" in refused.value.detail for part in PARTS)
