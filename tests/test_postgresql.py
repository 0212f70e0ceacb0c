"""The PostgreSQL of the log's tests (tests/support/postgresql.py) is durable, and ends with its test."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.postgresql import PostgreSQL, postgresql
from tests.support.postgresql_proxy import Proxy, is_cut
from tests.support.processes import is_running
from tests.support.reaper import running_in
from tests.support.shared import ROOT
from tests.support.waiting import within

PROGRAM = """
from tests.support.postgresql import postgresql
with postgresql() as server:
    print(server.folder, server.process.pid, flush=True)
    input()
"""


def count(server: PostgreSQL) -> int:
    ((rows,),) = server.execute("select count(*) from entries")
    return int(rows)


def test_a_committed_row_survives_a_kill_a_cut_connection_and_a_promotion() -> None:
    with postgresql() as primary:
        names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
        assert [primary.execute(f"show {name}") for name in names] == [[("on",)], [("on",)], [("on",)], [("",)]]
        assert primary.folder.stat().st_mode & 0o777 == 0o700, "it listens only on its own socket"
        primary.execute("create table entries (idx int primary key)")
        primary.execute("insert into entries values (0)")
        primary.kill()
        primary.start()
        assert count(primary) == 1

        with Proxy(primary) as proxy, psycopg.connect(proxy.url()) as connection:
            connection.execute("insert into entries values (1)")
            proxy.at_commit = is_cut
            with pytest.raises(psycopg.OperationalError):  # between the commit and its answer
                connection.commit()
            assert proxy.commits == 1
        assert count(primary) == 2

        replica = primary.replica("second")
        assert replica.execute("select pg_is_in_recovery()") == [(True,)]
        primary.wait_for("second")
        primary.execute("insert into entries values (2)")
        primary.kill()
        replica.promote()
        assert replica.execute("select pg_is_in_recovery()") == [(False,)]
        assert count(replica) == 3


def test_it_ends_with_its_starter_even_if_that_is_killed_and_it_is_stopped() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        folder, pid = starter.stdout.readline().split()
        running = running_in(Path(folder))
        assert int(pid) in running
        for each in running:
            os.kill(each, signal.SIGSTOP)
        starter.kill()
    assert within(30, lambda: not Path(folder).exists())
    assert not any(is_running(each) for each in running)
