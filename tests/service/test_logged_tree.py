"""The tree that real workers wrote, read by readers that share no code with the issuer."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.service.log.bounds import LOG_BATCH_LEAVES
from issuer.service.log.sequencer.sequencer import entry_of
from issuer.service.log.sequencer.setup import sequencer_of
from tests.support.log_readers import check_with_go, check_with_scales
from tests.support.logged import Begun
from tests.support.promised import Promised, export_of
from tests.support.running import Running, serve
from tests.support.sequencing import IAT, key_leaf, policy_leaf, tokens


@contextlib.contextmanager
def two_workers(folder: Path, leaves: int = 0) -> Iterator[Running]:
    """Run a service with two workers and a log that has so many leaves at its start."""

    begun = Begun(folder)
    with contextlib.closing(sequencer_of(begun.log)) as sequencer:
        sequencer.start()
        sequencer.append(list(map(entry_of, (key_leaf(IAT), policy_leaf()))))
        for first in range(0, leaves, LOG_BATCH_LEAVES):
            sequencer.append(tokens(*range(first, min(leaves, first + LOG_BATCH_LEAVES))))
    with LocalProvider() as provider, begun.served(provider, command=serve(2)) as service:
        yield service


def test_another_reader_verifies_the_tree_of_two_workers(tmp_path: Path) -> None:
    with two_workers(tmp_path / "service") as service:
        promised = Promised(service)
        for numbers in [(1,), (2, 3, 4), (5,), (6,)]:
            promised.settle(service, [promised.request(service, *numbers)])
        promised.settle(service)
        seen = promised.demand_promises(service, tmp_path / "tree")
    assert set(seen.entries.values()) == set(promised.received.indexes)


@pytest.mark.long
@pytest.mark.needs_tool("go")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("edge", [256, 65_536])
def test_two_other_readers_verify_every_tree_around_a_full_tile(edge: int, tmp_path: Path) -> None:
    """256 leaves fill a tile of level 0, 65,536 one of level 1."""
    filled = 0 if edge == 256 else edge - 40
    with two_workers(tmp_path / "service", filled) as service:
        promised = Promised(service)
        number = 0
        while not promised.notes or max(promised.notes) < edge + 4:
            count = 8 if max(promised.notes, default=0) < edge - 20 else 1
            request = promised.request(service, *range(number, number + count))
            promised.settle(service, [request])
            number += count
        sizes = sorted(size for size in promised.notes if size >= edge - 12)
        assert len(set(range(edge - 2, edge + 3)) - {*sizes}) <= 1, "once a minute a leaf more comes in between"
        for size in sizes:
            export_of(service, tmp_path / "mirror", promised.notes[size])
            indexes = [index for index in promised.received.indexes.values() if index < size]
            older = [promised.notes[each] for each in sizes if each <= size]
            for check in (check_with_go, check_with_scales):
                assert check(tmp_path / "mirror", promised.vkey, indexes[-50:], older).size == size
        promised.demand_promises(service, tmp_path / "tree", go=True)
