"""`issuer doctor --server`: it finds each fault with its code and the next step, changes no file and shows no secret."""

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
from tests.support.postgresql import shared
from tests.support.running import running
from tests.support.sequencing import tokens
from tests.support.settings import by_name, settings_text
from tests.support.shared import ROOT
from tests.support.stores import Store
from tests.support.waiting import eventually

URL = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as local:
        yield local


@pytest.fixture
def home(tmp_path: Path, provider: LocalProvider) -> Path:
    """A service's folder; its only provider is on this machine."""
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


def test_a_fresh_folder_has_no_fault_is_not_changed_and_shows_no_secret(home: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in home.rglob("*")}
    code, lines, _ = examine(home)
    assert (code, bad(lines)) == (0, {})
    assert set(lines) == {
        "settings", "policies folder", "keys folder", "data folder", "disk of data", "backup", "data", "keys", "key schedule",
        "revocations", "policies", "log", "audit", "store", "provider github-actions", "time", "address", "proxy",
    }  # fmt: skip
    warned = {name for name, line in lines.items() if line["verdict"] == "warning"}
    assert warned - {"time", "disk of data"} == {"backup", "store"}
    assert all(line["next"] for line in lines.values() if line["verdict"] != "pass")
    after = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in home.rglob("*")}
    assert after == before
    secret = home.parent / "passphrase"
    secret.write_text("hush\n")
    secret.chmod(0o644)
    code, lines, out = examine(home, ISSUER_KEYS_PASSPHRASE_FILE=str(secret))
    assert (code, bad(lines)["passphrase"]) == (6, "settings.invalid"), "others may read it"
    assert ("chmod 600" in out, "hush" in out) == (True, False)


# -- settings, keys, policies, audit ------------------------------------------------------------------------------------


