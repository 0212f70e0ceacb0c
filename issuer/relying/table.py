"""A table of results as a Parquet file: written in row groups during the run, and read again.

Only this file uses pyarrow, of the extra `table`. Workers make rows (`rows_as_bytes`), which travel as a record batch;
a Table writes them to its file. It holds the rows of one row group in memory, and the corrected rows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from io import BufferedRandom
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from issuer.codes import Code
from issuer.errors import FormatError, reading
from issuer.io import files
from issuer.relying.bulk import Engine, Listener, judge_folder
from issuer.relying.table_columns import COLUMNS, METRIC, ColumnKind, Row, rows_of
from issuer.relying.verifier import Basis, FileVerifier, JudgedFile, TableHead, Writer, read_head
from issuer.verify.summary import Summary

GROUP_ROWS = 16_384
GROUP_BYTES = 16 * 1024 * 1024  # of rows as record batches
BATCH_ROWS = 1024  # read at a time, for corrections

_TYPES: dict[ColumnKind, Any] = {
    "text": pa.string(), "json": pa.string(), "time": pa.timestamp("ms", "UTC"), "whole": pa.int64(),
    "number": pa.float64(), "flag": pa.bool_(),
}  # fmt: skip
_TYPES["metrics"] = pa.list_(pa.struct([(name, _TYPES[kind]) for name, kind in METRIC.items()]))
_SCHEMA = pa.schema([(column.name, _TYPES[column.kind]) for column in COLUMNS])
_TIMES = frozenset(column.name for column in COLUMNS if column.kind == "time")


class _Interrupted(Exception):
    """The run was interrupted."""


def judge_into(
    path: Path, root: Path, verifier: FileVerifier, writer: Writer, listener: Listener, *, engine: Engine | None = None
) -> Summary:
    """Do the work of `judge_folder`, and put its table at `path` once it is complete. If the run is interrupted or
    fails, an earlier file stays. Raises OSError if the file cannot be written."""
    summary = Summary()
    with suppress(_Interrupted), files.replacing(path) as file, closing(Table(path, file)) as table:
        listening = replace(listener, rows=table.add, corrected=table.correct)
        summary = judge_folder(root, verifier, replace(writer, rows=rows_as_bytes), listening, engine=engine)
        if summary.interrupted:
            raise _Interrupted
        trust = verifier.trust  # read after the run, which may have fetched newer keys
        basis = Basis.of(trust, verifier.context.now)
        table.finish(TableHead(basis, trust.tolerance, summary.files, summary.bytes, trust.definitions))
    return summary


def rows_as_bytes(judged: Sequence[JudgedFile]) -> bytes:
    """Return the rows of some files as one record batch."""
    rows = [row for one in judged for row in rows_of(one)]
    arrays = [pa.array(_column(rows, field.name), field.type) for field in _SCHEMA]
    return bytes(pa.record_batch(arrays, schema=_SCHEMA).serialize())


def _column(rows: Sequence[Row], name: str) -> list[object]:
    values = [row.get(name) for row in rows]
    if name in _TIMES:
        return [value * 1000 if isinstance(value, int) else None for value in values]
    return values


class Table:
    """The rows of a run in a file that is open for reading and writing; `path` is its final place."""

    def __init__(self, path: Path, file: BufferedRandom) -> None:
        self._path, self._file = path, file
        self._corrected: dict[tuple[str, str], Row] = {}
        self._groups = _Groups(file)

    def add(self, rows: bytes) -> None:
        """Add a record batch."""
        with files.naming(self._path):
            self._groups.add(_read_batch(rows))

    def correct(self, rows: bytes) -> None:
        """Replace the rows of the same entries."""
        for row in _read_batch(rows).to_pylist():
            self._corrected[row["file"], row["pointer"]] = row

    def finish(self, head: TableHead) -> None:
        """Write the remaining rows, the corrections and the metadata."""
        with files.naming(self._path):
            self._groups.finish(head)
            if self._corrected:
                with tempfile.TemporaryFile(dir=self._path.parent) as before:
                    self._file.seek(0)
                    shutil.copyfileobj(self._file, before)
                    self._file.seek(0)
                    self._file.truncate()
                    self._rewrite(before, head)

    def close(self) -> None:
        """Release the file in any state."""
        self._groups.close()

    def _rewrite(self, before: IO[bytes], head: TableHead) -> None:
        self._groups = _Groups(self._file)
        for batch in pq.ParquetFile(before).iter_batches(BATCH_ROWS, use_threads=False):
            self._groups.add(self._with_corrections(batch))
        self._groups.finish(head)

    def _with_corrections(self, batch: Any) -> Any:
        places = zip(batch["file"].to_pylist(), batch["pointer"].to_pylist(), strict=True)
        rows = {number: self._corrected[place] for number, place in enumerate(places) if place in self._corrected}
        if not rows:
            return batch
        return pa.RecordBatch.from_pylist([rows.get(at, row) for at, row in enumerate(batch.to_pylist())], _SCHEMA)


def _read_batch(rows: bytes) -> Any:
    return pa.ipc.read_record_batch(pa.py_buffer(rows), _SCHEMA)


class _Groups:
    """Collects rows for a row group, and writes it."""

    def __init__(self, file: BufferedRandom) -> None:
        self._writer = pq.ParquetWriter(file, _SCHEMA, compression="zstd")
        self._batches: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, batch: Any) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, _SCHEMA), row_group_size=2 * GROUP_ROWS)
        self._batches, self._rows, self._bytes = [], 0, 0

    def finish(self, head: TableHead) -> None:
        if self._rows:
            self._write()
        self._writer.add_key_value_metadata(head.as_text())
        self._writer.close()

    def close(self) -> None:
        """Close the writer; else it would close itself after the file is closed."""
        with suppress(OSError):  # the disk is full, which was reported before
            self._writer.close()
        self._writer.is_open = False


class TableFile:
    """An open table: its metadata (`head`), and its rows in order."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        with _reading(path):
            self._parquet = pq.ParquetFile(file)
            found = self._parquet.metadata.metadata or {}
            self.head = read_head({name.decode(): value.decode() for name, value in found.items()})
            self._demand_columns()

    def rows(self, names: Sequence[str]) -> Iterator[Row]:
        """Yield these columns of each row, holding BATCH_ROWS rows at a time. Raises InputError for a damaged file."""
        batches = self._parquet.iter_batches(BATCH_ROWS, columns=list(names), use_threads=False)
        while True:
            with _reading(self._path):
                if (batch := next(batches, None)) is None:
                    return
                columns = {name: _plain(name, batch[name]) for name in names}
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    def _demand_columns(self) -> None:
        schema = self._parquet.schema_arrow
        for field in _SCHEMA:
            if schema.get_field_index(field.name) < 0 or not schema.field(field.name).type.equals(field.type):
                raise FormatError(Code.FILE_RULE, f"has no column {field.name} of the type that its version needs")


@contextmanager
def open_table(path: Path) -> Iterator[TableFile]:
    """Open a table that `judge_into` has made. Raises InputError for another kind of file or another version."""
    with files.open_plain(path) as file:
        yield TableFile(path, file)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with reading(str(path)):
        try:
            yield
        except (pa.ArrowException, OSError, ValueError):  # their texts may quote bytes of the file
            raise FormatError(Code.FILE_RULE, "is not a complete Parquet file") from None


def _plain(name: str, column: Any) -> list[object]:
    if name in _TIMES:
        return [None if value is None else value // 1000 for value in column.cast(pa.int64()).to_pylist()]
    values: list[object] = column.to_pylist()
    return values
