"""The verifier in JavaScript reads a log as Python does: trees, notes, policies, proofs, and check 11."""

import base64
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import UNSET
from msgspec.structs import asdict, replace

from issuer.formats import jose
from issuer.tlog import merkle, tiles
from issuer.tlog.note import Cosigner, Kind, Note, NoteSigner, Verifier, cosigned_text, parse_note, parse_vkey
from issuer.tlog.proof import split_proof
from issuer.tlog.witness_policy import parse_policy
from issuer.token.verify_token import TokenClaims, read_unverified, token_leaf, unverified_leaf
from issuer.verify.check_log import AtHand, CheckedNotes, Search, sidecar_name
from issuer.verify.trust import TrustedLog
from tests.support import javascript, make
from tests.support.javascript import Calls, Failed, big, mapping
from tests.support.received import roots
from tests.support.tlog import ORIGIN, WITNESSES, Tree, policy_text
from tests.support.tlog import token_leaf as other_leaf

pytestmark = [pytest.mark.needs_tool("node"), pytest.mark.long]
in_python = partial(javascript.in_python, said=("code", "message", "line"))
in_javascript = partial(javascript.in_javascript, said=("code", "message", "line"))


# -- trees ---------------------------------------------------------------------------------------------------------------


def proofs_of(sizes: Sequence[int]) -> Iterator[tuple[str, list[Any]]]:
    """Every inclusion and consistency proof of trees of these sizes, as the arguments of Python's functions."""
    tree = Tree([other_leaf(number) for number in range(max(sizes))])
    hashes = [merkle.leaf_hash(leaf) for leaf in tree.leaves]
    heads = [merkle.EMPTY_ROOT, *roots(hashes)]
    kept: dict[tuple[int, int], bytes] = {}

    def node(level: int, index: int) -> bytes:
        if (level, index) not in kept:
            lower = (node(level - 1, 2 * index), node(level - 1, 2 * index + 1)) if level else ()
            kept[level, index] = merkle.node_hash(*lower) if lower else hashes[index]
        return kept[level, index]

    for size in sizes:
        for index in range(size):
            proof = list(merkle.inclusion_proof(index, size, node))
            yield "inclusion", [index, size, hashes[index], proof, heads[size]]
        for first in range(1, size + 1):
            proof = list(merkle.consistency_proof(first, size, node))
            yield "consistency", [first, size, heads[first], heads[size], proof]


def spoilt(arguments: list[Any], at: random.Random) -> list[Any]:
    """Change one thing of a proof: a number, a bit of a hash, or which hashes there are."""
    changed = [list(part) if isinstance(part, list) else part for part in arguments]
    place = at.randrange(len(changed))
    part = changed[place]
    if isinstance(part, int):
        changed[place] = at.choice([part - 1, part + 1, part ^ 1, part << 1, -1, 0, 2**53 + part, 2**63 + part])
    elif isinstance(part, bytes):
        changed[place] = at.choice([flipped(part, at), part[:-1], part + b"\0"])
    elif part and at.random() < 0.7:
        one = at.randrange(len(part))
        part[one] = at.choice([flipped(part[one], at), part[one - 1], part[one][1:]])
    else:
        changed[place] = at.choice([part[1:], part[:-1], part[::-1], [*part, bytes(32)], part * 2])
    return changed


