"""The PostgreSQL of the log's tests (tests/support/postgresql.py) is durable, and ends with its test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with postgresql() as running:
        running.execute("create table entries (idx int primary key)")
        yield running


def count(server: PostgreSQL) -> int:
    ((rows,),) = server.execute("select count(*) from entries")
    return int(rows)


def test_it_is_durable_and_listens_only_on_its_own_socket(server: PostgreSQL) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
    assert [server.execute(f"show {name}") for name in names] == [[("on",)], [("on",)], [("on",)], [("",)]]
    assert server.folder.stat().st_mode & 0o777 == 0o700


def test_a_committed_row_survives_a_kill(server: PostgreSQL) -> None:
    before = count(server)
    server.execute(f"insert into entries values ({before})")
    server.kill()
    server.start()
    assert count(server) == before + 1


def test_a_proxy_cuts_between_a_commit_and_its_answer(server: PostgreSQL) -> None:
    before = count(server)
    with Proxy(server) as proxy, psycopg.connect(proxy.url()) as connection:
        connection.execute("insert into entries values (%s)", (before,))
        proxy.at_commit = is_cut
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
        assert proxy.commits == 1
    assert count(server) == before + 1


def test_a_promoted_synchronous_replica_has_every_commit() -> None:
    with postgresql() as primary:
        primary.execute("create table entries (idx int primary key)")
        replica = primary.replica("second")
        assert replica.execute("select pg_is_in_recovery()") == [(True,)]
        primary.wait_for("second")
        primary.execute("insert into entries values (0)")
        primary.kill()
        replica.promote()
        assert replica.execute("select pg_is_in_recovery()") == [(False,)]
        assert count(replica) == 1


@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_with_its_starter_even_if_that_is_killed(*, stopped: bool) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        folder, pid = starter.stdout.readline().split()
        running = running_in(Path(folder))
        assert int(pid) in running
        for each in running if stopped else ():
            os.kill(each, signal.SIGSTOP)
        starter.kill()
    assert within(30, lambda: not Path(folder).exists())
    assert not any(is_running(each) for each in running)
