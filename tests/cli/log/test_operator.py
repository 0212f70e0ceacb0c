"""`issuer log init`, `accept` and `restore`: an operator's commands at night. Every refused start names the command that is
next; a test runs this command, and the log starts."""

import json
import os
import re
import shutil
import stat
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
from tests.support.in_process import Done
from tests.support.log_store import postgres_place
from tests.support.sequencing import tokens
from tests.support.settings import settings_text
from tests.support.witnessing import RunningWitness, policy_text, witnessing

NEXT = re.compile(r"`issuer (log [^`]*)`")


def run(*arguments: object) -> Done:
    done = issuer(*arguments)  # not in this process: the log stream needs a real standard error
    return Done(done.returncode, done.stdout, done.stderr)


class Operated:
    """An operator's log in a folder: a file of settings, and commands that use it."""

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

    def run(self, *arguments: object, code: int = 0) -> Done:
        done = run("log", *arguments, "--config", self.config)
        assert done.code == code, done
        return done

    def follow(self, refusal: str, source: object = "", reason: str = "no mirror is ahead", code: int = 0) -> Done:
        """Run the command that a refusal names first, with the operator's words in it."""
        named = NEXT.search(refusal)
        assert named is not None, refusal
        words = [{"SOURCE": source, "WHY": reason}.get(word, word) for word in named[1].split()[1:]]
        return self.run(*words, code=code)

    def begin(self) -> str:
        """Begin the log, and put its origin into the settings; return the command's output."""
        output = self.run("init").out
        origin = re.search(r'^  origin: "(.*)"$', output, re.M)
        assert origin is not None
        self.set(log_origin=origin[1])
        return output

    @property
    def log(self) -> LogSettings:
        settings = read_settings(self.config, {})
        return log_settings(settings, "" if settings.store.url == EMBEDDED else settings.store.url)

    @property
    def database(self) -> Path:
        return Path(self.log.database)

    def append(self, *numbers: int) -> Checkpoint:
        """Append the leaves of tokens, keep a cosigned head, and return the recorded checkpoint."""
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
        """Start the log, as the service does, and return the reason of its refusal."""
        with pytest.raises(SetupError) as error, turn(self.log), closing(sequencer_of(self.log)) as sequencer:
            sequencer.start()
        return str(error.value)

    def export(self) -> Path:
        done = run("log", "export", self.folder / "export", "--from", self.log.database)
        assert done.code == 0, done
        return self.folder / "export"

    def keep_database(self, name: str = "old.sqlite") -> Path:
        """Copy the database aside, and return the copy; no service is running."""
        return Path(shutil.copy(self.database, self.folder / name))

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


# -- init ----------------------------------------------------------------------------------------------------------------


def test_init_begins_a_log_that_starts_and_prints_its_policy_line(tmp_path: Path) -> None:
    operated = Operated(tmp_path)
    line = operated.begin().splitlines()[-1]
    assert re.fullmatch(r"issuer\.example/a/log/20\d\d-\d\d-\d\d-[0-9a-f]{4}", operated.log.origin)
    policy = parse_policy(f"{line}\nquorum none\n".encode(), "policy")
    assert [log.verifier.name for log in policy.logs] == [operated.log.origin]
    assert operated.append(1, 2).size == 2
    key = tmp_path / "keys" / "log" / "log.pem"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (key, key.parent)] == [0o600, 0o700]
    assert parse_vkey(line.removeprefix("log ")).public_key == keyfile.read(key).public_key().public_bytes_raw()
    (tmp_path / "named").mkdir()
    named = Operated(tmp_path / "named", log_origin="log.example/2026")
    assert '  origin: "log.example/2026"' in named.run("init").out
    assert named.append(1).origin == "log.example/2026", "the one of the settings"


def test_init_changes_no_log_that_exists(operated: Operated) -> None:
    key = Path(operated.log.key_file)
    before = key.read_bytes()
    assert "is not empty" in operated.run("init", code=6).err
    assert key.read_bytes() == before
    key.unlink()
    assert "is not empty" in operated.run("init", code=6).err
    assert not key.exists(), "the log has a key, which is lost: a new one in its place would only hide that"