def flipped(raw: bytes, at: random.Random) -> bytes:
    bit = at.randrange(8 * len(raw))
    return raw[: bit // 8] + bytes([raw[bit // 8] ^ 1 << bit % 8]) + raw[bit // 8 + 1 :]


def test_proofs_of_many_trees_and_spoilt_ones_are_judged_as_in_python() -> None:
    sizes = [*range(1, 34), 63, 64, 65, 254, 255, 256, 257, 258]
    at, calls, wanted = random.Random(11), Calls(), []
    short = bytes(31)
    joined = merkle.node_hash(short, bytes(32))
    none = [("inclusion", [0, 1, short, [], short]), ("consistency", [1, 2, short, joined, [bytes(32)]])]
    for kind, arguments in (*proofs_of(sizes), *none):
        verify = merkle.verify_inclusion if kind == "inclusion" else merkle.verify_consistency
        for given in (arguments, *(spoilt(arguments, at) for _ in range(3))):
            wanted.append(verify(*given))
            numbers = [big(part) if isinstance(part, int) else part for part in given]
            calls.add("log/merkle.js", verify.__name__.replace("_i", "I").replace("_c", "C"), *numbers)
    assert calls.run() == wanted
    assert wanted.count(True) >= 4000
    assert wanted.count(False) >= 10_000


def test_a_tree_is_hashed_as_in_python() -> None:
    leaves = [merkle.leaf_hash(other_leaf(number)) for number in range(130)]
    calls = Calls()
    for size in range(131):
        calls.add("log/merkle.js", "root", leaves[:size])
    assert calls.run() == [merkle.root(leaves[:size]) for size in range(131)]


# -- notes and policies --------------------------------------------------------------------------------------------------

STRANGER = Cosigner("stranger.example", Ed25519PrivateKey.from_private_bytes(b"x" * 32))
TREE = Tree([other_leaf(number) for number in range(9)])
GROUPS = ("all w0 w1 w2", "any w0 w1", "2 w0 w1 w2")
QUORUMS = ["quorum none\n", "quorum w0\n", *(f"group g {group}\nquorum g\n" for group in GROUPS)]
QUORUMS += ["group a any w0 w1\ngroup b all a w2\nquorum b\n"]
KEYS = "".join(f"witness w{number} {witness.verifier.to_text()}\n" for number, witness in enumerate(WITNESSES))
ELSEWHERE = NoteSigner("log.elsewhere", STRANGER.private_key)
LOG = f"log {TREE.signer.verifier.to_text()}\nlog {ELSEWHERE.verifier.to_text()}\n"


def lines_of(at: random.Random) -> Note:
    """A checkpoint signed and cosigned as it happens: at many times, by few or many, by strangers, twice, or wrongly."""
    text = TREE.note(at.choice([1, 7, 9]), witnesses=()).text
    signers = [TREE.signer] * at.choice([1, 1, 1, 1, 0, 2])
    if at.random() < 0.15:
        signers.append(NoteSigner(at.choice([ORIGIN, "log.elsewhere"]), STRANGER.private_key))
    lines = [signer.sign(text if at.random() < 0.96 else text + "x\n") for signer in signers]
    for witness in (*WITNESSES, STRANGER, *at.sample(WITNESSES, 1)):
        if at.random() < 0.75:
            time = make.NOW + at.choice([-9, -1, 0, 1, 1, 59, 60, 61, 2**40, 2**62])
            lines.append(witness.cosign(text if at.random() < 0.97 else TREE.note(3).text, time))
            if at.random() < 0.05:  # no witness signs a time of zero, which means no time
                signature = witness.private_key.sign(cosigned_text(text, 0))
                lines[-1] = replace(lines[-1], signature=bytes(8) + signature)
    if at.random() < 0.1 and lines:
        one = at.choice(lines)
        lines.append(replace(one, signature=flipped(one.signature, at)))
    at.shuffle(lines)
    return Note(text, tuple(lines or [TREE.signer.sign(text)]))


def test_many_notes_are_judged_as_in_python() -> None:
    at, calls, wanted, outcomes = random.Random(7), Calls(), [], dict[str, int]()
    policies = [
        (parse_policy(raw, "p"), calls.add("log/policy.js", "parsePolicy", raw))
        for raw in ((LOG + KEYS + quorum).encode() for quorum in QUORUMS)
    ]
    for _ in range(1500):
        note, (policy, parsed) = lines_of(at), at.choice(policies)
        read = calls.add("log/note.js", "parseNote", note.to_bytes())
        calls.add("log/quorum.js", "checkNote", parsed, read, make.NOW)
        wanted.append(in_python(policy.check, note, make.NOW))
        name = wanted[-1][0] if isinstance(wanted[-1], tuple) else "good"
        outcomes[name] = outcomes.get(name, 0) + 1
    found = calls.run()[len(policies) + 1 :: 2]
    for found_answers, want in zip(found, wanted, strict=True):
        refused = isinstance(want, tuple)
        assert in_javascript(found_answers) == want if refused else shown(found_answers) == shown_of(want)
    assert min(outcomes[name] for name in ("good", "log.signature", "log.quorum")) > 100


def shown(answer: dict[str, Any]) -> tuple[Any, ...]:
    checkpoint = answer["checkpoint"]
    name = answer["log"]["verifier"]["name"]
    return checkpoint["origin"], checkpoint["size"], checkpoint["root"], name, answer["time"]


def shown_of(witnessed: Any) -> tuple[Any, ...]:
    checkpoint = witnessed.checkpoint
    return checkpoint.origin, checkpoint.size, checkpoint.root, witnessed.log.verifier.name, witnessed.time


# -- texts ---------------------------------------------------------------------------------------------------------------

POLICY = (f"# a policy\n{LOG}{KEYS}group g 2 w0 w1 w2\n\nquorum g\n").encode()
PROOF = TREE.proof(4)
EXTRA = PROOF.replace(b"index", b"extra YWJj\nindex", 1)
CHANGES = [
    b"", b"\n", b"\n\n", b" ", b"\t", b"\r\n", b"+", b"=", b"0", b"1", b"9", b"-", b"\x00", b"\xff", b"\x85", b"\xa0", "é".encode(),
    "\u2028".encode(), "\ufeff".encode(), "— ".encode(), b"none", b"quorum none\n", b"log ", b"index 5\n", b"A", b"x y", b"33",
]  # fmt: skip


def changed(raw: bytes, at: random.Random) -> bytes:
    """Put something in, take a part out, or take something's place, once or twice."""
    for _ in range(at.choice([1, 1, 2])):
        start = at.randrange(len(raw) + 1)
        end = min(len(raw), start + at.choice([0, 0, 1, 1, 2, 5, 40]))
        raw = raw[:start] + at.choice([*CHANGES, raw[start:end] * 2, raw[-60:]]) + raw[end:]
    return raw


def test_many_changed_texts_are_read_or_refused_as_in_python() -> None:
    at, calls, wanted = random.Random(3), Calls(), []
    for raw, module, call, read in (
        (
            POLICY,
            "log/policy.js",
            "parsePolicy",
            lambda raw: [log.verifier.name for log in parse_policy(raw, "p").logs],
        ),
        (PROOF, "log/proof.js", "splitProof", lambda raw: split_proof(raw).index),
        (EXTRA, "log/proof.js", "splitProof", lambda raw: split_proof(raw).index),
        (TREE.note().to_bytes(), "log/note.js", "parseNote", lambda raw: parse_note(raw).text),
    ):
        for given in (raw, *(changed(raw, at) for _ in range(2000))):
            calls.add(module, call, given)
            wanted.append(in_python(read, given))
    for found, want in zip(calls.run(), wanted, strict=True):
        if isinstance(found, Failed) and found.name == "Beyond":
            continue  # ML-DSA-44, and a policy that is not UTF-8
        if isinstance(want, tuple):
            assert (found.code, found.message) == want[:2]
            assert found.line in {want[2], 0} or want[2] == 0
        else:
            shown = found.get("text", found.get("index"))
            assert want == ([log["verifier"]["name"] for log in found["logs"]] if shown is None else shown)
    assert sum(not isinstance(want, tuple) for want in wanted) > 150


NAMES = ["a", "a b", "a\x85b", "a\ufeffb", "a\u2028b", "", "a+b", "é😀", "a\x1fb", "a\u180eb"]


def test_the_names_of_keys_are_those_of_python() -> None:
    key, calls = Verifier("a", Kind.COSIGNATURE, WITNESSES[0].verifier.public_key).to_text().rpartition("+")[2], Calls()
    texts = [f"{name}+00000000+{key}" for name in NAMES]
    for text in texts:
        calls.add("log/vkey.js", "parseVkey", text)
    wanted = [in_python(parse_vkey, text) for text in texts]
    assert [in_javascript(one) for one in calls.run()] == wanted


def test_a_policy_that_asks_for_ml_dsa_is_beyond_it_and_no_lower_quorum() -> None:
    key = Verifier("w.example", Kind.COSIGNATURE_ML_DSA_44, bytes(1312)).to_text()
    calls = Calls()
    calls.add("log/policy.js", "parsePolicy", f"{LOG}{KEYS}witness pq {key}\ngroup g any w0 pq\nquorum g\n".encode())
    (found,) = calls.run()
    assert (found.name, found.code) == ("Beyond", "beyond")
    assert "issuer verify" in found.message


# -- check 11 ------------------------------------------------------------------------------------------------------------


ITEM = make.submission()
SAYING: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"sub": "two words"}, {"iss": "https://issuer.example/é"}, {"sub": "i" * 4096}, {"exp": make.NOW + 7},
    {"log": "elsewhere.example/log"}, {"log": ...},
)  # fmt: skip


