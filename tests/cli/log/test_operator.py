"""`issuer log init`, `accept` and `restore`: what an operator does at night. Every refused start names the command that is
next; here that very command is run, and the log starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from issuer.errors import SetupError
from issuer.io import keyfile
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.log.bounds import MAX_LOGGED_URL_CHARS
from issuer.service.log.database.engines import reading_at
from issuer.service.log.database.store import Reader
from issuer.service.log.sequencer.records import FileRecord
from issuer.service.log.sequencer.setup import LogSettings, log_settings, read_seal, sequencer_of, turn
from issuer.service.settings.model import EMBEDDED
from issuer.service.settings.reader import read_settings
from issuer.tlog.checkpoint import Checkpoint, WitnessSubmission, parse_checkpoint
from issuer.tlog.note import parse_note, parse_vkey
from issuer.tlog.witness_policy import parse_policy
from tests.support.command import issuer
from tests.support.disk import fill, small_disk
from tests.support.log_store import postgres_place
from tests.support.sequencing import tokens
from tests.support.settings import settings_text
from tests.support.witnessing import RunningWitness, policy_text, witnessing

NEXT = re.compile(r"`issuer (log [^`]*)`")


class Operated:
    """A log in a folder, as an operator has it: a file of settings, and commands that are run with it."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        self.config = folder / "settings.yaml"
        self.members: dict[str, str | bool] = {
            "url": "https://issuer.example/a", "policies": "p", "store_url": "embedded", "keys_folder": str(folder / "keys"),
            "data": str(folder / "data"), "log_records": str(folder / "elsewhere"), **more,
        }  # fmt: skip
        self.set()

    def set(self, **members: str | bool) -> None:
        self.members |= members
        self.config.write_text(settings_text(**self.members))

    def run(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = issuer("log", *arguments, "--config", self.config)
        assert done.returncode == code, done
        return done

    def begin(self) -> str:
        """Begin the log, and put what it says into the settings; return all of that."""
        said = self.run("init").stdout
        origin = re.search(r'^  origin: "(.*)"$', said, re.M)
        assert origin is not None
        self.set(log_origin=origin[1])
        return said

    @property
    def log(self) -> LogSettings:
        settings = read_settings(self.config, {})
        return log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)

    @property
    def database(self) -> Path:
        return Path(self.log.database)

    def append(self, *numbers: int) -> Checkpoint:
        """Append the leaves of tokens, have the head cosigned, and return what the records then say."""
        with turn(self.log), closing(sequencer_of(self.log)) as sequencer:
            sequencer.start()
            sequencer.append(tokens(*numbers))
            published = sequencer.published
            assert published is not None
            sequencer.keep_cosigned(published.head.size, published.note)
        return self.recorded()

    def recorded(self) -> Checkpoint:
        note = FileRecord(self.folder / "elsewhere", self.log.origin).read()
        assert note is not None
        return parse_checkpoint(parse_note(note).text)

    def refused(self) -> str:
        """Start the log, as the service does, and return why it does not."""
        with pytest.raises(SetupError) as error, turn(self.log), closing(sequencer_of(self.log)) as sequencer:
            sequencer.start()
        return str(error.value)

    def export(self) -> Path:
        self.run_plain("export", self.folder / "export", "--from", self.log.database)
        return self.folder / "export"

    def run_plain(self, *arguments: object) -> None:
        done = issuer("log", *arguments)
        assert done.returncode == 0, done

    def keep_database(self) -> Path:
        """Copy the database aside, as a backup that is none of a running service; return the copy."""
        return Path(shutil.copy(self.database, self.folder / "old.sqlite"))

    def lose_database(self) -> None:
        shutil.rmtree(self.database.parent)

    def lose_records(self) -> None:
        shutil.rmtree(self.folder / "elsewhere")

    def leaves(self) -> tuple[bytes, ...]:
        reader = Reader(reading_at(self.log.database))
        head = reader.head()
        assert head is not None
        return reader.leaves(0, head.size)


@pytest.fixture
def operated(tmp_path: Path) -> Operated:
    made = Operated(tmp_path)
    made.begin()
    return made