def test_init_without_a_folder_for_the_record_or_a_short_url_begins_no_log(tmp_path: Path) -> None:
    """With a longer URL, each token would be admitted, and then not be issued."""
    operated = Operated(tmp_path, log_records="")
    assert "log.records is not set" in operated.run("init", code=6).err
    operated.set(log_records=str(tmp_path / "data" / "log"))
    assert "would restore both" in operated.run("init", code=6).err
    url = f"https://issuer.example/{'a' * MAX_LOGGED_URL_CHARS}"
    operated.set(log_records=str(tmp_path / "elsewhere"), url=url, log_origin="log.example/a")
    assert "a leaf of the log has room for only 2048" in operated.run("init", code=6).err
    assert not (tmp_path / "data" / "log" / "log.sqlite").exists()
    started = run("serve", "--config", operated.config)
    assert (started.code, "a leaf of the log has room for only 2048" in started.err) == (6, True)


def test_the_log_s_key_is_encrypted_if_the_other_keys_are(tmp_path: Path) -> None:
    passphrase = tmp_path / "passphrase"
    passphrase.touch(0o600)
    passphrase.write_text("of all keys\n")
    operated = Operated(tmp_path, keys_passphrase_file=str(passphrase))
    operated.begin()
    assert keyfile.is_encrypted(Path(operated.log.key_file))
    assert operated.append(1).size == 1
    passphrase.write_text("another\n")
    assert "or the passphrase is wrong" in operated.refused()
    assert "or the passphrase is wrong" in operated.run("restore", operated.database, code=6).err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_files_that_root_begins_and_restores_belong_to_the_service_s_user(tmp_path: Path) -> None:
    """At night operators run the commands with `sudo`; the service runs as its user."""
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
    operated.follow(operated.refused())
    made = [path for name in ("data", "elsewhere", "keys") for path in (tmp_path / name).rglob("*")]
    assert {path.name for path in made} >= {"log", "log.sqlite", "log.lock", "log.pem", "audit.jsonl"}
    assert {path.name for path in made if path.stat().st_uid != nobody} == set()


# -- a start that is refused ---------------------------------------------------------------------------------------------


def test_a_lost_database_is_restored_from_an_export(operated: Operated) -> None:
    operated.append(*range(300))
    export, newest, leaves = operated.export(), operated.recorded(), operated.leaves()
    operated.lose_database()
    refusal = operated.refused()
    assert refusal.startswith("log.absent")
    assert f"appended 300 leaves, as {operated.folder}/elsewhere" in operated.follow(refusal, export).out
    assert (operated.leaves(), operated.append()) == (leaves, newest)
    assert operated.append(1000).size == 301


def test_an_old_copy_of_the_database_is_completed_from_a_newer_one(operated: Operated) -> None:
    for number in range(3):
        operated.append(number)
    operated.append(*range(3, 254))
    old = operated.keep_database()
    operated.append(*range(254, 700))
    newest, leaves, newer = operated.recorded(), operated.leaves(), operated.keep_database("new.sqlite")
    shutil.move(old, operated.database)
    refusal = operated.refused()
    assert (refusal.partition(":")[0], "446 fewer" in refusal) == ("log.rollback", True)
    assert "appended 446 leaves" in operated.follow(refusal, newer).out
    assert (operated.leaves(), operated.append()) == (leaves, newest)
    operated.lose_database()
    operated.run("restore", newer)
    reader = Reader(reading_at(operated.log.database))
    cosigned = [(reader.cosigned_over(size) or (0,))[0] for size in (1, 2, 3, 4, 255)]
    assert cosigned == [1, 2, 3, 254, 700], "cosigned checkpoints are restored, too"


def test_lost_records_are_accepted_with_an_audit_event(operated: Operated) -> None:
    newest = operated.append(1, 2)
    operated.lose_records()
    refusal = operated.refused()
    assert refusal.startswith("log.unrecorded")
    operated.follow(refusal, reason="disk died")
    assert operated.recorded() == newest
    assert operated.append(3).size == 3
    audit = operated.folder / "data" / "audit.jsonl"
    (event,) = map(json.loads, audit.read_text().splitlines())
    assert (event["event"], event["size"], event["root"]) == ("log_accepted", 2, newest.root.hex())
    assert (event["origin"], event["why"], "@" in event["who"]) == (newest.origin, "disk died", True)
    assert run("audit", "verify", audit).code == 0


def test_without_database_and_records_the_operator_accepts_the_mirror(operated: Operated) -> None:
    """No record shows that the mirror is the newest: the operator has to state it."""
    newest = operated.append(*range(5))
    mirror = operated.export()
    operated.lose_database()
    operated.lose_records()
    done = operated.follow(operated.refused(), mirror, code=4)
    assert operated.refused().startswith("log.unrecorded")
    operated.follow(done.err)
    assert operated.recorded() == newest
    operated.append(6)


