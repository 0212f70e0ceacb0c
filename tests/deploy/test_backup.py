"""The drill of deploy/STATE.md: a host burns, and comes back out of deploy/backup.sh, a mirror of the log, and its keys."""

from __future__ import annotations

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
    """Run a command with the service's settings."""
    done = issuer(*words, env=environment(service.settings) | more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_each_event_is_saved_once_whatever_became_of_its_file(tmp_path: Path) -> None:
    """Before the first event there is no file; what was saved as it was rotated is saved again when it is gzipped."""
    data, target = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    copy: list[str | Path] = ["sh", BACKUP, data, target]
    subprocess.run(copy, check=True, timeout=60)
    assert [*(target / "audit").iterdir()] == []
    (data / "audit.jsonl-1").write_text("first\n")
    (data / "audit.jsonl").write_text("second\n")
    subprocess.run(copy, check=True, timeout=60)
    (data / "audit.jsonl-1.gz").write_text("half of i")
    subprocess.run(copy, check=True, timeout=60)
    assert {path.name for path in (target / "audit").iterdir()} == {"audit.jsonl-1", "audit.jsonl"}
    (data / "audit.jsonl-1.gz").write_text("it, whole")
    (data / "audit.jsonl-1").unlink()
    subprocess.run(copy, check=True, timeout=60)
    found = {path.name: path.read_text() for path in (target / "audit").iterdir()}
    assert found == {"audit.jsonl-1.gz": "it, whole", "audit.jsonl": "second\n"}


@pytest.mark.parametrize("lost", ["key-history.jsonl", "revocations.jsonl", "store-secret"])
def test_data_that_was_lost_does_not_take_the_last_copy_with_it(tmp_path: Path, lost: str) -> None:
    """A timer goes on after a fire, and two copies of an empty folder would have left nothing to put back."""
    data, target = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    for name in ("key-history.jsonl", "revocations.jsonl", "store-secret"):
        (data / name).write_text(name)
    copy: list[str | Path] = ["sh", BACKUP, data, target]
    subprocess.run(copy, check=True, timeout=60)
    (data / lost).unlink()
    (data / "backed-up").unlink()
    for _ in range(2):
        done = subprocess.run(copy, capture_output=True, text=True, timeout=60)
        assert (done.returncode, f"lacks {lost}" in done.stderr, "deploy/STATE.md" in done.stderr) == (1, True, True)
    assert (target / "data" / lost).read_text() == lost
    assert not (data / "backed-up").exists(), "the alert goes on"


def test_who_was_stopped_in_a_bad_night_is_stopped_after_the_fire(tmp_path: Path) -> None:
    data, policies, target = tmp_path / "data", tmp_path / "policies", tmp_path / "backup"
    data.mkdir()
    policies.mkdir()
    (policies / "stops.yaml").write_text("version: 1\n")
    unit = (ROOT / "deploy" / "systemd" / "issuer-backup.service").read_text("utf-8")
    (words,) = (line.split()[1:] for line in unit.splitlines() if line.startswith("ExecStart="))
    here = {"/var/lib/issuer/data": data, "/var/backups/issuer": target, "/etc/issuer/policies": policies}
    subprocess.run(["sh", BACKUP, *(here[word] for word in words)], check=True, timeout=60)
    assert (target / "stops.yaml").read_text() == "version: 1\n"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_after_a_fire_nothing_is_forked_doubled_or_good_again(tmp_path: Path) -> None:
    target, mirror, log = tmp_path / "backup", tmp_path / "mirror", Begun(tmp_path / "service")
    with LocalProvider() as provider:
        with EmbeddedValkey() as store, log.served(provider, store_url=store) as service:
            data = Path(service.settings.data)
            run(service, "revocations", "init")
            answer = service.post(service.token(), body(task_id="task-0")).json()
            run(service, "revoke", "--jti", answer["jti"], "--reason", "a test")
            backup(service, target, tmp_path / "bin")
            old = answer["verify_token"]
            used = service.token()  # used after the backup: the store alone knows, and burns with the rest
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
        # (1) What the record knows better, the backup cannot hide.
        with EmbeddedValkey() as store:
            settings = {"store_url": store}
            refused = issuer("serve", env=environment(service.settings) | {"ISSUER_STORE_URL": store})
            assert (refused.returncode, "log.absent" in refused.stderr) == (6, True), refused
            run(service, "log", "restore", str(target / "log"), code=6, ISSUER_STORE_URL=store)
            run(service, "log", "restore", str(mirror), ISSUER_STORE_URL=store)
            with log.served(provider, **settings) as again:
                # (2) Nothing twice: what was used in the store that burnt is refused.
                replayed = again.post(used, body(task_id="task-1"))
                assert (replayed.status_code, replayed.json()["code"]) == (503, "dependency.state_reset")
                # (3) No fork: who has the old tree extends it.
                fresh = again.post(again.token(), body(task_id="task-2")).json()
                assert demand_logged(again, fresh).size > head.size
                run(again, "log", "export", str(mirror), "--from", f"{again.url}/log")
                leaves = leaves_in(again)
                places = [
                    leaves.index(read_leaf(leaf_of(each)))
                    for each in (old, late["verify_token"], fresh["verify_token"])
                ]
                assert places == sorted(places)
                # (4) What is revoked stays so, for the service and in its list; the keys are those of before.
                assert answer["jti"] in run(again, "revocations", "show")
                eventually(lambda: again.http.get("/health/ready").json()["revocations"]["items"] == 1)
                assert again.http.get("/.well-known/revocations.json").status_code == 200
                assert len(again.http.get("/.well-known/jwks.json").json()["keys"]) == keys
        # (5) The audit of before is whole as far as the backup has it, and that of after is whole.
        done = issuer("audit", "verify", str(data / "audit.jsonl"))
        assert done.returncode == 0, done