def parsed(token: str) -> tuple[TokenClaims, bytes]:
    jws = jose.parse_compact(token)
    return read_unverified(jws.unverified_payload)[0], jws.signing_input


def hand(at: random.Random, raw: bytes, spoilt_by: bytes) -> AtHand | None:
    """Return the evidence beside a file: mostly a proof, mostly the right one."""
    kind = at.choice(["good"] * 5 + ["other", "changed", "changed", "fault", "denied", "none"])
    if kind == "changed":
        return AtHand(changed(raw, at))
    return {
        "good": AtHand(raw), "other": AtHand(spoilt_by), "fault": AtHand(fault="too large"), "denied": AtHand(denied=True),
    }.get(kind)  # fmt: skip


def test_check_11_of_many_tokens_has_the_result_of_python() -> None:
    at, calls, wanted, statuses = random.Random(5), Calls(), [], dict[str, int]()
    signers = (TREE.signer, ELSEWHERE)
    texts = [policy_text(WITNESSES[:2], quorum, signers).encode() for quorum in ("all", "any", "none")]
    logs = [TrustedLog(parse_policy(text, "p"), str(number)) for number, text in enumerate(texts)]
    policies = [calls.add("log/policy.js", "parsePolicy", text) for text in texts]
    notes, kept = CheckedNotes(), calls.add("log/inclusion.js", "new CheckedNotes")
    places = []
    for number in range(1000):
        members = {"log": ORIGIN, "jti": jose.base64url_encode(number.to_bytes(16)), **at.choice(SAYING)}
        claims, signing_input = parsed(make.token_for(ITEM, **members))
        leaf = token_leaf(claims, make.KID, signing_input)
        raw = in_python(leaf.to_bytes)
        own = raw if isinstance(raw, bytes) else b"x"
        tree = Tree([*TREE.leaves[: at.randrange(6)], own, *TREE.leaves[6 : at.randrange(6, 9)]])
        if at.random() < 0.1:
            tree.origin, tree.signer = ELSEWHERE.name, ELSEWHERE
        tree.time = claims.iat + at.choice([1, 1, 1, -60, -61, 3600, 3601, 30])
        right, other = tree.proof(tree.leaves.index(raw) if raw in tree.leaves else 0), TREE.proof(at.randrange(9))
        found, asked = hand(at, right, other), hand(at, right, other)
        which = at.choice([0, 0, 0, 1, 2])
        now = make.NOW + at.choice([0, 100, 100_000])
        beside, answers = ({leaf: one} if one else {} for one in (found, asked))
        inclusion = Search(beside, answers, notes).find(claims, make.KID, signing_input, logs[which], now)
        wanted.append((inclusion.status.value, inclusion.evidence, inclusion.witnessed, inclusion.origin))
        statuses[inclusion.status] = statuses.get(inclusion.status, 0) + 1
        text = raw.decode() if isinstance(raw, bytes) else ""
        given = {name: getattr(claims, name) for name in ("iss", "sub", "iat", "exp", "policy")}
        places.append(
            calls.add("log/inclusion.js", "findInclusion", {
                "claims": given | ({} if claims.log is UNSET else {"log": claims.log}), "kid": make.KID,
                "signingInput": signing_input, "log": {"policy": policies[which], "digest": str(which), "url": ""},
                "proofs": mapping({text: asdict(found)} if found else {}), "asked": mapping({text: asdict(asked)} if asked else {}),
                "notes": kept, "now": now,
            })
        )  # fmt: skip
    answers_of = calls.run()
    found_answers = [answers_of[place.number] for place in places]
    assert [(one["status"], one["evidence"], one["witnessed"], one["origin"]) for one in found_answers] == wanted
    assert min(statuses[each] for each in ("pass", "fail", "unknown")) > 100


