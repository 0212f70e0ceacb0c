"""The drill of deploy/STATE.md: a host burns, and comes back out of deploy/backup.sh, a mirror of the log, and its keys."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.tlog.leaf import read_leaf
from tests.support.command import install_issuer, issuer
from tests.support.logged import Begun, demand_logged, leaf_of, leaves_in, log_status
from tests.support.running import Running, body, eventually
from tests.support.shared import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BACKUP = ROOT / "deploy" / "backup.sh"


def run(service: Running, *words: str, code: int = 0, **more: str) -> str:
    """Run a command with the service's settings."""
    done = issuer(*words, env=environment(service.settings) | more)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def backup(service: Running, target: Path, path: Path) -> None:
    """Run the script, as its timer does, while the service runs."""
    starter = install_issuer(path)
    environ = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [BACKUP, service.settings.data, target],
        env=environ,
        pass_fds=[starter],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
