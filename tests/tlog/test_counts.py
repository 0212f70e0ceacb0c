"""The counts of leaves that `issuer log verify` prints."""

from issuer.tlog.leaf import MAX_NAMES, OTHERS, LeafCounts
from tests.support.tlog import key_leaf, token_leaf


def counted(*leaves: bytes) -> LeafCounts:
    counts = LeafCounts()
    for index, leaf in enumerate(leaves):
        counts.add(index, leaf)
    return counts


def test_leaves_are_counted_by_kind_and_the_first_malformed_one_has_its_index() -> None:
    counts = counted(key_leaf(), token_leaf(1), token_leaf(2), b"x/y\n")
    assert counts.kinds == {"eval-token-issuer/key/v1": 1, "eval-token-issuer/token/v1": 2}
    assert (counts.unknown, counts.malformed, counts.first_defect) == ({"x/y": 1}, 0, "")
    counts = counted(key_leaf(), b"", token_leaf() + b"x", b"\xff")
    assert (counts.malformed, counts.first_defect.startswith("leaf 1: ")) == (3, True)
    counts = counted(*(b"kind/%d\n" % number for number in range(MAX_NAMES + 50)), b"kind/7\n")
    assert len(counts.unknown) == MAX_NAMES + 1, "unknown names take bounded memory"
    assert (counts.unknown[OTHERS], counts.unknown["kind/7"]) == (50, 2)
