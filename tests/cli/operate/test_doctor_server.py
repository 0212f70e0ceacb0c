"""`issuer doctor --server`: each fault is found, with its code and the next step; nothing is changed, no secret shown."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port, write_policies
from issuer.formats.findings import Line, surviving
from issuer.io import keyfile
from issuer.service.audit.sink import FileAudit
from issuer.service.doctor.bounds import BACKUP_OLD_S, DOCTOR_SLOW_MS
from issuer.service.doctor.examination import examine_server
from issuer.service.log.sequencer.setup import log_settings, sequencer_of, turn
from issuer.service.revocation.bounds import LIST_GOOD_S
from issuer.service.settings.reader import read_settings
from tests.support.decisions import decision
from tests.support.disk import fill, small_disk
from tests.support.in_process import run
from tests.support.running import running
from tests.support.sequencing import tokens
from tests.support.settings import by_name, settings_text
from tests.support.shared import ROOT
from tests.support.stores import Store
from tests.support.waiting import within

URL = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture
def home(tmp_path: Path, provider: LocalProvider) -> Path:
    """A service's folder, whose only provider is on this machine."""
    home = tmp_path / "made"
    assert run(["init", str(home), "--url", URL, "--port", str(free_port())], tmp_path).code == 0
    for path in (home / "policies").iterdir():
        path.unlink()
    write_policies(home / "policies", provider.issuer)
    text = (home / "policies" / "providers.yaml").read_text()
    (home / "policies" / "providers.yaml").write_text(text.partition("  gitlab-ci")[0])
    (home / "policies" / "lm-eval.yaml").unlink()
    return home


Lines = dict[str, dict[str, str]]


def examine(home: Path, **env: str) -> tuple[int, Lines, str]:
    done = run(["doctor", "--server", "--json", "--config", str(home / "settings.yaml")], home, env=env)
    assert done.err == "", done
    lines = json.loads(done.out)["lines"]
    return done.code, {line["name"]: line for line in reversed(lines)}, done.out


def bad(lines: Lines) -> dict[str, str]:
    return {name: line["code"] for name, line in lines.items() if line["verdict"] == "FAIL"}


def test_a_fresh_folder_is_well_but_for_what_a_machine_of_one_s_own_lacks(home: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in home.rglob("*")}
    code, lines, _ = examine(home)
    assert (code, bad(lines)) == (0, {})
    assert set(lines) == {
        "settings", "policies folder", "keys folder", "data folder", "disk of data", "backup", "keys", "key schedule",
        "revocations", "policies", "log", "audit", "store", "provider github-actions", "time", "address", "proxy",
    }  # fmt: skip
    warned = {name for name, line in lines.items() if line["verdict"] == "warning"}
    assert warned - {"time", "disk of data"} == {"backup", "store"}
    assert all(line["next"] for line in lines.values() if line["verdict"] != "pass")
    after = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in home.rglob("*")}
    assert after == before, "nothing is changed"


# -- settings, keys, policies, audit ------------------------------------------------------------------------------------


def open_key(home: Path) -> None:
    next((home / "keys" / "active").iterdir()).chmod(0o644)


def no_key(home: Path) -> None:
    next((home / "keys" / "active").iterdir()).unlink()


def lost_history(home: Path) -> None:
    (home / "data" / "key-history.jsonl").write_text("{")


def failing_test(home: Path) -> None:
    file = home / "policies" / "inspect-ai.yaml"
    file.write_text(file.read_text().replace("expect: identity.claim_mismatch", "expect: granted", 1))


def open_policies(home: Path) -> None:
    (home / "policies").chmod(0o777)


