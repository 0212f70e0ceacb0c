"""A log is begun once, by the operator, with its own key and records, and only one process writes it."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.errors import SetupError
from issuer.service.log.sequencer.records import FileRecord
from issuer.service.log.sequencer.setup import LogSettings, init, read_seal, sequencer_of, turn
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.note import parse_note
from tests.support.sequencing import new_log, tokens


@pytest.fixture
def settings(tmp_path: Path) -> LogSettings:
    return new_log(tmp_path)


def append(settings: LogSettings, *numbers: int) -> None:
    with turn(settings), closing(sequencer_of(settings)) as sequencer:
        sequencer.start()
        sequencer.append(tokens(*numbers))


def refused(settings: LogSettings) -> str:
    with closing(sequencer_of(settings)) as sequencer, pytest.raises(SetupError) as error:
        sequencer.start()
    return str(error.value)


def head_of(settings: LogSettings) -> tuple[int, bytes]:
    note = FileRecord(Path(settings.records), settings.origin).read()
    assert note is not None
    checkpoint = parse_checkpoint(parse_note(note).text)
    return checkpoint.size, checkpoint.root


def test_a_log_is_begun_once(settings: LogSettings) -> None:
    assert head_of(settings)[0] == 0
    with pytest.raises(SetupError, match="not empty"):
        init(settings)
    append(settings, 1)
    assert head_of(settings)[0] == 1
    with pytest.raises(SetupError, match="not empty"):
        init(settings)


def test_a_log_whose_database_is_lost_is_not_begun_again(settings: LogSettings) -> None:
    """The records know that it had leaves: a second tree of that origin would be a fork."""
    append(settings, 1)
    shutil.rmtree(Path(settings.database).parent)
    with pytest.raises(SetupError, match=r"log\.rollback"):
        init(settings)


def test_a_half_begun_log_is_refused_and_can_be_begun(settings: LogSettings) -> None:
    database = Path(settings.database)
    shutil.rmtree(database.parent)
    database.parent.mkdir()
    database.touch()
    assert refused(settings).startswith("log.absent")
    database.unlink()
    assert refused(settings).startswith("log.absent")
    database.touch()
    init(settings)
    append(settings, 1)


def test_an_origin_that_no_log_has_is_refused(settings: LogSettings) -> None:
    for origin in ("", "two\nlines", "a space", "a+plus"):
        with pytest.raises(SetupError, match=r"settings\.invalid"):
            read_seal(replace(settings, origin=origin))
    assert refused(replace(settings, origin="issuer.example/log/other")).startswith("log.absent")


def test_the_key_of_the_log_is_no_other_key_of_the_issuer(settings: LogSettings) -> None:
    for state in ("active", "revocation"):
        copy = Path(settings.keys) / state / "key.pem"
        copy.parent.mkdir()
        shutil.copy(settings.key_file, copy)
        with pytest.raises(SetupError, match=r"key\.unusable"):
            read_seal(settings)
        copy.unlink()
    Path(settings.key_file).chmod(0o640)
    with pytest.raises(SetupError, match=r"key\.unsafe"):
        read_seal(settings)


def test_records_in_the_folder_of_the_database_are_none(settings: LogSettings) -> None:
    for inside in (".", "records"):
        folder = Path(settings.database).parent / inside
        with pytest.raises(SetupError, match=r"settings\.invalid.*would restore both"):
            sequencer_of(replace(settings, records=str(folder)))


def test_one_process_at_a_time_writes_a_file(settings: LogSettings) -> None:
    with turn(settings), pytest.raises(SetupError, match="another process"), turn(settings, wait_s=0.1):
        pass
    with turn(settings, wait_s=0.1):
        pass
