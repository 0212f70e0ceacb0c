"""Every later issuer reads the files of an installation: tests/vectors/stored/README.md."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from issuer.errors import IssuerError, SetupError
from issuer.limits.abuse import ItemTally, Tally
from issuer.service.log.database.store import StoreCorrupt
from issuer.tlog.merkle import root
from issuer.witness.state import Latest, WitnessState
from tests.support import make, stored_values
from tests.support.log_store import ORIGIN, announcement, token
from tests.support.stored_vectors import FOLDER, FORMATS, contents, laid, newest, written

_LEAVES = [announcement(1), token(2), token(3)]
# The content of each format, in every version.
EXPECTED: dict[str, object] = {
    "audit": ([], [*stored_values.EVENTS]),
    "inventory": {"key-history", "policies"},
    "key-history": {make.KID: ("revoked", make.NOW + 120, make.NOW + 180, make.NOW + 150)},
    "log": (
        (ORIGIN, 3, root([entry.hash for entry in _LEAVES]).hex()), tuple(entry.leaf for entry in _LEAVES), 2,
        (2, b"a note\n"),
    ),
    "monitor": (("log.example/1", 3), "inspect-ai", {b"k" * 32: "active"}, {b"p" * 32}, {b"u" * 32}),
    "pats": ([("ci-bot", "active", True), ("ci-bot", "revoked", False)], []),
    "policies": ["inspect-ai"],
    "receipts": (make.REPO, make.PATH, make.JTI, make.KID, make.NOW + 5, make.NOW + 5),
    "revocations": (None, stored_values.ACTS, (1, 5)),
    "seen": ("", (7, make.NOW, frozenset({make.JTI}))),
    "settings": {
        "url": "https://issuer.example", "store.url": "redis://127.0.0.1:6379/0", "store.durable": True,
        "listen.port": 8443, "log.origin": "issuer.example/log", "data": "/srv/issuer/data",
    },
    "store": [(make.template(), Tally((ItemTally(1, make.NOW - 60),), 1, 1, 1, 1)), "identity.replayed", "abuse.quarantined"],
    "submission": ("n" * 22, [stored_values.ISSUED]),
    "witness": ("witness.example/w", Latest(3, bytes(32), b"a note\n"), [Latest(3, b"f" * 32, b"a fork\n")]),
}  # fmt: skip


# The store of limits starts a server, so it is for `make check` alone.
SOME = pytest.mark.parametrize(
    "names", [tuple(name for name in FORMATS if name != "store"), pytest.param(("store",), marks=pytest.mark.long)]
)


def test_every_version_of_every_format_is_there() -> None:
    versions = {f"{name}-{version}" for name, form in FORMATS.items() for version in range(1, form.version + 1)}
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == versions
    assert EXPECTED.keys() == FORMATS.keys()


@SOME
def test_every_stored_version_is_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    for path in sorted(FOLDER.iterdir()):
        name = path.name.rpartition("-")[0]
        if name in names:
            assert FORMATS[name].read(laid(path, tmp_path / path.name)) == EXPECTED[name], path.name


@SOME
def test_a_new_file_is_the_newest_stored_version(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A failure means that a stored format has changed: the README.md beside the files has the next steps."""
    for name in names:
        if FORMATS[name].exact:
            now, then = written(name, tmp_path / "now" / name), laid(newest(name), tmp_path / name)
            assert contents(now) == contents(then), name


def in_text(file: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (path,) = sorted(folder.glob(file))[:1]
        assert old in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old, new))

    return spoil


def in_database(file: str, statement: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        with closing(sqlite3.connect(folder / file, isolation_level=None)) as database:
            database.execute(statement)

    return spoil


_LINE = b'{"version":1,'
OTHERS: list[tuple[str, Callable[[Path], None]]] = [
    ("audit", in_text("audit.jsonl", b'"version":1', b'"version":2')),
    ("inventory", in_text("inventory.json", b'"version":1', b'"version":2')),
    ("key-history", in_text("key-history.jsonl", _LINE, b'{"version":2,')),
    ("key-history", in_text("key-history.jsonl", _LINE, b"{")),
    ("log", in_database("log.sqlite", "UPDATE head SET version = 2")),
    ("monitor", in_text("state.json", b'"version":1', b'"version":2')),
    ("pats", in_text("*.json", b'"version": 1', b'"version": 2')),
    ("revocations", in_text("revocations.jsonl", _LINE, b'{"version":2,')),
    ("revocations", in_text("revocations.jsonl", _LINE, b"{")),
    ("settings", in_text("settings.yaml", b"version: 1", b"version: 2")),
    ("store", in_text("keys.json", b"{evi1}", b"{evi2}")),
    ("submission", in_text("*.kept", b'"version":1', b'"version":2')),
    ("submission", in_text("*.kept", b'"version":1,', b"")),
    ("witness", in_database("witness.sqlite", "PRAGMA user_version = 2")),
]


@SOME
def test_a_file_of_an_unknown_version_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    messages = {"log": "version 2; this installation knows only 1"}
    for number, (name, spoil) in enumerate(other for other in OTHERS if other[0] in names):
        folder = laid(newest(name), tmp_path / str(number))
        spoil(folder)
        try:
            found: object = FORMATS[name].read(folder)
        except (IssuerError, StoreCorrupt) as refused:
            found = str(refused) if messages.get(name, "") in str(refused) else EXPECTED[name]
        assert found != EXPECTED[name], name


def test_a_refused_state_of_a_witness_is_closed(tmp_path: Path) -> None:
    """Python 3.13 warns of a connection that is left open."""
    path = tmp_path / "witness.sqlite"
    path.write_bytes(bytes(4096))
    with pytest.raises(SetupError) as refused:
        WitnessState(path)
    assert refused.traceback, "its frames would keep the file open"
    assert str(path) not in {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