def test_settings_with_another_origin_are_refused_and_may_begin_another_log(operated: Operated) -> None:
    operated.append(1)
    origin = operated.log.origin
    operated.set(log_origin="log.example/other")
    refusal = operated.refused()
    assert refusal.startswith("log.absent")
    assert (origin in refusal, "Correct log.origin" in refusal) == (True, True)
    operated.set(log_database=str(operated.folder / "data" / "other" / "log.sqlite"))
    operated.run("init")
    assert operated.log.origin == "log.example/other"
    with turn(operated.log), closing(sequencer_of(operated.log)) as sequencer:
        sequencer.start()


def test_without_its_key_the_log_stops_until_another_log_begins(operated: Operated) -> None:
    operated.append(1)
    key = Path(operated.log.key_file)
    away = key.rename(operated.folder / "away.pem")
    assert "is missing. Restore it" in operated.refused()
    for command in (["restore", operated.database], ["accept", "--size", 1, "--root", "0" * 64, "--reason", "x"]):
        assert "Restore it" in operated.run(*command, code=6).err
    away.rename(key)
    operated.append(2)
    key.unlink()
    operated.set(log_origin="", log_database=str(operated.folder / "data" / "log-2" / "log.sqlite"))
    operated.lose_records()
    operated.begin()
    assert operated.append(1).size == 1


# -- accept --------------------------------------------------------------------------------------------------------------


def test_only_the_current_tree_is_accepted_and_only_with_an_audit_event(operated: Operated) -> None:
    newest, audit = operated.append(1, 2), operated.folder / "data" / "audit.jsonl"
    root = newest.root.hex()
    operated.lose_records()
    for size, given in ((1, root), (3, root), (2, "0" * 64)):
        operated.run("accept", "--size", size, "--root", given, "--reason", "x", code=6)
        assert not audit.exists()
    for wrong in (("--root", "ab"), ("--root", "A" * 64), ("--reason", " "), ("--size", "-1")):
        words = {"--size": "2", "--root": root, "--reason": "x"} | dict([wrong])
        operated.run("accept", *(word for pair in words.items() for word in pair), code=2)
    audit.mkdir()
    operated.run("accept", "--size", 2, "--root", root, "--reason", "x", code=6)
    assert operated.refused().startswith("log.unrecorded")


# -- a witness is a record, too --------------------------------------------------------------------------------------------


class Watched:
    """A log of three leaves that one witness has cosigned, and `old`, a copy of its database with the first leaf. The
    records are lost."""

    def __init__(self, operated: Operated, witness: RunningWitness, policy: Path) -> None:
        self.operated = operated
        lines = [f"witness w1 {witness.vkey} {witness.url}"]
        policy.write_text(policy_text([witness.logs.read_text().split()[1]], lines))
        operated.set(log_witness_policy=str(policy), development=True)
        self.older = operated.append(1)
        self.old = operated.keep_database()
        self.newest = operated.append(2, 3)
        note = FileRecord(operated.folder / "elsewhere", operated.log.origin).read() or b""
        assert witness.submit(WitnessSubmission(0, (), note).to_bytes()).status_code == 200
        operated.lose_records()


@pytest.mark.long
def test_a_tree_that_a_witness_has_seen_is_restored_whole_and_not_accepted_away(
    operated: Operated, tmp_path: Path
) -> None:
    with witnessing(tmp_path / "w", [read_seal(operated.log).verifier.to_text()]) as witness:
        watched = Watched(operated, witness, tmp_path / "policy")
        newest = operated.keep_database("newest.sqlite")
        operated.lose_database()
        assert "has leaves already, as witness w1 shows" in operated.run("init", code=6).err
        assert "has 1 leaves, 2 fewer than witness w1 shows" in operated.run("restore", watched.old, code=6).err
        assert "appended 3 leaves, as witness w1 shows" in operated.run("restore", newest).out
        assert operated.recorded() == watched.newest
        operated.lose_records()
        shutil.copy(watched.old, operated.database)
        arguments = ("accept", "--size", 1, "--root", watched.older.root.hex(), "--reason", "no mirror is ahead")
        assert "1 leaves, 2 fewer than witness w1 shows" in operated.run(*arguments, code=6).err
        assert not (operated.folder / "data" / "audit.jsonl").exists()
        assert operated.refused().startswith("log.unrecorded"), "no record has the refused tree"
        operated.set(log_witnesses_excluded="w1")
        operated.run(*arguments)
        assert operated.recorded() == watched.older


# -- restore refuses -----------------------------------------------------------------------------------------------------


def lost_behind_an_export(operated: Operated, size: int = 600) -> Path:
    operated.append(*range(size))
    export = operated.export()
    operated.lose_database()
    return export


