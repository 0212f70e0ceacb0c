"""The log's public files out of its database, for a command that is run beside it: an export needs no service.

Its newest checkpoint is the last one that reached the quorum: who signs is another process. Whoever reads these files
checks them as those of a stranger.
"""

from __future__ import annotations

from issuer.codes import Code
from issuer.errors import FormatError, Undecided
from issuer.service.log.engines import SCHEME, reading_at
from issuer.service.log.store import Reader, StoreCorrupt, StoreFailed
from issuer.tlog.tiles import WIDTH, TilePath, parse_tile_path, write_entries


class StoredFiles:
    """The files of the log in a database: the path of a SQLite file, or `postgresql://...`."""

    def __init__(self, place: str) -> None:
        """Connect. Raises SetupError, and Undecided(`log.unavailable`) where the database fails."""
        self.name = "the PostgreSQL database" if place.startswith(SCHEME) else place  # no password
        try:
            self._reading = reading_at(place)
        except StoreFailed as error:
            raise _unavailable(error) from None
        self.reader = Reader(self._reading)

    def close(self) -> None:
        """Disconnect."""
        self._reading.close()

    def read(self, path: str, max_bytes: int) -> bytes | None:  # noqa: ARG002  (nothing here is larger)
        """Return the file at a path under the log's prefix; None where there is none."""
        try:
            if path == "checkpoint":
                cosigned = self.reader.last_cosigned()
                return None if cosigned is None else cosigned[1]
            tile = parse_tile_path(path)
            return None if tile is None else self._content(tile)
        except StoreCorrupt:  # beyond the tree
            return None
        except (StoreFailed, FormatError) as error:
            raise _unavailable(error) from None

    def _content(self, tile: TilePath) -> bytes:
        if tile.level == "entries":
            return write_entries(self.reader.leaves(tile.index * WIDTH, tile.width))
        return self.reader.tile(tile.level, tile.index, tile.width)


def _unavailable(error: Exception) -> Undecided:
    return Undecided(Code.LOG_UNAVAILABLE, f"the log's database: {error}")