def broken_audit(home: Path) -> None:
    """Change a line that the service's own sink has written."""
    audit = FileAudit(home / "data" / "audit.jsonl")
    for name in ("first", "second", "third"):
        asyncio.run(audit.record(decision(name)))
    audit.close()
    lines = (home / "data" / "audit.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"second", b"SECOND")
    (home / "data" / "audit.jsonl").write_bytes(b"".join(lines))


def edited(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Return a fault: another text in this file of the policies."""

    def write(home: Path) -> None:
        file = home / "policies" / name
        file.write_text(file.read_text().replace(old, new, 1))

    return write


FAULTS: dict[str, tuple[Callable[[Path], object], int, dict[str, str], str]] = {
    "open key": (lambda home: next((home / "keys" / "active").iterdir()).chmod(0o644), 6, {"keys": "key.unusable"}, "chmod 600"),
    "no key": (
        lambda home: next((home / "keys" / "active").iterdir()).unlink(), 6, {"keys": "key.unusable"},
        "issuer keys rotate --compromised",
    ),
    "lost history": (lambda home: (home / "data" / "key-history.jsonl").write_text("{"), 6, {"keys": "key.history"}, ""),
    "failing test": (
        edited("inspect-ai.yaml", "expect: identity.claim_mismatch", "expect: granted"), 3,
        {"policies": "policy.test_failed"}, "issuer policy check",
    ),
    "open policies": (lambda home: (home / "policies").chmod(0o777), 3, {"policies folder": "file.unsafe"}, "chmod o-w"),
    # An audit shows that the service has run, and this folder has no other part of such a run.
    "broken audit": (broken_audit, 6, {"audit": "file.rule", "data": "data.missing"}, "issuer audit verify"),
    "broken record": (
        lambda home: (home / "data" / "revocations.jsonl").write_text("{\n"), 3, {"revocations": "file.syntax"}, "deploy/STATE.md",
    ),
    "absent provider": (
        edited("providers.yaml", "127.0.0.1:", "127.0.0.1:1/"), 4, {"provider github-actions": "dependency.issuer_keys"},
        "Make sure that this machine reaches it",
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_with_the_next_step(home: Path, name: str) -> None:
    cause, code, found, text = FAULTS[name]
    cause(home)
    ended, lines, out = examine(home)
    assert (ended, bad(lines), text in out) == (code, found, True)
    assert all(lines[each]["next"] for each in found)


def test_wrong_settings_are_refused_with_the_message_of_serve(home: Path) -> None:
    config, env = ["--config", str(home / "settings.yaml")], {"ISSUER_PROT": "1"}
    done = run(["doctor", "--server", *config], home, env=env)
    assert (done.code, done.err) == (6, run(["serve", *config], home, env=env).err)


@pytest.mark.long
def test_a_list_of_revocations_that_has_ended_is_a_fault(home: Path) -> None:
    config = ["--config", str(home / "settings.yaml")]
    for command in (["revocations", "init"], ["revoke", "--jti", "412EiTbPsKYxIqZyMRZSIA", "--reason", "x"]):
        assert run([*command, *config], home).code == 0
    settings, now = read_settings(home / "settings.yaml", {}), int(time.time())
    wanted = {0: "pass", LIST_GOOD_S - 3600: "warning", LIST_GOOD_S + 3600: "FAIL"}
    for later, verdict in wanted.items():
        (line,) = (line for line in examine_server(settings, now + later) if line.name == "revocations")
        assert (line.verdict, "issuer revocations renew" in line.next) == (verdict, verdict != "pass")


def test_a_check_that_cannot_be_made_is_a_fault_and_stops_no_other(home: Path) -> None:
    """The name is too long, because root may search every folder."""
    usual, env = examine(home)[1], {"ISSUER_DATA": "d" * 300, "ISSUER_LISTEN_HOST": "a" * 64 + ".example"}
    code, lines, _ = examine(home, **env)
    assert code == 6
    assert {"data folder", "audit", "address"} <= bad(lines).keys()
    assert "Run this as the service's user" in lines["data folder"]["next"]
    assert usual.keys() - {"disk of data", "key schedule"} <= lines.keys()

    def broken() -> Iterator[Line]:
        yield Line("first", "pass", "well")
        raise KeyError("hush")

    (first, last) = surviving("second", broken())
    assert (first.name, last.name, last.verdict, last.code) == ("first", "second", "FAIL", "internal")
    assert ("KeyError" in last.detail, "hush" in last.detail) == (True, False), "an internal error, without its text"


@pytest.mark.long
def test_a_running_service_is_reported_as_ready(tmp_path: Path, provider: LocalProvider) -> None:
    with running(tmp_path, provider) as live:
        (tmp_path / "settings.yaml").write_text(settings_text(**by_name(live.settings)))
        eventually(lambda: live.http.get("/health/ready").status_code == 200)
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
    assert (code, lines["log"]["detail"]) == (0, "0 leaves; 1 records agree")
    log = log_settings(read_settings(config, env), "")
    with turn(log), closing(sequencer_of(log)) as sequencer:
        sequencer.start()
        sequencer.append(tokens(1, 2))
    assert examine(home, **env)[1]["log"]["detail"] == "2 leaves; 1 records agree"
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
def test_doctor_as_root_leaves_no_file_of_root_in_the_service_s_folders(home: Path, tmp_path: Path) -> None:
    """A file of root beside the log's database would keep the service from opening it."""
    env = {"ISSUER_LOG_RECORDS": str(tmp_path / "records"), "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
    assert run(["log", "init", "--config", str(home / "settings.yaml")], home, env=env).code == 0
    for path in tmp_path.rglob("*"):
        os.chown(path, 4711, 4712)
    assert examine(home, **env)[0] == 0
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")} == {(4711, 4712)}


# -- the store ----------------------------------------------------------------------------------------------------------


GOOD = ("--appendonly", "yes", "--maxmemory", "100mb")


@pytest.mark.long
def test_a_good_store_passes_and_is_not_written(home: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "store", *GOOD) as store:
        code, lines, _ = examine(home, ISSUER_STORE_URL=store.url)
        assert store.client.dbsize() == 0
    assert (code, bad(lines)) == (0, {})
    judged = {name for name in lines if name.startswith("store")} - {"store latency"}  # this machine may be slow
    assert {lines[name]["verdict"] for name in judged} == {"pass"}


STORES: list[tuple[tuple[str, ...], dict[str, str], str, str, str]] = [
    (("--maxmemory-policy", "allkeys-lru"), {}, "store eviction", "FAIL", "noeviction"),
    (("--rename-command", "CONFIG", ""), {}, "store eviction", "FAIL", "store.noeviction_stated"),
    (("--appendonly", "no"), {}, "store persistence", "warning", "appendonly yes"),
    (("--appendonly", "no"), {"ISSUER_STORE_DURABLE": "true"}, "store persistence", "FAIL", "appendfsync always"),
    (("--appendfsync", "everysec"), {"ISSUER_STORE_DURABLE": "true"}, "store persistence", "warning", "fsync always"),
    (("--maxmemory", "0"), {}, "store memory", "warning", "maxmemory"),
    ((), {"ISSUER_STORE_WAIT_REPLICAS": "1"}, "store replicas", "FAIL", "store.wait_replicas"),
]


@pytest.mark.long
def test_an_unsuitable_configuration_of_the_store_is_reported(home: Path, tmp_path: Path) -> None:
    for number, (options, env, name, verdict, text) in enumerate(STORES):
        with Store(tmp_path / str(number), *GOOD, *options) as store:
            code, lines, _ = examine(home, ISSUER_STORE_URL=store.url, **env)
        assert (lines[name]["verdict"], code) == (verdict, 6 if verdict == "FAIL" else 0), (options, env)
        assert (text in lines[name]["next"], lines[name]["code"]) == (True, "state.unsafe" if verdict == "FAIL" else "")
    with Store(tmp_path / "master", *GOOD) as master, Store(tmp_path / "replica", *GOOD) as store:
        store.is_replica_of(master)
        code, lines, _ = examine(home, ISSUER_STORE_URL=store.url)
    assert (code, lines["store role"]["code"]) == (6, "state.unsafe")
    assert "Name the master" in lines["store role"]["next"]


class Managed(socketserver.StreamRequestHandler):
    """A provider's managed store: it denies CONFIG, and INFO without `info`; it answers after `late_s`, and its clock is
    `skew_s` ahead."""

    skew_s, late_s, info = 0, 0.0, b""

    def handle(self) -> None:
        while count := self.rfile.readline():
            words = [self.rfile.readline() and self.rfile.readline().strip() for _ in range(int(count[1:]))]
            seconds = str(int(time.time()) + self.skew_s).encode()
            answers = {b"PING": b"+PONG", b"TIME": b"*2\r\n$%d\r\n%s\r\n$1\r\n0" % (len(seconds), seconds)}
            if self.info:
                answers[b"INFO"] = b"$%d\r\n%s" % (len(self.info), self.info)
            time.sleep(self.late_s)  # a slow peer
            self.wfile.write(answers.get(words[0].upper(), b"-NOPERM it is denied") + b"\r\n")


def examine_managed(home: Path, **traits: object) -> tuple[int, Lines, str]:
    """Examine a service with a managed store of these traits."""
    handler = type("Other", (Managed,), traits)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"redis://127.0.0.1:{server.server_address[1]}"
        done = examine(home, ISSUER_STORE_URL=url, ISSUER_STORE_NOEVICTION_STATED="true")
        server.shutdown()
    return done


@pytest.mark.long
def test_a_managed_store_is_judged_by_its_clock_its_version_and_its_speed(home: Path) -> None:
    cases: list[tuple[str, object, str, str, str]] = [
        ("skew_s", 0, "clock", "pass", ""),
        *(("skew_s", skew_s, "clock", "warning", "by NTP") for skew_s in (12, -12)),
        *(("skew_s", skew_s, "clock", "FAIL", "by NTP") for skew_s in (60, -60)),
        ("info", b"redis_version:6.0.16", "version", "FAIL", "6.2 or later"),
        ("info", b"redis_version:6.2.0", "version", "pass", ""),
        ("info", b"redis_version:10.0.1", "version", "pass", ""),
        ("info", b"redis_version:6.0.16\r\nvalkey_version:8.1.0", "version", "pass", ""),
        ("info", b"redis_version:?", "version", "warning", "6.2 or later"),
        ("late_s", 2 * DOCTOR_SLOW_MS / 1000, "latency", "warning", "near the service"),
    ]
    for trait, value, name, verdict, text in cases:
        code, lines, _ = examine_managed(home, **{trait: value})
        line = lines[f"store {name}"]
        assert (line["verdict"], code) == (verdict, 6 if verdict == "FAIL" else 0), (trait, value)
        assert text in line["next"], (trait, value)
        hidden = {name for name, line in lines.items() if name.startswith("store") and "hides" in line["detail"]}
        assert trait == "info" or hidden == {"store version", "store role", "store memory"}
        assert (name, verdict) != ("version", "FAIL") or "6.0.16 is too old" in line["detail"]


@pytest.mark.long
def test_the_secret_for_introspection_is_examined(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "introspection"
    asks = f'introspection: {{client_id: "x", client_secret_file: "{secret}", token_prefix: "acme_"}}'
    with (home / "policies" / "providers.yaml").open("a") as file:
        file.write(f'  opaque: {{profile: oauth-introspection, issuer: "https://o.example", {asks}}}\n')
    fault = ("FAIL", "settings.invalid")
    for mode, text, wanted in (
        (None, "", fault), (0o644, "hush", fault), (0o600, "two\nlines", fault), (0o600, "hush\n", ("pass", "")),
    ):  # fmt: skip
        if mode is not None:
            secret.write_text(text)
            secret.chmod(mode)
        _, lines, out = examine(home)
        line = lines["secret of opaque"]
        assert ((line["verdict"], line["code"]), "hush" in out) == (wanted, False)
        assert line["verdict"] == "pass" or str(secret) in line["detail"]


@pytest.mark.long
def test_a_store_address_or_proxy_of_the_settings_is_judged(home: Path) -> None:
    code, lines, out = examine(home, ISSUER_STORE_URL="redis://me:hush@127.0.0.1:1/0")
    assert (code, bad(lines), "hush" in out) == (6, {"store": "state.unreachable"}, False), "without its password"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, lines, _ = examine(home, ISSUER_LISTEN_PORT=str(taken.getsockname()[1]))
    assert (code, bad(lines)) == (6, {"address": "service.address"})
    _, lines, _ = examine(home, ISSUER_URL="https://issuer.example", ISSUER_DEVELOPMENT="false")
    assert lines["proxy"]["verdict"] == "warning"
    assert "listen.trusted_proxies" in lines["proxy"]["next"]


@pytest.mark.long
def test_a_database_that_does_not_answer_is_a_fault_without_its_password(home: Path, tmp_path: Path) -> None:
    env = {"ISSUER_LOG_DATABASE": "postgresql://me:hush@127.0.0.1:1/log", "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
    (home / "keys" / "log").mkdir(0o700)
    keyfile.write(home / "keys" / "log" / "log.pem", keyfile.generate())
    with Store(tmp_path / "store", *GOOD) as store:
        code, lines, out = examine(home, ISSUER_STORE_URL=store.url, ISSUER_LOG_RECORDS=str(tmp_path), **env)
    assert (code, bad(lines), "hush" in out) == (6, {"log": "state.unreachable"}, False)
    assert "127.0.0.1" in lines["log"]["detail"]


@pytest.mark.long
def test_postgresql_must_accept_the_connections_of_all_workers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    server, found = shared(), dict[int, str]()
    server.execute("CREATE ROLE few LOGIN")
    for most in (-1, 11, 10, 6, 5):
        server.execute(f"ALTER ROLE few CONNECTION LIMIT {most}")
        env = {"ISSUER_LOG_DATABASE": server.url(user="few"), "ISSUER_LOG_ORIGIN": "issuer.example/log/1"}
        line = examine(home, **env)[1]["log connections"]
        assert "a host needs 1, and 5 for each worker" in line["detail"]
        found[most] = line["verdict"]
    assert found == {-1: "pass", 11: "pass", 10: "warning", 6: "warning", 5: "FAIL"}


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
    assert examine(home)[1]["backup"]["verdict"] == "warning"
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
    assert examine(home)[1]["backup"]["verdict"] == "warning"