def broken_audit(home: Path) -> None:
    """Change a line that the service's own sink has written."""
    audit = FileAudit(home / "data" / "audit.jsonl")
    for name in ("first", "second", "third"):
        asyncio.run(audit.record(decision(name)))
    audit.close()
    lines = (home / "data" / "audit.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"second", b"SECOND")
    (home / "data" / "audit.jsonl").write_bytes(b"".join(lines))


def taken_record(home: Path) -> None:
    (home / "data" / "revocations.jsonl").write_text("{\n")


def gone_provider(home: Path) -> None:
    file = home / "policies" / "providers.yaml"
    file.write_text(file.read_text().replace("127.0.0.1:", "127.0.0.1:1/", 1))


FAULTS: list[tuple[Callable[[Path], None], int, dict[str, str], str]] = [
    (open_key, 6, {"keys": "key.unusable"}, "chmod 600"),
    (no_key, 6, {"keys": "key.unusable"}, "issuer keys rotate --compromised"),
    (lost_history, 6, {"keys": "key.history"}, ""),
    (failing_test, 3, {"policies": "policy.test_failed"}, "issuer policy check"),
    (open_policies, 3, {"policies folder": "file.unsafe"}, "chmod o-w"),
    (broken_audit, 3, {"audit": "file.rule"}, "issuer audit verify"),
    (taken_record, 3, {"revocations": "file.syntax"}, "deploy/STATE.md"),
    (gone_provider, 4, {"provider github-actions": "dependency.issuer_keys"}, "Make sure that this machine reaches it"),
]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "code", "found", "says"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_a_fault_is_found_with_the_next_step(
    home: Path, fault: Callable[[Path], None], code: int, found: dict[str, str], says: str
) -> None:
    fault(home)
    ended, lines, out = examine(home)
    assert bad(lines) == found
    assert ended == code
    assert says in out
    assert all(lines[name]["next"] for name in found)


def test_a_secret_that_others_may_read_is_a_fault_and_never_shown(home: Path) -> None:
    (home / "passphrase").write_text("hush\n")
    (home / "passphrase").chmod(0o644)
    code, lines, out = examine(home, ISSUER_KEYS_PASSPHRASE_FILE=str(home / "passphrase"))
    assert (code, bad(lines)["passphrase"]) == (6, "settings.invalid")
    assert "chmod 600" in out
    assert "hush" not in out


def test_settings_that_are_wrong_are_told_as_serve_tells_them(home: Path) -> None:
    argv = ["--config", str(home / "settings.yaml")]
    told = run(["doctor", "--server", *argv], home, env={"ISSUER_PROT": "1"})
    assert (told.code, told.err) == (6, run(["serve", *argv], home, env={"ISSUER_PROT": "1"}).err)


@pytest.mark.long
def test_a_list_of_revocations_that_has_ended_is_a_fault(home: Path) -> None:
    config = ["--config", str(home / "settings.yaml")]
    for command in (["revocations", "init"], ["revoke", "--jti", "412EiTbPsKYxIqZyMRZSIA", "--reason", "x"]):
        assert run([*command, *config], home).code == 0
    settings, now = read_settings(home / "settings.yaml", {}), int(time.time())
    wanted = {0: "pass", LIST_GOOD_S - 3600: "warning", LIST_GOOD_S + 3600: "FAIL"}
    found = {
        later: next(line for line in examine_server(settings, now + later) if line.name == "revocations")
        for later in wanted
    }
    assert {later: line.verdict for later, line in found.items()} == wanted
    assert "issuer revocations renew" in found[LIST_GOOD_S + 3600].next


# -- a look that fails hides no other ------------------------------------------------------------------------------------


def test_what_cannot_be_looked_at_is_a_fault_and_the_rest_is_looked_at(home: Path) -> None:
    """A name that is too long stands for a folder that may not be searched, which root is never refused."""
    usual, env = examine(home)[1], {"ISSUER_DATA": "d" * 300, "ISSUER_LISTEN_HOST": "a" * 64 + ".example"}
    code, lines, _ = examine(home, **env)
    assert code == 6
    assert {"data folder", "audit", "address"} <= bad(lines).keys()
    assert "Run this as the service's user" in lines["data folder"]["next"]
    assert usual.keys() - {"disk of data", "key schedule"} <= lines.keys()


def test_a_fault_of_ours_is_one_line_that_shows_nothing_of_it() -> None:
    def broken() -> Iterator[Line]:
        yield Line("first", "pass", "well")
        raise KeyError("hush")

    (first, last) = surviving("second", broken())
    assert (first.name, last.name, last.verdict, last.code) == ("first", "second", "FAIL", "internal")
    assert "KeyError" in last.detail
    assert "hush" not in last.detail


# -- address and proxy --------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_address_that_something_else_has_is_a_fault(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, lines, _ = examine(home, ISSUER_LISTEN_PORT=str(taken.getsockname()[1]))
    assert (code, bad(lines)) == (6, {"address": "service.address"})


@pytest.mark.long
def test_without_a_proxy_behind_https_all_callers_are_one_source(home: Path) -> None:
    _, lines, _ = examine(home, ISSUER_URL="https://issuer.example", ISSUER_DEVELOPMENT="false")
    assert lines["proxy"]["verdict"] == "warning"
    assert "listen.trusted_proxies" in lines["proxy"]["next"]


@pytest.mark.long
def test_a_service_that_runs_is_said_to_run(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as live:
        (tmp_path / "settings.yaml").write_text(settings_text(**by_name(live.settings)))
        assert within(20, lambda: live.http.get("/health/ready").status_code == 200)
        _, lines, _ = examine(tmp_path)
    assert "is ready" in lines["address"]["detail"]


# -- the log ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_log_is_compared_with_its_records(home: Path, tmp_path: Path) -> None:
    env = {"ISSUER_LOG_RECORDS": str(tmp_path / "records"), "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
    database, older = home / "data" / "log" / "log.sqlite", tmp_path / "older"
    config = home / "settings.yaml"
    assert run(["log", "init", "--config", str(config)], home, env=env).code == 0
    shutil.copytree(database.parent, older)
    code, lines, _ = examine(home, **env)
    assert (code, lines["log"]["detail"]) == (0, "0 entries; 1 records agree")
    log = log_settings(read_settings(config, env), "")
    with turn(log), closing(sequencer_of(log)) as sequencer:
        sequencer.start()
        sequencer.append(tokens(1, 2))
    assert examine(home, **env)[1]["log"]["detail"] == "2 entries; 1 records agree"
    shutil.rmtree(database.parent)
    shutil.copytree(older, database.parent)
    code, lines, _ = examine(home, **env)
    assert (code, bad(lines)) == (6, {"log": "log.rollback"})
    assert "deploy/LOG.md" in lines["log"]["next"]
    shutil.rmtree(tmp_path / "records")
    assert bad(examine(home, **env)[1]) == {"log": "log.unrecorded"}
    assert bad(examine(home, **{**env, "ISSUER_LOG_RECORDS": ""})[1]) == {"log": "settings.invalid"}
    shutil.rmtree(database.parent)
    assert bad(examine(home, **env)[1])["log"] in {"log.absent", "state.unreachable"}


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of root's in another's folder")
def test_root_leaves_nothing_of_its_own_in_the_service_s_folders(home: Path, tmp_path: Path) -> None:
    """A file of root's beside the log's database would keep the service from opening it."""
    env = {"ISSUER_LOG_RECORDS": str(tmp_path / "records"), "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
    assert run(["log", "init", "--config", str(home / "settings.yaml")], home, env=env).code == 0
    for path in tmp_path.rglob("*"):
        os.chown(path, 4711, 4712)
    assert examine(home, **env)[0] == 0
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")} == {(4711, 4712)}


# -- the store ----------------------------------------------------------------------------------------------------------


def asked(home: Path, store: Store, **env: str) -> tuple[int, Lines, str]:
    return examine(home, ISSUER_STORE_URL=store.url, **env)


GOOD = ("--appendonly", "yes", "--maxmemory", "100mb")


@pytest.mark.long
def test_a_good_store_passes_and_nothing_is_written_to_it(home: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store", *GOOD) as store:
        code, lines, _ = asked(home, store)
        assert store.client.dbsize() == 0
    assert (code, bad(lines)) == (0, {})
    assert {line["verdict"] for name, line in lines.items() if name.startswith("store")} == {"pass"}


STORES: list[tuple[tuple[str, ...], dict[str, str], str, str, str]] = [
    (("--maxmemory-policy", "allkeys-lru"), {}, "store eviction", "FAIL", "noeviction"),
    (("--rename-command", "CONFIG", ""), {}, "store eviction", "FAIL", "store.noeviction_stated"),
    (("--appendonly", "no"), {}, "store persistence", "warning", "appendonly yes"),
    (("--appendonly", "no"), {"ISSUER_STORE_DURABLE": "true"}, "store persistence", "FAIL", "appendfsync always"),
    (
        ("--appendfsync", "everysec"),
        {"ISSUER_STORE_DURABLE": "true"},
        "store persistence",
        "warning",
        "appendfsync always",
    ),
    (("--maxmemory", "0"), {}, "store memory", "warning", "maxmemory"),
    ((), {"ISSUER_STORE_WAIT_REPLICAS": "1"}, "store replicas", "FAIL", "store.wait_replicas"),
]


@pytest.mark.long
@pytest.mark.parametrize("fault", STORES)
def test_a_store_that_is_not_as_it_should_be_is_told(
    home: Path, tmp_path: Path, fault: tuple[tuple[str, ...], dict[str, str], str, str, str]
) -> None:
    options, env, name, verdict, says = fault
    with Store(tmp_path / "store", *GOOD, *options) as store:
        code, lines, _ = asked(home, store, **env)
    assert (lines[name]["verdict"], code) == (verdict, 6 if verdict == "FAIL" else 0)
    assert says in lines[name]["next"]
    assert lines[name]["code"] == ("state.unsafe" if verdict == "FAIL" else "")


@pytest.mark.long
def test_a_replica_is_a_fault(home: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "one", *GOOD) as master, Store(tmp_path / "two", *GOOD) as store:
        store.is_replica_of(master)
        code, lines, _ = asked(home, store)
    assert (code, lines["store role"]["code"]) == (6, "state.unsafe")
    assert "Name the master" in lines["store role"]["next"]


class Managed(socketserver.StreamRequestHandler):
    """A store of somebody else's, that denies INFO and CONFIG, takes `late_s` for an answer, and whose clock is `skew_s`
    ahead. Where `info` is set it tells that."""

    skew_s, late_s, info = 0, 0.0, b""

    def handle(self) -> None:
        while count := self.rfile.readline():
            words = [self.rfile.readline() and self.rfile.readline().strip() for _ in range(int(count[1:]))]
            seconds = str(int(time.time()) + self.skew_s).encode()
            answers = {b"PING": b"+PONG", b"TIME": b"*2\r\n$%d\r\n%s\r\n$1\r\n0" % (len(seconds), seconds)}
            if self.info:
                answers[b"INFO"] = b"$%d\r\n%s" % (len(self.info), self.info)
            time.sleep(self.late_s)
            self.wfile.write(answers.get(words[0].upper(), b"-NOPERM it is denied") + b"\r\n")


def asked_of(home: Path, **traits: object) -> tuple[int, Lines, str]:
    """Examine a service with a managed store of these traits."""
    handler = type("Other", (Managed,), traits)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"redis://127.0.0.1:{server.server_address[1]}"
        done = examine(home, ISSUER_STORE_URL=url, ISSUER_STORE_NOEVICTION_STATED="true")
        server.shutdown()
    return done


@pytest.mark.parametrize(
    ("skew_s", "verdict"), [(0, "pass"), (12, "warning"), (-12, "warning"), (60, "FAIL"), (-60, "FAIL")]
)
@pytest.mark.long
def test_a_clock_that_is_off_is_told(home: Path, skew_s: int, verdict: str) -> None:
    code, lines, _ = asked_of(home, skew_s=skew_s)
    assert (lines["store clock"]["verdict"], code) == (verdict, 6 if verdict == "FAIL" else 0)
    assert verdict == "pass" or "by NTP" in lines["store clock"]["next"]
    untold = {name for name, line in lines.items() if name.startswith("store") and "hides" in line["detail"]}
    assert untold == {"store version", "store role", "store memory"}


@pytest.mark.parametrize(
    ("info", "verdict"),
    [
        (b"redis_version:6.0.16", "FAIL"), (b"redis_version:6.2.0", "pass"), (b"redis_version:10.0.1", "pass"),
        (b"redis_version:6.0.16\r\nvalkey_version:8.1.0", "pass"), (b"redis_version:?", "warning"),
    ],
)  # fmt: skip
@pytest.mark.long
def test_a_store_that_is_too_old_is_a_fault(home: Path, info: bytes, verdict: str) -> None:
    code, lines, _ = asked_of(home, info=info)
    assert (lines["store version"]["verdict"], code) == (verdict, 6 if verdict == "FAIL" else 0)
    assert verdict == "pass" or "6.2 or later" in lines["store version"]["next"]
    assert verdict != "FAIL" or "6.0.16 is too old" in lines["store version"]["detail"]


@pytest.mark.long
def test_a_store_that_is_far_away_is_told(home: Path) -> None:
    assert asked_of(home)[1]["store latency"]["verdict"] == "pass"
    code, lines, _ = asked_of(home, late_s=2 * DOCTOR_SLOW_MS / 1000)
    assert (lines["store latency"]["verdict"], code) == ("warning", 0)
    assert "near the service" in lines["store latency"]["next"]


@pytest.mark.long
def test_the_secret_of_a_provider_that_is_asked_about_tokens_is_looked_at(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "introspection"
    asks = f'introspection: {{client_id: "x", client_secret_file: "{secret}", token_prefix: "acme_"}}'
    with (home / "policies" / "providers.yaml").open("a") as file:
        file.write(f'  opaque: {{profile: oauth-introspection, issuer: "https://o.example", {asks}}}\n')
    found = {}
    for mode, text in ((None, ""), (0o644, "hush"), (0o600, "two\nlines"), (0o600, "hush\n")):
        if mode is not None:
            secret.write_text(text)
            secret.chmod(mode)
        _, lines, out = examine(home)
        line = lines["secret of opaque"]
        found[(mode, text)] = (line["verdict"], line["code"])
        assert "hush" not in out
        assert line["verdict"] == "pass" or str(secret) in line["detail"]
    assert list(found.values()) == [("FAIL", "settings.invalid")] * 3 + [("pass", "")]


@pytest.mark.long
def test_a_store_that_does_not_answer_is_a_fault_without_its_password(home: Path) -> None:
    code, lines, out = examine(home, ISSUER_STORE_URL="redis://me:hush@127.0.0.1:1/0")
    assert (code, bad(lines)) == (6, {"store": "state.unreachable"})
    assert "hush" not in out


@pytest.mark.long
def test_a_database_that_does_not_answer_is_a_fault_without_its_password(home: Path, tmp_path: Path) -> None:
    env = {"ISSUER_LOG_DATABASE": "postgresql://me:hush@127.0.0.1:1/log", "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
    (home / "keys" / "log").mkdir(0o700)
    keyfile.write(home / "keys" / "log" / "log.pem", keyfile.generate())
    with Store(tmp_path / "store", *GOOD) as store:
        code, lines, out = asked(home, store, ISSUER_LOG_RECORDS=str(tmp_path), **env)
    assert (code, bad(lines), "hush" in out) == (6, {"log": "state.unreachable"}, False)
    assert "127.0.0.1" in lines["log"]["detail"]


# -- disk and backup -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_full_disk_is_a_fault(home: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m") as disk:
        _, lines, _ = examine(home, ISSUER_PATS=str(tmp_path), ISSUER_LOG_RECORDS=str(disk))
        assert lines["disk of log records"]["verdict"] == "warning"
        fill(disk / "full")
        code, lines, _ = examine(home, ISSUER_LOG_RECORDS=str(disk))
    assert (code, lines["disk of log records"]["code"]) == (6, "machine.failed")
    assert "df -h" in lines["disk of log records"]["next"]


@pytest.mark.long
def test_a_backup_is_judged_by_its_age(home: Path, tmp_path: Path) -> None:
    assert examine(home)[1]["backup"]["verdict"] == "warning", "there never was one"
    backup = ["sh", str(ROOT / "deploy" / "backup.sh"), str(home / "data"), str(tmp_path / "backup")]
    subprocess.run(backup, check=True, timeout=60)
    assert examine(home)[1]["backup"]["verdict"] == "pass"
    made = home / "data" / "backed-up"
    os.utime(made, (0, made.stat().st_mtime - BACKUP_OLD_S - 60))
    code, lines, _ = examine(home)
    assert (lines["backup"]["verdict"], code) == ("warning", 0)
    assert "copied 31 min " in lines["backup"]["detail"]
    assert "systemctl status issuer-backup.timer" in lines["backup"]["next"]
    (tmp_path / "backup").chmod(0o700)
    shutil.rmtree(tmp_path / "backup")
    (tmp_path / "backup").write_text("in its place")
    assert subprocess.run(backup, check=False, capture_output=True, timeout=60).returncode
    assert examine(home)[1]["backup"]["verdict"] == "warning", "one that fails says nothing"