def next_command(refusal: str, source: object = "", reason: str = "no mirror is ahead") -> list[str]:
    """Return the command that a refusal names first, with what it leaves to the operator."""
    named = NEXT.search(refusal)
    assert named is not None, refusal
    return [{"SOURCE": str(source), "WHY": reason}.get(word, word) for word in named[1].split()[1:]]


# -- init ----------------------------------------------------------------------------------------------------------------


def test_init_begins_a_log_that_starts_and_says_what_to_write_where(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    said = operated.begin()
    assert re.fullmatch(r"issuer\.example/a/log/20\d\d-\d\d-\d\d-[0-9a-f]{4}", operated.log.origin)
    policy = parse_policy(f"{said.splitlines()[-1]}\nquorum none\n".encode(), "policy")
    assert [log.verifier.name for log in policy.logs] == [operated.log.origin]
    assert operated.append(1, 2).size == 2
    key = tmp_path / "keys" / "log" / "log.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    public = keyfile.read(key).public_key().public_bytes_raw()
    assert parse_vkey(said.splitlines()[-1].removeprefix("log ")).public_key == public


def test_two_logs_never_have_one_origin(tmp_path: Path) -> None:
    origins = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        operated = Operated(tmp_path / name)
        operated.begin()
        origins.add(operated.log.origin)
    assert len(origins) == 2


def test_init_takes_the_origin_of_the_settings(tmp_path: Path) -> None:
    operated = Operated(tmp_path, log_origin="log.example/2026")
    assert '  origin: "log.example/2026"' in operated.run("init").stdout
    assert operated.append(1).origin == "log.example/2026"


def test_where_there_is_a_log_init_makes_nothing(operated: Operated) -> None:
    key = Path(operated.log.key_file)
    before = key.read_bytes()
    assert "is not empty" in operated.run("init", code=6).stderr
    assert key.read_bytes() == before
    key.unlink()
    assert "is not empty" in operated.run("init", code=6).stderr
    assert not key.exists(), "the log has a key, which is lost: a new one in its place would only hide that"


def test_init_without_a_folder_for_the_record_begins_nothing(tmp_path: Path) -> None:
    operated = Operated(tmp_path, log_records="")
    assert "log.records is not set" in operated.run("init", code=6).stderr
    assert not (tmp_path / "data" / "log" / "log.sqlite").exists()
    operated.set(log_records=str(tmp_path / "data" / "log"))
    assert "would restore both" in operated.run("init", code=6).stderr


def test_an_issuer_whose_name_has_no_room_in_a_leaf_has_no_log(tmp_path: Path) -> None:
    """Each of its tokens would be admitted, and then not be issued."""
    operated = Operated(
        tmp_path, url=f"https://issuer.example/{'a' * MAX_LOGGED_URL_CHARS}", log_origin="log.example/a"
    )
    assert "a leaf of the log has room for only 2048" in operated.run("init", code=6).stderr
    started = issuer("serve", "--config", operated.config)
    assert (started.returncode, "a leaf of the log has room for only 2048" in started.stderr) == (6, True)


def test_the_key_is_encrypted_where_the_keys_are(tmp_path: Path) -> None:
    passphrase = tmp_path / "passphrase"
    passphrase.touch(0o600)
    passphrase.write_text("of all keys\n")
    operated = Operated(tmp_path, keys_passphrase_file=str(passphrase))
    operated.begin()
    assert keyfile.is_encrypted(Path(operated.log.key_file))
    assert operated.append(1).size == 1
    passphrase.write_text("another\n")
    assert "or the passphrase is wrong" in operated.refused()
    assert "or the passphrase is wrong" in operated.run("restore", operated.database, code=6).stderr


def test_a_key_that_signs_tokens_is_no_log_s(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    assert issuer("keys", "generate", "--config", operated.config).returncode == 0
    (active,) = (tmp_path / "keys" / "active").iterdir()
    (tmp_path / "keys" / "log").mkdir(mode=0o700)
    shutil.copy(active, tmp_path / "keys" / "log" / "log.pem")
    assert "se a separate key for the log" in operated.run("init", code=6).stderr
    assert not operated.database.exists()
    (tmp_path / "keys" / "log" / "log.pem").unlink()
    operated.begin()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_what_root_begins_and_restores_belongs_to_the_service_s_user(tmp_path: Path) -> None:
    """At night the commands are run with `sudo`, and the service is not."""
    nobody = 65534
    for folder in (tmp_path, tmp_path / "data"):
        folder.mkdir(exist_ok=True)
        os.chown(folder, nobody, nobody)
    operated = Operated(tmp_path)
    operated.begin()
    operated.append(1, 2)
    export = operated.export()
    operated.lose_database()
    operated.lose_records()
    operated.run("restore", export, code=4)
    operated.run(*next_command(operated.refused()))
    made = [path for name in ("data", "elsewhere", "keys") for path in (tmp_path / name).rglob("*")]
    assert {path.name for path in made} >= {"log", "log.sqlite", "log.lock", "log.pem", "audit.jsonl"}
    assert {path.name for path in made if path.stat().st_uid != nobody} == set()


# -- a start that is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["export", "copy of the database"])
def test_the_database_is_lost(operated: Operated, source: str) -> None:
    operated.append(*range(300))
    found = operated.export() if source == "export" else operated.keep_database()
    newest, leaves = operated.recorded(), operated.leaves()
    operated.lose_database()
    refusal = operated.refused()
    assert refusal.startswith("log.absent")
    done = issuer(*["log", *next_command(refusal, found)], "--config", operated.config)
    assert done.returncode == 0, done
    assert f"appended 300 leaves, as {operated.folder}/elsewhere" in done.stdout
    assert operated.leaves() == leaves
    assert operated.append() == newest
    assert operated.append(1000).size == 301


@pytest.mark.parametrize("source", ["export", "database"])
def test_an_old_copy_was_put_back(operated: Operated, source: str) -> None:
    operated.append(*range(254))
    old = operated.keep_database()
    operated.append(*range(254, 700))
    newest, leaves = operated.recorded(), operated.leaves()
    found = operated.export() if source == "export" else shutil.copy(operated.database, operated.folder / "new.sqlite")
    shutil.move(old, operated.database)
    refusal = operated.refused()
    assert refusal.startswith("log.rollback")
    assert "446 fewer" in refusal
    done = issuer(*["log", *next_command(refusal, found)], "--config", operated.config)
    assert done.returncode == 0, done
    assert "appended 446 leaves" in done.stdout
    assert (operated.leaves(), operated.append()) == (leaves, newest)


def test_what_witnesses_cosigned_comes_back_out_of_a_database(operated: Operated) -> None:
    for number in range(3):
        operated.append(number)
    kept = operated.keep_database()
    operated.lose_database()
    operated.run("restore", kept)
    reader = Reader(reading_at(operated.log.database))
    assert [(reader.cosigned_over(size) or (0,))[0] for size in (1, 2, 3)] == [1, 2, 3]


def test_the_records_are_lost(operated: Operated) -> None:
    newest = operated.append(1, 2)
    operated.lose_records()
    refusal = operated.refused()
    assert refusal.startswith("log.unrecorded")
    done = issuer("log", *next_command(refusal, reason="disk died"), "--config", operated.config)
    assert done.returncode == 0, done
    assert operated.recorded() == newest
    assert operated.append(3).size == 3
    (line,) = (operated.folder / "data" / "audit.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["size"], event["root"]) == ("log_accepted", 2, newest.root.hex())
    assert (event["origin"], event["why"]) == (newest.origin, "disk died")
    assert "@" in event["who"]
    assert issuer("audit", "verify", operated.folder / "data" / "audit.jsonl").returncode == 0


def test_database_and_records_are_lost(operated: Operated) -> None:
    """Then nothing says that the mirror is the newest: the operator has to."""
    newest = operated.append(*range(5))
    mirror = operated.export()
    operated.lose_database()
    operated.lose_records()
    done = issuer("log", *next_command(operated.refused(), mirror), "--config", operated.config)
    assert done.returncode == 4, done
    assert operated.refused().startswith("log.unrecorded")
    accepted = issuer("log", *next_command(done.stderr), "--config", operated.config)
    assert accepted.returncode == 0, accepted
    assert operated.recorded() == newest
    operated.append(6)


def test_the_settings_name_another_origin(operated: Operated) -> None:
    operated.append(1)
    origin = operated.log.origin
    operated.set(log_origin="log.example/other")
    refusal = operated.refused()
    assert refusal.startswith("log.absent")
    assert origin in refusal
    assert "Correct log.origin" in refusal
    operated.set(log_database=str(operated.folder / "data" / "other" / "log.sqlite"))
    operated.run(*next_command(refusal)[:1])
    assert operated.log.origin == "log.example/other"
    with turn(operated.log), closing(sequencer_of(operated.log)) as sequencer:
        sequencer.start()


def test_the_key_is_lost(operated: Operated) -> None:
    operated.append(1)
    key = Path(operated.log.key_file)
    away = key.rename(operated.folder / "away.pem")
    refusal = operated.refused()
    assert "is missing. Restore it" in refusal
    for command in (["restore", operated.database], ["accept", "--size", 1, "--root", "0" * 64, "--reason", "x"]):
        assert "Restore it" in operated.run(*command, code=6).stderr
    away.rename(key)
    operated.append(2)
    key.unlink()
    members = {"log_origin": "", "log_database": str(operated.folder / "data" / "log-2" / "log.sqlite")}
    operated.set(**members)
    shutil.rmtree(operated.folder / "elsewhere")
    operated.begin()
    assert operated.append(1).size == 1


def test_another_key_in_its_place_is_no_record_s_signature(operated: Operated) -> None:
    """Its checkpoints would be believed by nobody: what it signs is not this log."""
    operated.append(1)
    key = Path(operated.log.key_file)
    key.unlink()
    keyfile.write(key, keyfile.generate())
    assert operated.refused().startswith("log.unrecorded")
    export = operated.export()
    assert "not signed by this log" in operated.run("restore", export, code=6).stderr


# -- accept --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "root"), [(1, None), (3, None), (2, "0" * 64)])
def test_only_the_very_tree_is_accepted_and_nothing_else_is_in_the_audit(
    operated: Operated, size: int, root: str | None
) -> None:
    newest = operated.append(1, 2)
    operated.lose_records()
    operated.run("accept", "--size", size, "--root", root or newest.root.hex(), "--reason", "x", code=6)
    assert not (operated.folder / "data" / "audit.jsonl").exists()
    assert operated.refused().startswith("log.unrecorded")


def test_a_record_that_is_ahead_cannot_be_accepted_away(operated: Operated) -> None:
    older = operated.append(1)
    old = operated.keep_database()
    operated.append(2)
    shutil.move(old, operated.database)
    said = operated.run("accept", "--size", 1, "--root", older.root.hex(), "--reason", "x", code=6).stderr
    assert "log.rollback" in said


def test_nothing_is_accepted_without_its_audit(operated: Operated) -> None:
    newest = operated.append(1)
    operated.lose_records()
    (operated.folder / "data" / "audit.jsonl").mkdir()
    operated.run("accept", "--size", 1, "--root", newest.root.hex(), "--reason", "x", code=6)
    assert operated.refused().startswith("log.unrecorded")


@pytest.mark.parametrize("wrong", [("--root", "ab"), ("--root", "A" * 64), ("--reason", " "), ("--size", "-1")])
def test_accept_takes_no_other_grammar(operated: Operated, wrong: tuple[str, str]) -> None:
    given = {"--size": "1", "--root": "0" * 64, "--reason": "x"} | dict([wrong])
    operated.run("accept", *(word for pair in given.items() for word in pair), code=2)


# -- a witness is a record, too --------------------------------------------------------------------------------------------


class Watched:
    """A log of three leaves of which one witness knows, and `old`, a copy of its database with the first; no record is
    left."""

    def __init__(self, operated: Operated, witness: RunningWitness, policy: Path) -> None:
        self.operated = operated
        policy.write_text(
            policy_text([witness.logs.read_text().split()[1]], [f"witness w1 {witness.vkey} {witness.url}"])
        )
        operated.set(log_witness_policy=str(policy), development=True)
        self.older = operated.append(1)
        self.old = operated.keep_database()
        self.newest = operated.append(2, 3)
        note = FileRecord(operated.folder / "elsewhere", operated.log.origin).read() or b""
        assert witness.submit(WitnessSubmission(0, (), note).to_bytes()).status_code == 200
        operated.lose_records()


@pytest.fixture
def watched(operated: Operated, tmp_path: Path) -> Iterator[Watched]:
    with witnessing(tmp_path / "w", [read_seal(operated.log).verifier.to_text()]) as witness:
        yield Watched(operated, witness, tmp_path / "policy")


@pytest.mark.long
def test_what_a_witness_has_seen_cannot_be_accepted_away(watched: Watched) -> None:
    operated = watched.operated
    shutil.move(watched.old, operated.database)
    arguments = ("accept", "--size", 1, "--root", watched.older.root.hex(), "--reason", "nobody has seen more")
    said = operated.run(*arguments, code=6).stderr
    assert "1 leaves, 2 fewer than witness w1 shows" in said
    assert not (operated.folder / "data" / "audit.jsonl").exists()
    assert operated.refused().startswith("log.unrecorded"), "no record says what was refused"
    operated.set(log_witnesses_excluded="w1")
    operated.run(*arguments)
    assert operated.recorded() == watched.older


@pytest.mark.long
def test_what_only_a_witness_remembers_is_restored_and_nothing_less(watched: Watched) -> None:
    operated = watched.operated
    newest = shutil.copy(operated.database, operated.folder / "newest.sqlite")
    operated.lose_database()
    assert "has 1 leaves, 2 fewer than witness w1 shows" in operated.run("restore", watched.old, code=6).stderr
    assert "appended 3 leaves, as witness w1 shows" in operated.run("restore", newest).stdout
    assert operated.recorded() == watched.newest
    assert operated.append(4).size == 4


@pytest.mark.long
def test_an_origin_that_a_witness_knows_is_not_begun_again(watched: Watched) -> None:
    operated = watched.operated
    operated.lose_database()
    assert "has leaves already, as witness w1 shows" in operated.run("init", code=6).stderr


# -- restore refuses -----------------------------------------------------------------------------------------------------


def lost_behind_an_export(operated: Operated, size: int = 600) -> Path:
    operated.append(*range(size))
    export = operated.export()
    operated.lose_database()
    return export


@pytest.mark.parametrize(
    "path", ["tile/entries/000", "tile/entries/002.p/88", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2"]
)
def test_a_tampered_export_is_refused_wherever_it_is(operated: Operated, path: str) -> None:
    file = lost_behind_an_export(operated) / path
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(raw)
    done = operated.run("restore", operated.folder / "export", code=1)
    assert "log.unverified" in done.stderr
    assert operated.refused().startswith(("log.rollback", "log.absent"))


def test_a_leaf_that_was_exchanged_in_a_database_is_refused(operated: Operated) -> None:
    operated.append(*range(10))
    copy = operated.keep_database()
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("UPDATE entries SET leaf = (SELECT leaf FROM entries WHERE idx = 1) WHERE idx = 4")
        connection.commit()
    operated.lose_database()
    assert "leaf 4 does not match its hash" in operated.run("restore", copy, code=1).stderr


def test_a_source_that_is_behind_the_record_is_refused_and_a_newer_one_is_not(operated: Operated) -> None:
    operated.append(*range(10))
    behind = operated.keep_database()
    operated.append(11, 12)
    newest = shutil.copy(operated.database, operated.folder / "newest.sqlite")
    operated.lose_database()
    said = operated.run("restore", behind, code=6).stderr
    assert "has 10 leaves, 2 fewer than" in said
    operated.run("restore", newest)
    operated.append(13)


def test_a_mirror_that_is_ahead_of_the_record_is_believed_by_its_signature(operated: Operated) -> None:
    """The record is an old copy, too: what was published is what was signed."""
    operated.append(1)
    records = shutil.copytree(operated.folder / "elsewhere", operated.folder / "old records")
    old = operated.keep_database()
    newest = operated.append(2, 3)
    export = operated.export()
    shutil.move(old, operated.database)
    shutil.rmtree(operated.folder / "elsewhere")
    shutil.move(records, operated.folder / "elsewhere")
    operated.run("restore", export)
    assert operated.recorded() == newest


def test_another_log_s_export_is_refused(operated: Operated, tmp_path: Path) -> None:
    operated.append(1)
    operated.lose_database()
    (tmp_path / "other").mkdir()
    other = Operated(tmp_path / "other")
    other.begin()
    other.append(1, 2, 3)
    assert "not signed by this log" in operated.run("restore", other.export(), code=6).stderr
    assert not operated.database.exists()


def test_a_database_that_is_no_beginning_of_what_was_published_is_left_as_it_is(operated: Operated) -> None:
    fork = operated.keep_database()
    operated.append(1, 2)
    right, records = operated.export(), shutil.copytree(operated.folder / "elsewhere", operated.folder / "kept")
    shutil.move(fork, operated.database)
    operated.lose_records()
    (operated.folder / "elsewhere").mkdir()
    operated.append(3)
    shutil.rmtree(operated.folder / "elsewhere")
    shutil.move(records, operated.folder / "elsewhere")
    before = operated.leaves()
    done = operated.run("restore", right, code=6)
    assert "restore into a new place" in done.stderr
    assert operated.leaves() == before
    shutil.rmtree(operated.database.parent)
    operated.run("restore", right)
    operated.append(4)


@pytest.mark.parametrize("source", ["nowhere", "a file that is none", "an empty folder"])
def test_what_is_no_log_is_no_source(operated: Operated, tmp_path: Path, source: str) -> None:
    operated.append(1)
    (tmp_path / "a file that is none").write_bytes(b"x" * 5000)
    (tmp_path / "an empty folder").mkdir()
    done = operated.run("restore", tmp_path / source, code=4 if "file" in source else 3)
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_nothing_is_restored_under_a_running_service(operated: Operated) -> None:
    operated.append(1)
    with turn(operated.log):
        assert "another process writes the log" in operated.run("restore", operated.database, code=6).stderr


def test_an_interrupted_restore_goes_on_where_it_stopped(operated: Operated) -> None:
    """A disk that is full; then one that is not."""
    export = lost_behind_an_export(operated, 3000)
    newest = operated.recorded()
    with small_disk(operated.folder / "small", "400k") as disk:
        operated.set(log_database=str(disk / "log" / "log.sqlite"))
        done = operated.run("restore", export, code=6)
        assert "state.unreachable" in done.stderr
        half = operated.leaves()
        assert len(half) < 3000
        assert operated.refused().startswith(("log.rollback", "state.unreachable"))
        shutil.copytree(disk / "log", operated.folder / "larger")
    operated.set(log_database=str(operated.folder / "larger" / "log.sqlite"))
    said = operated.run("restore", export).stdout
    assert f"appended {3000 - len(half)} leaves" in said
    assert operated.append() == newest


def test_on_a_full_disk_init_begins_nothing_and_later_begins(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "300k") as disk:
        operated = Operated(tmp_path, data=str(disk / "data"))
        filler = fill(disk / "filler")
        operated.run("init", code=6)
        assert not (tmp_path / "keys" / "log" / "log.pem").exists()
        filler.unlink()
        operated.begin()
        operated.append(1)


@pytest.mark.long
def test_all_of_it_with_postgresql(tmp_path: Path) -> None:
    with postgres_place(tmp_path) as old, postgres_place(tmp_path) as new, EmbeddedValkey() as store:
        operated = Operated(tmp_path, log_database=old.setting)
        assert "Name the store that all hosts share" in operated.run("init", code=6).stderr
        operated.set(store_url=store)
        operated.begin()
        newest = operated.append(*range(600))
        operated.set(log_database=new.setting)
        refusal = operated.refused()
        assert refusal.startswith("log.absent")
        done = issuer("log", *next_command(refusal, old.setting), "--config", operated.config)
        assert done.returncode == 0, done
        assert operated.append() == newest
        operated.lose_records()
        with redis.Redis.from_url(store, protocol=2) as client:
            client.flushall()
        accepted = issuer("log", *next_command(operated.refused()), "--config", operated.config)
        assert accepted.returncode == 0, accepted
        assert operated.append(1000).size == 601
