"""A log is begun once, by the operator, with a key and records of its own; and accepted only as what it is."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from issuer.errors import SetupError
from issuer.io import keyfile
from issuer.service.log.sequencer.records import FileRecord
from issuer.service.log.sequencer.restore import accept
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


def test_a_log_begins_with_a_signed_record_of_the_empty_tree(settings: LogSettings) -> None:
    assert head_of(settings)[0] == 0
    append(settings, 1, 2)
    assert head_of(settings)[0] == 2


def test_a_log_is_begun_once(settings: LogSettings) -> None:
    with pytest.raises(SetupError, match="not empty"):
        init(settings)
    append(settings, 1)
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


def test_a_log_of_another_origin_is_not_written(settings: LogSettings) -> None:
    assert refused(replace(settings, origin="issuer.example/log/other")).startswith("log.absent")


@pytest.mark.parametrize("origin", ["", "two\nlines", "a space", "a+plus"])
def test_an_origin_that_no_log_has_is_refused(settings: LogSettings, origin: str) -> None:
    with pytest.raises(SetupError, match=r"settings\.invalid"):
        read_seal(replace(settings, origin=origin))


@pytest.mark.parametrize("state", ["active", "revocation"])
def test_the_key_of_the_log_is_no_other_key_of_the_issuer(settings: LogSettings, state: str) -> None:
    folder = Path(settings.keys) / state
    folder.mkdir()
    shutil.copy(settings.key_file, folder / "key.pem")
    with pytest.raises(SetupError, match=r"key\.unusable"):
        read_seal(settings)


def test_a_key_that_others_may_read_is_not_taken(settings: LogSettings) -> None:
    Path(settings.key_file).chmod(0o640)
    with pytest.raises(SetupError, match=r"key\.unsafe"):
        read_seal(settings)


def test_an_encrypted_key_is_opened_by_its_passphrase(settings: LogSettings, tmp_path: Path) -> None:
    path = tmp_path / "encrypted.pem"
    keyfile.write(path, keyfile.generate(), b"a passphrase")
    with pytest.raises(SetupError, match=r"key\.unusable"):
        read_seal(replace(settings, key_file=str(path)))
    assert read_seal(replace(settings, key_file=str(path), passphrase=b"a passphrase")).origin == settings.origin


@pytest.mark.parametrize("inside", [".", "records"])
def test_records_in_the_folder_of_the_database_are_none(settings: LogSettings, inside: str) -> None:
    folder = Path(settings.database).parent / inside
    with pytest.raises(SetupError, match=r"settings\.invalid.*would restore both"):
        sequencer_of(replace(settings, records=str(folder)))


def test_one_process_at_a_time_writes_a_file(settings: LogSettings) -> None:
    with turn(settings), pytest.raises(SetupError, match="another process"), turn(settings, wait_s=0.1):
        pass
    with turn(settings, wait_s=0.1):
        pass


# -- without a record ------------------------------------------------------------------------------------------------------


def test_what_the_operator_accepts_is_recorded(settings: LogSettings) -> None:
    append(settings, 1, 2)
    size, root = head_of(settings)
    shutil.rmtree(settings.records)
    Path(settings.records).mkdir()
    assert refused(settings).startswith("log.unrecorded")
    accept(settings, size, root)
    assert head_of(settings) == (size, root)
    append(settings, 3)


def test_only_the_very_tree_is_accepted(settings: LogSettings) -> None:
    append(settings, 1, 2)
    size, root = head_of(settings)
    shutil.rmtree(settings.records)
    Path(settings.records).mkdir()
    for wrong in ((size + 1, root), (size, bytes(32)), (0, root)):
        with pytest.raises(SetupError, match=r"log\.rollback"):
            accept(settings, *wrong)
    assert refused(settings).startswith("log.unrecorded")


def test_a_record_that_is_ahead_cannot_be_accepted_away(settings: LogSettings, tmp_path: Path) -> None:
    append(settings, 1)
    old = head_of(settings)
    kept = shutil.copytree(Path(settings.database).parent, tmp_path / "kept")
    append(settings, 2)
    shutil.rmtree(Path(settings.database).parent)
    shutil.copytree(kept, Path(settings.database).parent)
    assert refused(settings).startswith("log.rollback")
    with pytest.raises(SetupError, match=r"log\.rollback"):
        accept(settings, *old)
