"""Merkle trees: RFC 6962's hashes, the published vectors of transparency-dev/merkle, and every proof of small trees."""

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from issuer.tlog import merkle
from tests.support.received import roots
from tests.support.shared import PUBLISHED, needs_shared

TESTDATA = PUBLISHED / "merkle" / "testdata"
# The leaves and heads that Certificate Transparency's own tests use.
LEAVES = [bytes.fromhex(text) for text in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
HEADS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def cases(kind: str) -> list[Path]:
    return sorted((TESTDATA / kind).rglob("*.json"))


def unpacked(text: str | None) -> bytes:
    return base64.b64decode(text or "")


def load(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_bytes())
    case["proof"] = [unpacked(item) for item in case["proof"] or []]
    return case


@needs_shared
def test_the_published_vectors_of_inclusion_and_consistency() -> None:
    answers = {}
    for path in cases("inclusion"):
        case = load(path)
        leaf, head = unpacked(case["leafHash"]), unpacked(case["root"])
        good = merkle.verify_inclusion(case["leafIdx"], case["treeSize"], leaf, case["proof"], head)
        answers[path] = good is not case["wantErr"]
    for path in cases("consistency"):
        case = load(path)
        heads = unpacked(case["root1"]), unpacked(case["root2"])
        good = merkle.verify_consistency(case["size1"], case["size2"], *heads, case["proof"])
        answers[path] = good is not case["wantErr"]
    assert [path for path, right in answers.items() if not right] == []
    assert len(answers) == 196


def test_heads_are_those_of_certificate_transparency() -> None:
    hashed = [merkle.leaf_hash(leaf) for leaf in LEAVES]
    assert [head.hex() for head in roots(hashed)] == HEADS
    assert [merkle.root(hashed[: size + 1]).hex() for size in range(8)] == HEADS
    assert merkle.root([]) == merkle.EMPTY_ROOT


def node_hash(left: bytes, right: bytes) -> bytes:
    """HASH(0x01 || left || right), apart from the code under test."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def head_of(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962 2.1, word for word."""
    if len(leaves) == 1:
        return leaves[0]
    middle = split(len(leaves))
    return node_hash(head_of(leaves[:middle]), head_of(leaves[middle:]))


def split(size: int) -> int:
    """The largest power of two smaller than the size."""
    return 1 << ((size - 1).bit_length() - 1)


def path_of(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH(m, D[n]) of RFC 6962 2.1.1."""
    if len(leaves) == 1:
        return []
    middle = split(len(leaves))
    if index < middle:
        return [*path_of(index, leaves[:middle]), head_of(leaves[middle:])]
    return [*path_of(index - middle, leaves[middle:]), head_of(leaves[:middle])]


def proof_of(size: int, leaves: list[bytes], *, whole: bool = True) -> list[bytes]:
    """SUBPROOF(m, D[n], b) of RFC 6962 2.1.2."""
    if size == len(leaves):
        return [] if whole else [head_of(leaves)]
    middle = split(len(leaves))
    if size <= middle:
        return [*proof_of(size, leaves[:middle], whole=whole), head_of(leaves[middle:])]
    return [*proof_of(size - middle, leaves[middle:], whole=False), head_of(leaves[:middle])]


def node_over(leaves: list[bytes]) -> merkle.Node:
    """Hash every node anew by the definition of RFC 6962, and refuse one that is not complete."""

    @cache
    def node(level: int, index: int) -> bytes:
        assert (index + 1) << level <= len(leaves), "a node that the tree does not have"
        return node_hash(node(level - 1, 2 * index), node(level - 1, 2 * index + 1)) if level else leaves[index]

    return node


def test_proofs_are_those_of_the_definition_and_verify() -> None:
    for size in [*range(1, 20), 63, 64, 65, 129, 256, 257]:
        leaves = [merkle.leaf_hash(b"%d" % number) for number in range(size)]
        node, heads = node_over(leaves), list(roots(leaves))
        assert heads[-1] == head_of(leaves)
        for index in range(size):
            proof = merkle.inclusion_proof(index, size, node)
            assert list(proof) == path_of(index, leaves)
            assert merkle.verify_inclusion(index, size, leaves[index], proof, heads[-1])
        for first in range(1, size + 1):
            proof = merkle.consistency_proof(first, size, node)
            assert list(proof) == proof_of(first, leaves)
            assert merkle.verify_consistency(first, size, heads[first - 1], heads[-1], proof)


def test_peaks_know_the_head_of_every_size_and_grow_by_any_number() -> None:
    leaves = [merkle.leaf_hash(b"%d" % number) for number in range(300)]
    node = node_over(leaves)
    peaks = merkle.Peaks()
    assert peaks.root == merkle.EMPTY_ROOT == merkle.peaks_of(0, node).root
    for size in range(1, 301):
        peaks = peaks.extend([leaves[size - 1]])
        assert peaks == merkle.peaks_of(size, node)
        assert (peaks.size, len(peaks.hashes)) == (size, size.bit_count())
        assert peaks.root == head_of(leaves[:size])
        assert peaks.extend(leaves[size:]) == merkle.peaks_of(300, node)


@given(st.integers(0, 300), st.integers(0, 300))
def test_growth_yields_every_new_node_once(one: int, other: int) -> None:
    before, after = sorted((one, other))
    leaves = [b"%032d" % number for number in range(after)]
    gained: list[tuple[int, int, bytes]] = []
    merkle.peaks_of(before, node_over(leaves)).extend(leaves[before:], lambda *node: gained.append(node))
    levels = range(1, after.bit_length())
    new = [(level, index) for level in levels for index in range(before >> level, after >> level)]
    assert sorted(gained) == [(*place, node_over(leaves)(*place)) for place in new]


def test_a_proof_in_a_large_tree_asks_for_few_nodes() -> None:
    """A simulated tree of 10^7 leaves: each node is a hash of its place."""
    size, asked = 10**7, list[tuple[int, int]]()

    def node(level: int, index: int) -> bytes:
        assert (index + 1) << level <= size
        asked.append((level, index))
        return merkle.leaf_hash(b"%d %d" % (level, index))

    for index in (0, 1, size // 2, size - 2, size - 1):
        assert len(merkle.inclusion_proof(index, size, node)) <= 24
        assert len(merkle.consistency_proof(index + 1, size, node)) <= 25
    assert len(asked) <= 2 * 5 * 2 * 24


def spoilt(proof: list[bytes], *heads: bytes) -> dict[str, list[bytes]]:
    """Return proofs near a good one, by their fault."""
    changed: dict[str, list[bytes]] = {}
    for at, node in enumerate(proof):
        rest = proof[:at], proof[at + 1 :]
        flipped = (int.from_bytes(node) ^ 1 << 77).to_bytes(32)
        changed[f"bit of {at}"] = [*rest[0], flipped, *rest[1]]
        changed[f"{at} removed"] = [*rest[0], *rest[1]]
        changed[f"{at} twice"] = [*rest[0], node, node, *rest[1]]
        changed[f"{at} cut"] = [*rest[0], node[:-1], *rest[1]]
    for name, garbage in {"nothing": b"", "garbage": b"g" * 32, "a head": heads[0], "the other": heads[-1]}.items():
        changed |= {f"{name} before": [garbage, *proof], f"{name} behind": [*proof, garbage]}
    turned = proof[::-1]
    return {**changed, **({"turned": turned} if turned != proof else {}), **({"empty": []} if proof else {})}


def test_a_proof_near_a_good_one_proves_nothing() -> None:
    """The published vectors of transparency-dev/merkle have the same faults."""
    for size in range(1, 9):
        leaves = [merkle.leaf_hash(bytes([number])) for number in range(size)]
        heads = list(roots(leaves))
        empty = merkle.EMPTY_ROOT
        for index, leaf in enumerate(leaves):
            path = path_of(index, leaves)
            for fault, bad in spoilt(path, leaf, heads[-1]).items():
                assert not merkle.verify_inclusion(index, size, leaf, bad, heads[-1]), fault
            others = ((other, size) for other in range(-1, 2 * size + 1) if other != index)
            for place, count in ((index, 2 * size), (index, size // 2), (0, 0), *others):
                assert not merkle.verify_inclusion(place, count, leaf, path, heads[-1]), (place, count)
            for wrong in ((b"", heads[-1]), (leaf, b""), (leaf, empty), (empty, heads[-1]), (b"", b"")):
                assert not merkle.verify_inclusion(index, size, wrong[0], path, wrong[1])
        for first in range(1, size):
            proof, before, after = proof_of(first, leaves), heads[first - 1], heads[-1]
            for fault, bad in spoilt(proof, before, after).items():
                assert not merkle.verify_consistency(first, size, before, after, bad), fault
            others = ((other, size) for other in range(2 * size) if other != first)
            for sizes in ((first, 2 * size), (size, first), (first, 0), (0, 0), *others):
                assert not merkle.verify_consistency(*sizes, before, after, proof), sizes
            for wrong in ((after, before), (before, before), (empty, after), (before, empty), (b"", b"")):
                assert not merkle.verify_consistency(first, size, *wrong, proof)
        assert merkle.verify_consistency(size, size, heads[-1], heads[-1], [])
        assert not merkle.verify_consistency(size, size, heads[-1], empty, [])
        assert not merkle.verify_consistency(size, size, heads[-1], heads[-1], [empty])


def test_a_proof_of_another_length_or_hash_size_is_refused_even_if_its_hashes_add_up() -> None:
    leaf, other = merkle.leaf_hash(b"a"), merkle.leaf_hash(b"b")
    above = merkle.node_hash(other, leaf)
    assert not merkle.verify_inclusion(0, 1, leaf, [other], above)
    assert merkle.verify_inclusion(1, 2, leaf, [other], above)
    higher = merkle.node_hash(other, merkle.node_hash(leaf, other))
    assert not merkle.verify_consistency(1, 2, leaf, higher, [other, other])
    assert merkle.verify_inclusion(0, 1, leaf, [], leaf)
    assert not merkle.verify_inclusion(0, 1, b"", [], b"")
    assert not merkle.verify_inclusion(0, 2, leaf, [b""], merkle.node_hash(leaf, b""))
    assert not merkle.verify_consistency(1, 2, leaf, merkle.node_hash(leaf, b""), [b""])
