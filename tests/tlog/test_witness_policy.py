"""Witness policies: the grammar of the file, its quorum, and the time that witnesses prove."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import FormatError, InputError
from issuer.tlog.checkpoint import Checkpoint
from issuer.tlog.note import Cosigner, Kind, Note, NoteSigner, Verifier
from issuer.tlog.witness_policy import MAX_EACH, MAX_POLICY_BYTES, WitnessPolicy, parse_policy
from tests.support.ml_dsa import MlDsaWitness, needs_ml_dsa


def private(seed: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


LOG = NoteSigner("example.com/log", private(1))
KEYS = {
    name: Cosigner(f"{name.lower()}.example/w", private(10 + at))
    for at, name in enumerate(("X1", "X2", "X3", "Y1", "Y2"))
}
X1, X2, X3, Y1, Y2 = KEYS.values()
W = {name: f"witness {name} {key.verifier.to_text()}" for name, key in KEYS.items()}
LOG_LINE = f"log {LOG.verifier.to_text()}"
CHECKPOINT = Checkpoint(LOG.name, 5, hashlib.sha256(b"root").digest())
TEXT = CHECKPOINT.to_text()
NOW = 1_800_000_000


def policy(*lines: str) -> WitnessPolicy:
    return parse_policy("".join(f"{line}\n" for line in lines).encode(), "policy")


def note(**times: int) -> Note:
    """Return the checkpoint, signed by the log and cosigned by these witnesses at these times."""
    return Note(TEXT, (LOG.sign(TEXT), *(KEYS[name].cosign(TEXT, time) for name, time in times.items())))


TWO_LEVELS = policy(
    "# as in the example of c2sp.org/tlog-policy",
    f"\t{LOG_LINE}   https://log.example/",
    "",
    *W.values(),
    "group X 2 X1 X2 X3",
    "group Y any Y1 Y2",
    "group X-and-Y all X Y",
    "quorum X-and-Y",
)


def test_the_example_of_the_specification_is_read_and_its_quorum_is_of_groups() -> None:
    assert [log.url for log in TWO_LEVELS.logs] == ["https://log.example/"]
    assert [witness.name for witness in TWO_LEVELS.witnesses] == list(W)
    assert [group.threshold for group in TWO_LEVELS.groups] == [2, 1, 2]
    for met, cosigners in (
        (True, (X1, X2, Y1)), (True, (X1, X3, Y2)), (False, (X1, X2, X3)), (False, (X1, Y1, Y2)), (False, ()), (False, (X1, X1, Y1)),
    ):  # fmt: skip
        assert TWO_LEVELS.met_by(key.verifier for key in cosigners) is met


def test_the_witnessed_time_is_the_smallest_at_which_the_quorum_was_met() -> None:
    assert TWO_LEVELS.check(note(X1=10, X2=30, X3=20, Y1=15, Y2=90), NOW).time == 20
    assert TWO_LEVELS.check(note(X1=10, X2=11, Y2=90), NOW).time == 90
    none = policy(LOG_LINE, W["X1"], "quorum none")
    assert none.check(note(X1=10), NOW).time is None
    assert none.check(note(), NOW).checkpoint == CHECKPOINT
    one = policy(LOG_LINE, W["X1"], "quorum X1")
    assert one.check(note(X1=NOW + 60), NOW).time == NOW + 60
    with pytest.raises(FormatError) as caught:
        one.check(note(X1=NOW + 61), NOW)
    assert caught.value.code is Code.LOG_QUORUM, "more than a minute ahead"


def test_two_cosignatures_of_one_witness_count_once_at_the_earlier_time() -> None:
    twice = note(X1=40).with_lines([X1.cosign(TEXT, 30), X1.cosign(TEXT, 50)])
    two = policy(LOG_LINE, *W.values(), "group g 2 X1 X2 X3", "quorum g")
    with pytest.raises(FormatError, match="too few"):
        two.check(twice, NOW)
    assert policy(LOG_LINE, W["X1"], "quorum X1").check(twice, NOW).time == 30


def test_a_checkpoint_of_no_trusted_log_is_refused() -> None:
    other = Checkpoint("example.com/other", 5, CHECKPOINT.root).to_text()
    for bad in (Note(TEXT, (X1.cosign(TEXT, 1),)), Note(other, (LOG.sign(other),))):
        with pytest.raises(FormatError) as caught:
            policy(LOG_LINE, W["X1"], "quorum none").check(bad, NOW)
        assert caught.value.code is Code.LOG_SIGNATURE
    unnamed = NoteSigner("example.com/other", private(2))
    both = policy(LOG_LINE, f"log {unnamed.verifier.to_text()}", W["X1"], "quorum X1")
    with pytest.raises(FormatError, match="not signed by a log of the policy with its origin"):
        both.check(Note(TEXT, (unnamed.sign(TEXT), X1.cosign(TEXT, 1))), NOW)
    with pytest.raises(FormatError) as caught:
        TWO_LEVELS.check(Note("a\n", (LOG.sign("a\n"),)), NOW)
    assert caught.value.code is Code.LOG_MALFORMED, "it has no checkpoint"


BAD: tuple[tuple[str, ...], ...] = (
    (LOG_LINE,), (LOG_LINE, LOG_LINE, "quorum none"), (f"{LOG_LINE} https://a/ https://b/", "quorum none"), ("log", "quorum none"),
    (f"log {X1.verifier.to_text()}", "quorum none"), (f"log {LOG.verifier.public_key.hex()}", "quorum none"),
    (f"witness a {LOG.verifier.to_text()}", "quorum a"), ("witness X1", "quorum none"),
    (W["X1"].replace("X1", "none", 1), "quorum none"), (W["X1"], W["X2"].replace("X2", "X1", 1), "quorum X1"),
    (W["X1"], W["X1"].replace("X1", "X2", 1), "quorum X1"),
    (W["X1"], f"witness X2 {Verifier('other', Kind.COSIGNATURE, X1.verifier.public_key).to_text()}", "quorum X1"),
    ("quorum X1", W["X1"]), (W["X1"], W["X2"], "quorum X1 X2"),
    *((line, "quorum none") for line in ("quorum none", "threshold 2", "# keys\r")),
    *((line,) for line in (
        "quorum X1", "quorum", "quorum none # so far", "Quorum none", "quorum none\r", "quorum\fnone", "quorum none\x7f",
        "quorum\u00a0none",
    )),
    *((W["X1"], group, "quorum X1") for group in ("group none any X1", "group g any", "group g")),
    (W["X1"], "group g all h", "group h all X1", "quorum g"), (W["X1"], "group g any X1", "group h any X1", "quorum g"),
    *((W["X1"], f"group g {rest}", "quorum g") for rest in (
        "all X1 X2", "any g X1", "any none X1", "2 X1 X1", "2 X1", "0 X1", "01 X1", "-1 X1", f"{'1' * 5000} X1", "\u0661 X1",
    )),
)  # fmt: skip


def test_a_policy_that_breaks_a_rule_or_was_cut_short_is_refused() -> None:
    for lines in BAD:
        with pytest.raises(InputError) as caught:
            policy(*lines)
        assert caught.value.code is Code.LOG_POLICY, lines
    for raw in (b"", b"quorum none", b"quorum none\n# the last"):
        with pytest.raises(InputError, match="cut short"):
            parse_policy(raw, "policy")
    with pytest.raises(InputError, match="over"):
        parse_policy(b"#" * MAX_POLICY_BYTES + b"\nquorum none\n", "policy")
    with pytest.raises(InputError, match=r"policy:4:1: log\.policy: `X9` is not a witness") as caught:
        policy("# keys", W["X1"], "", "quorum X9")
    assert caught.value.place.line == 4
    with pytest.raises(InputError, match=r"^policy: log\.policy: the policy has no `quorum` line"):
        policy("# nothing")


def test_only_spaces_and_tabs_separate_words_and_any_word_may_be_a_name() -> None:
    spelt = policy(f" \t log\t {LOG.verifier.to_text()} \t", " \t ", "  # quorum X1", "\tquorum \t none\t")
    assert spelt == policy(LOG_LINE, "quorum none")
    words = zip(("X1", "X2", "X3"), ("all", "2", "group"), strict=True)
    named = policy(*(W[name].replace(name, word, 1) for name, word in words), "group any 2 all 2 group", "quorum any")
    assert [named.met_by(keys) for keys in ([X1.verifier, X3.verifier], [X1.verifier])] == [True, False]


def test_names_are_octets_unlike_those_that_look_like_them_and_a_url_has_ascii_alone() -> None:
    kelvin, bare = "\u212a", b"\xff\xfe"
    lines = (
        b"# \xff",
        W["X1"].replace("X1", kelvin, 1).encode(),
        b"witness " + bare + b" " + X2.verifier.to_text().encode(),
    )
    raw = b"\n".join(lines)
    both = raw + b"\ngroup K all \xe2\x84\xaa \xff\xfe\nquorum K\n"
    assert parse_policy(both, "policy").met_by([X1.verifier, X2.verifier])
    with pytest.raises(InputError, match="`K` is not a witness"):
        parse_policy(raw + b"\nquorum K\n", "policy")
    with pytest.raises(InputError, match=r"`\\xff` is not a witness"):
        parse_policy(raw + b"\nquorum \xff\n", "policy")
    for url in (b"https://a/\xff", "https://a/\u202e".encode(), b"\xed\xa0\x80"):
        with pytest.raises(InputError, match="URL"):
            parse_policy(LOG_LINE.encode() + b" " + url + b"\nquorum none\n", "policy")


# Two good points that have one key id under the name "w": 2^16 tries find such a pair.
ALIKE = (
    "1ed69c86acb68d013a5c7a3f09c253d92fb48c796e2cf09b1d58c10661969686",
    "0535dae7c83b0d90660cae06e9755ece2875af8f423c24b27c6edb0bb8bb1a42",
)


def test_two_keys_with_one_name_and_key_id_are_refused() -> None:
    first, second = (Verifier("w", Kind.COSIGNATURE, bytes.fromhex(key)).to_text() for key in ALIKE)
    assert first.split("+")[1] == second.split("+")[1]
    with pytest.raises(InputError, match="has this name and key id"):
        policy(f"witness A {first}", f"witness B {second}", "quorum none")


def test_as_many_of_each_are_read_as_every_reader_takes_and_no_more() -> None:
    def many(count: int) -> list[str]:
        keys = [private(100 + at).public_key().public_bytes_raw() for at in range(count)]
        logs = [f"log {Verifier(f'log{at}', Kind.ED25519, key).to_text()}" for at, key in enumerate(keys)]
        witnesses = [
            f"witness {at} {Verifier(f'w{at}', Kind.COSIGNATURE, key).to_text()}" for at, key in enumerate(keys)
        ]
        groups = [f"group g{at} all {at} {f'g{at - 1}' if at else ''}" for at in range(count)]
        return [*logs, *witnesses, *groups, f"quorum g{count - 1}"]

    deep = policy(*many(MAX_EACH))
    keys = [witness.verifier for witness in deep.witnesses]
    assert deep.met_by(keys)
    assert not deep.met_by(keys[1:])
    for first in ("log log32", "witness 32", "group g32"):
        spare = [line for line in many(MAX_EACH + 1) if line.startswith(first)]
        with pytest.raises(InputError, match="over 32"):
            policy(*many(MAX_EACH)[:-1], *spare, "quorum none")


# -- logs ---------------------------------------------------------------------------------------------------------------


def test_a_log_that_changes_its_key_signs_with_both_and_either_is_enough() -> None:
    new = NoteSigner(LOG.name, private(2))
    both = Note(TEXT, (LOG.sign(TEXT), new.sign(TEXT)))
    new_line = f"log {new.verifier.to_text()}"
    for lines in ((LOG_LINE,), (new_line,), (LOG_LINE, new_line)):
        assert policy(*lines, "quorum none").check(both, NOW).checkpoint == CHECKPOINT


def test_a_witness_s_bad_line_refuses_the_checkpoint_even_with_a_quorum() -> None:
    other = Checkpoint(LOG.name, 6, CHECKPOINT.root).to_text()
    spoilt = note(X1=1, X2=2, X3=3, Y1=4).with_lines([Y2.cosign(other, 5)])
    with pytest.raises(FormatError) as caught:
        TWO_LEVELS.check(spoilt, NOW)
    assert caught.value.code is Code.LOG_SIGNATURE


# -- ML-DSA-44 ----------------------------------------------------------------------------------------------------------


@needs_ml_dsa
def test_a_log_and_a_witness_with_ml_dsa_keys() -> None:
    log, witness = MlDsaWitness(LOG.name, seed=1), MlDsaWitness("witness.example/pq", seed=2)
    spelt = policy(f"log {log.vkey}", f"witness PQ {witness.vkey}", "quorum PQ")
    signed = log.cosign(CHECKPOINT, 0)
    assert spelt.check(Note(TEXT, (signed, witness.cosign(CHECKPOINT, 7))), NOW).time == 7


@needs_ml_dsa
def test_the_log_s_own_time_or_a_missing_one_counts_for_no_quorum() -> None:
    log, witness = MlDsaWitness(LOG.name), MlDsaWitness("witness.example/pq")
    with pytest.raises(FormatError, match="cosigned: none"):
        policy(f"log {log.vkey}", W["X1"], "quorum X1").check(Note(TEXT, (log.cosign(CHECKPOINT, 7),)), NOW)
    timeless = Note(TEXT, (LOG.sign(TEXT), witness.cosign(CHECKPOINT, 0)))
    with pytest.raises(FormatError) as caught:
        policy(LOG_LINE, f"witness PQ {witness.vkey}", "quorum PQ").check(timeless, NOW)
    assert caught.value.code is Code.LOG_QUORUM


@needs_ml_dsa
def test_a_policy_with_a_key_of_a_kind_unknown_here_is_refused() -> None:
    raw = f"{LOG_LINE}\n{W['X1']}\nwitness PQ {MlDsaWitness('pq').vkey}\ngroup g any X1 PQ\nquorum g\n".encode()
    assert parse_policy(raw, "policy").met_by([X1.verifier])
    with pytest.raises(InputError, match=r"policy:3:1: .*cannot verify ML-DSA-44"):
        parse_policy(raw, "policy", kinds={Kind.ED25519, Kind.COSIGNATURE})


# -- any policy ---------------------------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> tuple[str, dict[str, tuple[int, list[str]]]]:
    """Draw groups over five witnesses, each name a member at most once, and the name of a quorum."""
    free = list(W)
    groups: dict[str, tuple[int, list[str]]] = {}
    for number in range(draw(st.integers(0, 4))):
        members = draw(st.lists(st.sampled_from(free), min_size=1, max_size=3, unique=True)) if free else []
        if members:
            groups[f"g{number}"] = (draw(st.integers(1, len(members))), members)
            free = [name for name in free if name not in members] + [f"g{number}"]
    return draw(st.sampled_from([*W, *groups])), groups


def met(name: str, groups: dict[str, tuple[int, list[str]]], cosigned: set[str]) -> bool:
    """The definition of c2sp.org/tlog-policy, by recursion."""
    if name not in groups:
        return name in cosigned
    threshold, members = groups[name]
    return sum(met(member, groups, cosigned) for member in members) >= threshold


@given(trees(), st.dictionaries(st.sampled_from(list(W)), st.integers(1, 9)))
def test_quorum_and_witnessed_time_follow_the_definition(
    tree: tuple[str, dict[str, tuple[int, list[str]]]], times: dict[str, int]
) -> None:
    quorum, groups = tree
    lines = [f"group {name} {threshold} {' '.join(members)}" for name, (threshold, members) in groups.items()]
    spelt = policy(LOG_LINE, *W.values(), *lines, f"quorum {quorum}")
    at = [time for time in range(10) if met(quorum, groups, {name for name in times if times[name] <= time})]
    assert spelt.met_by(KEYS[name].verifier for name in times) is bool(at)
    if at:
        assert spelt.check(note(**times), NOW).time == at[0]
    else:
        with pytest.raises(FormatError, match="too few"):
            spelt.check(note(**times), NOW)


WORDS = [
    "log", "witness", "group", "quorum", "none", "any", "all", "1", "2", "X1", "X2", " ", "\t", "\n", "#", "\r", "é", *W.values(),
]  # fmt: skip


@given(
    st.binary(max_size=100) | st.lists(st.sampled_from(WORDS), max_size=30).map(lambda words: " ".join(words).encode())
)
def test_any_bytes_are_a_policy_or_refused_with_its_code(raw: bytes) -> None:
    try:
        parse_policy(raw, "policy")
    except InputError as error:
        assert error.code is Code.LOG_POLICY  # noqa: PT017  (the bytes may be a policy)