def test_an_export_that_was_changed_in_any_tile_is_refused(operated: Operated) -> None:
    export = lost_behind_an_export(operated)
    for path in ("tile/entries/000", "tile/entries/002.p/88", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2"):
        raw = (export / path).read_bytes()
        (export / path).write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
        assert "log.unverified" in operated.run("restore", export, code=1).err, path
        assert operated.refused().startswith(("log.rollback", "log.absent"))
        (export / path).write_bytes(raw)
        if operated.database.parent.exists():
            operated.lose_database()


def test_a_source_behind_the_record_or_not_a_log_is_refused_and_one_ahead_is_taken(operated: Operated) -> None:
    operated.append(*range(10))
    behind, records = (
        operated.keep_database(),
        shutil.copytree(operated.folder / "elsewhere", operated.folder / "old records"),
    )
    operated.append(11, 12)
    export = operated.export()
    operated.lose_database()
    (operated.folder / "a file").write_bytes(b"x" * 5000)
    (operated.folder / "an empty folder").mkdir()
    for source, code in ((behind, 6), ("nowhere", 3), ("a file", 4), ("an empty folder", 3)):
        done = operated.run("restore", operated.folder / source, code=code)
        assert code != 6 or "has 10 leaves, 2 fewer than" in done.err
    newest = operated.recorded()
    operated.lose_records()  # the record is an old copy, too; the mirror has the log's signature
    shutil.move(records, operated.folder / "elsewhere")
    operated.run("restore", export)
    assert operated.recorded() == newest
    operated.append(13)


def test_a_database_that_is_no_prefix_of_the_published_log_is_left_unchanged(operated: Operated) -> None:
    fork = operated.keep_database()
    operated.append(1, 2)
    right, records = operated.export(), shutil.copytree(operated.folder / "elsewhere", operated.folder / "kept")
    shutil.move(fork, operated.database)
    operated.lose_records()
    (operated.folder / "elsewhere").mkdir()
    operated.append(3)
    operated.lose_records()
    shutil.move(records, operated.folder / "elsewhere")
    before = operated.leaves()
    assert "restore into a new place" in operated.run("restore", right, code=6).err
    assert operated.leaves() == before
    operated.lose_database()
    operated.run("restore", right)
    operated.append(4)


@pytest.mark.long
def test_no_log_is_restored_under_a_running_service(operated: Operated) -> None:
    operated.append(1)
    with turn(operated.log):
        assert "another process writes the log" in operated.run("restore", operated.database, code=6).err


def test_a_restore_that_a_full_disk_interrupted_continues_where_it_stopped(operated: Operated) -> None:
    export = lost_behind_an_export(operated, 3000)
    newest = operated.recorded()
    with small_disk(operated.folder / "small", "400k") as disk:
        operated.set(log_database=str(disk / "log" / "log.sqlite"))
        assert "state.unreachable" in operated.run("restore", export, code=6).err
        half = operated.leaves()
        assert len(half) < 3000
        assert operated.refused().startswith(("log.rollback", "state.unreachable"))
        shutil.copytree(disk / "log", operated.folder / "larger")
    operated.set(log_database=str(operated.folder / "larger" / "log.sqlite"))
    assert f"appended {3000 - len(half)} leaves" in operated.run("restore", export).out
    assert operated.append() == newest


def test_init_on_a_full_disk_makes_no_key_and_can_be_repeated(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "300k") as disk:
        operated = Operated(tmp_path, data=str(disk / "data"))
        filler = fill(disk / "filler")
        operated.run("init", code=6)
        assert not (tmp_path / "keys" / "log" / "log.pem").exists()
        filler.unlink()
        operated.begin()
        operated.append(1)


@pytest.mark.long
def test_a_log_in_postgresql_begins_is_restored_and_accepted(tmp_path: Path) -> None:
    with postgres_place(tmp_path) as old, postgres_place(tmp_path) as new, EmbeddedValkey() as store:
        operated = Operated(tmp_path, log_database=old.setting)
        assert "Name the store that all hosts share" in operated.run("init", code=6).err
        operated.set(store_url=store)
        operated.begin()
        newest = operated.append(*range(600))
        operated.set(log_database=new.setting)
        refusal = operated.refused()
        assert refusal.startswith("log.absent")
        operated.follow(refusal, old.setting)
        assert operated.append() == newest
        operated.lose_records()
        with redis.Redis.from_url(store, protocol=2) as client:
            client.flushall()
        operated.follow(operated.refused())
        assert operated.append(1000).size == 601
