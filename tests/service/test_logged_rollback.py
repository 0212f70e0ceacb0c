"""A service whose log's database was set back: each record alone refuses the start, and the refusal names the command that
restores the log."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import environment
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.settings.model import Settings
from issuer.tlog.leaf import KeyLeaf, PolicyLeaf, TokenLeaf, read_leaf
from tests.support.command import issuer
from tests.support.logged import Begun, demand_cosigned, demand_logged, leaf_of, leaves_in
from tests.support.running import Running
from tests.support.scripted import reply
from tests.support.witnessing import RunningWitness, ScriptedWitness, witnessing

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
RECORDS = {"file": r"records/[0-9a-f]{32}\.checkpoint", "store": "the store at", "witness": "witness w1"}


class PutBack:
    """A log whose database is an old copy; `newest` is its last one. `tokens` are one from before that copy, and the last one."""

    def __init__(self, folder: Path, provider: LocalProvider, store: str) -> None:
        self.provider = provider
        self.store = store
        self.log = Begun(folder / "service", store=store)
        self.database = Path(self.log.log.database)
        self.newest = folder / "newest" / self.database.name
        self.tokens: list[str] = []
        self.more: dict[str, str] = {}
        self.settings: Settings
        self.witness: RunningWitness

    def go(self, witness: RunningWitness) -> None:
        """Issue two tokens, and put back what was there after the first."""
        self.witness = witness
        self.log.trust(witness, quorum=1)
        old = self.newest.parent.with_name("old")
        for while_it_runs in (old, None):
            with self.served(witnessed=True) as service:
                self.settings = service.settings
                self.tokens.append(issued(service))
                demand_cosigned(service, self.tokens[-1])
                if while_it_runs:
                    self.copy(while_it_runs)
        self.copy(self.newest.parent)  # now: until its end a service announces
        shutil.rmtree(self.database.parent)
        shutil.copytree(old, self.database.parent)

    def copy(self, folder: Path) -> None:
        """Copy the database as deploy/LOG.md says."""
        folder.mkdir()
        with closing(sqlite3.connect(self.database)) as database:
            database.execute("VACUUM INTO ?", [str(folder / self.database.name)])

    def forget(self, *records: str) -> None:
        """Delete the records of these kinds. A witness cannot be made to forget."""
        if "file" in records:
            shutil.rmtree(self.log.log.records)
            Path(self.log.log.records).mkdir()
        if "store" in records:
            with redis.Redis.from_url(self.store, protocol=2) as client:
                client.delete(*client.keys("{evi1}:log:*"))

    def served(self, *, witnessed: bool) -> AbstractContextManager[Running]:
        return (self.log.witnessed if witnessed else self.log.served)(self.provider, **self.more)

    def refused(self, said: str, *, witnessed: bool) -> str:
        """Start the service in vain, and return why it did not start."""
        log = self.log.folder / "service.log"
        log.write_text("")
        with pytest.raises(AssertionError, match="did not start"), self.served(witnessed=witnessed):
            pass
        assert re.search(said, log.read_text()), log.read_text()
        return log.read_text()

    def run(self, command: str, *, witnessed: bool) -> None:
        env = environment(self.settings) | ({} if witnessed else {"ISSUER_LOG_WITNESS_POLICY": ""})
        words = [{"SOURCE": str(self.newest), "WHY": "nobody has"}.get(word, word) for word in command.split()]
        done = issuer(*words, env=env)
        assert done.returncode == 0, done


def issued(service: Running) -> str:
    answer = service.post(service.token())
    assert answer.status_code == 201, answer.text
    return str(answer.json()["verify_token"])


def named_in(refusal: str) -> str:
    found = re.search(r"`issuer (log (?:restore|accept) [^`]*)`", refusal)
    assert found, refusal
    return found[1]


@pytest.fixture
def put_back(tmp_path: Path) -> Iterator[PutBack]:
    with LocalProvider() as provider, EmbeddedValkey() as store:
        made = PutBack(tmp_path, provider, store)
        with witnessing(tmp_path / "w", [made.log.vkey]) as witness:
            made.go(witness)
            yield made


@pytest.mark.parametrize("record", sorted(RECORDS))
def test_each_record_alone_refuses_the_start_and_the_named_command_brings_all_back(
    put_back: PutBack, record: str
) -> None:
    put_back.forget(*RECORDS.keys() - {record})
    witnessed = record == "witness"
    refusal = put_back.refused(rf"log\.rollback.*fewer than.*{RECORDS[record]}", witnessed=witnessed)
    put_back.run(named_in(refusal), witnessed=witnessed)
    with put_back.served(witnessed=witnessed) as service:
        put_back.tokens.append(issued(service))
        leaves = leaves_in(service)
    places = [leaves.index(read_leaf(leaf_of(token))) for token in put_back.tokens]
    assert places == sorted(places)


def test_a_witness_with_a_monitor_url_is_asked_at_both_urls(put_back: PutBack) -> None:
    """The URL for submissions does not answer; the checkpoint at the other URL is enough."""
    put_back.forget("file", "store")
    with ScriptedWitness(lambda *_: reply(503)) as away:
        put_back.log.trust(replace(put_back.witness, port=int(away.url.rpartition(":")[2])), quorum=1)
        put_back.refused(r"log\.unrecorded", witnessed=True)
        put_back.more = {"log_witness_monitors": f"w1={put_back.witness.url}"}
        put_back.refused(r"log\.rollback.*fewer than witness w1 shows", witnessed=True)


def test_without_any_record_the_operator_must_accept_the_old_log(put_back: PutBack) -> None:
    put_back.forget("file", "store")
    refusal = put_back.refused(r"log\.unrecorded", witnessed=False)
    put_back.run(named_in(refusal), witnessed=False)
    with put_back.served(witnessed=False) as service:
        leaves = leaves_in(service)
    assert [read_leaf(leaf_of(token)) in leaves for token in put_back.tokens] == [True, False]
    audit = put_back.settings.audit_file.read_text().splitlines()
    (event,) = [each for each in audit if '"log_accepted"' in each]
    assert "nobody has" in event
    put_back.refused(r"log\.rollback.*witness w1", witnessed=True)


def test_a_spare_log_announces_keys_and_policies_before_its_first_token(tmp_path: Path) -> None:
    """The database and all leaves of the first log are lost."""
    with LocalProvider() as provider:
        log = Begun(tmp_path / "service")
        spare = {
            "log_origin": f"{log.log.origin}-spare",
            "log_database": str(tmp_path / "service" / "data" / "spare" / "log.sqlite"),
            "log_key_file": str(tmp_path / "service" / "keys" / "log" / "spare.pem"),
        }
        with log.served(provider) as service:
            first = issued(service)
            env = environment(service.settings) | {f"ISSUER_{name.upper()}": value for name, value in spare.items()}
        made = issuer("log", "init", env=env | {"ISSUER_LOG_WITNESS_POLICY": ""})
        assert made.returncode == 0, made
        shutil.rmtree(Path(log.log.database).parent)
        log.policy.write_text(f"{made.stdout.splitlines()[-1]}\n{log.policy.read_text()}")
        with log.served(provider, **spare) as service:
            token = service.post(service.token()).json()
            demand_logged(service, token)
            leaves = leaves_in(service)
            said = read_leaf(leaf_of(token["verify_token"]))
            assert isinstance(said, TokenLeaf)
            before = leaves[: leaves.index(said)]
            about = service.http.get("/.well-known/eval-token-issuer").json()
    assert read_leaf(leaf_of(first)) not in leaves
    assert {type(leaf) for leaf in before} >= {KeyLeaf, PolicyLeaf}
    assert not [leaf for leaf in before if isinstance(leaf, TokenLeaf)]
    assert about["log_origin"] == token["log"]["origin"] == spare["log_origin"]
