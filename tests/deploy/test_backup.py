"""The drill of deploy/STATE.md: a host is lost, and restored from deploy/backup.sh, a mirror of the log, and its keys."""

import shutil
import subprocess
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.tlog.leaf import read_leaf
from tests.support.backing_up import BACKUP, backup
from tests.support.command import issuer
from tests.support.logged import Begun, demand_logged, leaf_of, leaves_in, log_status
from tests.support.running import Running, body
from tests.support.shared import ROOT
from tests.support.waiting import eventually


def run(service: Running, *words: str, code: int = 0, **more: str) -> str:
    done = issuer(*words, env=environment(service.settings) | more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def copy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", BACKUP, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_each_event_is_saved_once_before_and_after_rotation(tmp_path: Path) -> None:
    """Without an event the file does not exist; a rotated file is saved again once it is gzipped and gone."""
    data, target = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    assert copy(data, target).returncode == 0
    assert [*(target / "audit").iterdir()] == []
    (data / "audit.jsonl-1").write_text("first\n")
    (data / "audit.jsonl").write_text("second\n")
    copy(data, target)
    (data / "audit.jsonl-1.gz").write_text("half of i")
    copy(data, target)
    assert {path.name for path in (target / "audit").iterdir()} == {"audit.jsonl-1", "audit.jsonl"}
    (data / "audit.jsonl-1.gz").write_text("it, whole")
    (data / "audit.jsonl-1").unlink()
    copy(data, target)
    found = {path.name: path.read_text() for path in (target / "audit").iterdir()}
    assert found == {"audit.jsonl-1.gz": "it, whole", "audit.jsonl": "second\n"}


def test_lost_data_does_not_replace_the_last_copy(tmp_path: Path) -> None:
    """The timer continues after a loss; two copies of an empty folder would leave no data to restore."""
    names = (
        "key-history.jsonl", "pats", "policies", "revocations.jsonl", "revocations.jwt", "revocation-keys.json", "store-secret",
    )  # fmt: skip
    for lost in names:
        data, target = tmp_path / lost / "data", tmp_path / lost / "backup"
        data.mkdir(parents=True)
        for name in names:
            (data / name).write_text(name)
        assert copy(data, target).returncode == 0
        (data / lost).unlink()
        (data / "backed-up").unlink()
        for _ in range(2):
            done = copy(data, target)
            assert done.returncode == 1
            assert [text for text in (f"lacks {lost}", "deploy/STATE.md") if text not in done.stderr] == []
        assert (target / "data" / lost).read_text() == lost
        assert not (data / "backed-up").exists(), "the alert continues"


def test_the_backup_includes_the_stops(tmp_path: Path) -> None:
    data, policies, target = tmp_path / "data", tmp_path / "policies", tmp_path / "backup"
    data.mkdir()
    policies.mkdir()
    (policies / "stops.yaml").write_text("version: 1\n")
    unit = (ROOT / "deploy" / "systemd" / "issuer-backup.service").read_text("utf-8")
    (words,) = (line.split()[1:] for line in unit.splitlines() if line.startswith("ExecStart="))
    here = {"/var/lib/issuer/data": data, "/var/backups/issuer": target, "/etc/issuer/policies": policies}
    assert copy(*(here[word] for word in words)).returncode == 0
    assert (target / "stops.yaml").read_text() == "version: 1\n"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_restored_host_forks_no_log_and_repeats_no_use(tmp_path: Path) -> None:
    target, mirror, log = tmp_path / "backup", tmp_path / "mirror", Begun(tmp_path / "service")
    with LocalProvider() as provider:
        with EmbeddedValkey() as store, log.served(provider, store_url=store) as service:
            data = Path(service.settings.data)
            run(service, "revocations", "init")
            answer = service.post(service.token(), body(task_id="task-0")).json()
            run(service, "revoke", "--jti", answer["jti"], "--reason", "a test")
            backup(service, target, tmp_path / "bin")
            old = answer["verify_token"]
            used = service.token()  # used after the backup: only the lost store has its record
            late = service.post(used, body(task_id="task-1")).json()
            eventually(lambda: log_status(service)["cosigned"]["size"] == log_status(service)["size"])
            run(service, "log", "export", str(mirror), "--from", f"{service.url}/log")
            head = demand_logged(service, late)
            keys = len(service.http.get("/.well-known/jwks.json").json()["keys"])
            service.kill()
        shutil.rmtree(data)
        shutil.copytree(target / "data", data)
        for found in (target / "audit").iterdir():
            shutil.copy2(found, data)
        # (1) The record is newer than the backup.
        with EmbeddedValkey() as store:
            refused = issuer("serve", env=environment(service.settings) | {"ISSUER_STORE_URL": store})
            assert (refused.returncode, "log.absent" in refused.stderr) == (6, True), refused
            run(service, "log", "restore", str(target / "log"), code=6, ISSUER_STORE_URL=store)
            run(service, "log", "restore", str(mirror), ISSUER_STORE_URL=store)
            with log.served(provider, store_url=store) as again:
                # (2) A use of the lost store is refused.
                replayed = again.post(used, body(task_id="task-1"))
                assert (replayed.status_code, replayed.json()["code"]) == (503, "dependency.state_reset")
                # (3) No fork: the old tree is extended.
                fresh = again.post(again.token(), body(task_id="task-2")).json()
                assert demand_logged(again, fresh).size > head.size
                run(again, "log", "export", str(mirror), "--from", f"{again.url}/log")
                leaves = leaves_in(again)
                tokens = (old, late["verify_token"], fresh["verify_token"])
                places = [leaves.index(read_leaf(leaf_of(each))) for each in tokens]
                assert places == sorted(places)
                # (4) The revocation stays, for the service and in its list; the keys are the same.
                assert answer["jti"] in run(again, "revocations", "show")
                eventually(lambda: again.http.get("/health/ready").json()["revocations"]["items"] == 1)
                assert again.http.get("/.well-known/revocations.json").status_code == 200
                assert len(again.http.get("/.well-known/jwks.json").json()["keys"]) == keys
        # (5) The audit file is complete, as far as the backup has it and after it.
        done = issuer("audit", "verify", str(data / "audit.jsonl"))
        assert done.returncode == 0, done