def test_a_leaf_names_its_sidecar_and_the_question_to_its_log() -> None:
    token = make.token_for(ITEM, log=ORIGIN)
    claims, signing_input = parsed(token)
    leaf, calls = token_leaf(claims, make.KID, signing_input), Calls()
    calls.add("log/ask.js", "sidecarName", make.PATH, leaf.to_bytes().decode())
    calls.add("log/ask.js", "proofUrl", "https://issuer.example/log/", leaf.to_bytes().decode())
    calls.add("log/ask.js", "unverifiedLeaf", token)
    question = f"https://issuer.example/log/proof?iat={claims.iat}&token={leaf.token.hex()}"
    name, asked, made = calls.run()
    assert (name, asked) == (sidecar_name(make.PATH, leaf.token), question)
    assert (made["leaf"], made["claims"]["sub"]) == (unverified_leaf(token).to_bytes().decode(), claims.sub)


# -- tiles ---------------------------------------------------------------------------------------------------------------


def test_proofs_are_made_out_of_tiles_as_in_python() -> None:
    sizes = (1, 2, 3, 7, 8, 255, 256, 257, 258, 511, 512, 513, 600)
    tree, calls, wanted, places = Tree([other_leaf(number) for number in range(max(sizes))]), Calls(), [], []
    for size in sizes:
        files = tree.files(size)
        here = {path: raw for path, raw in files.items() if path != "checkpoint"}
        served = {"$answers": [[path, as_bytes(raw)] for path, raw in here.items()]}
        node = calls.add("log/tiles.js", "nodeOfTiles", served, big(size))
        read = tiles.node_of_tiles(lambda *at, here=here: here[tiles.tile_path(*at)], size)
        for one in {0, 1, size // 2, size - 2, size - 1, 255, 256} & {*range(size)}:
            places.append(calls.add("log/prove.js", "inclusionProof", big(one), big(size), node))
            wanted.append([*merkle.inclusion_proof(one, size, read)])
            places.append(calls.add("log/prove.js", "consistencyProof", big(one + 1), big(size), node))
            wanted.append([*merkle.consistency_proof(one + 1, size, read)])
    answers = calls.run()
    assert [answers[place.number] for place in places] == wanted
    assert len(wanted) > 90


def as_bytes(raw: bytes) -> dict[str, str]:
    return {"$bytes": base64.b64encode(raw).decode()}


def test_tiles_have_the_paths_and_entries_that_python_gives_them() -> None:
    at, calls, wanted = random.Random(2), Calls(), []
    for index in (0, 1, 66, 999, 1000, 1001, 999_999, 1_000_000, 123_456_789_012, 2**50):
        places: list[tuple[tiles.Level, int]] = [(0, 256), (3, 8), ("entries", 255)]
        for level, width in places:
            calls.add("log/tiles.js", "tilePath", level, big(index), width)
            wanted.append(str(tiles.TilePath(level, index, width)))
    bundle = tiles.write_entries(TREE.leaves)
    for raw in (bundle, b"", bundle * 60, bundle[:-1], *(changed(bundle, at) for _ in range(500))):
        calls.add("log/tiles.js", "readEntries", raw)
        wanted.append(in_python(lambda given: [*tiles.read_entries(given)], raw))
    assert [in_javascript(answer) for answer in calls.run()] == wanted


def test_a_tile_of_another_width_is_refused() -> None:
    calls = Calls()
    node = calls.add("log/tiles.js", "nodeOfTiles", {"$answers": [["tile/0/000.p/2", as_bytes(bytes(32))]]}, big(2))
    calls.add("log/prove.js", "inclusionProof", big(0), big(2), node)
    assert calls.run()[1].message == "tile/0/000.p/2 has 32 bytes: it must have 2 hashes"
