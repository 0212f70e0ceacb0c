"""Large documents: skipped parts leave no trace, and every reader would read the kept parts the same."""

import json

from hypothesis import given
from hypothesis import strategies as st

from issuer.adapters import large_json
from issuer.codes import Code
from tests.support.runs import refusal, refusal_or_none

SAMPLES = frozenset({"samples"})


def kept(raw: bytes | bytearray) -> bytes:
    return large_json.without(raw, SAMPLES, name="log.json")


def test_only_the_values_of_these_members_are_left_out() -> None:
    for raw, rest in (
        (b'{"a": 1, "samples": [1, {"samples": 2}], "b": 2}', b'{"a": 1, "samples": null, "b": 2}'),
        (b' {"samples":[]}\n', b' {"samples":null}\n'),
        (b'{"s\\u0061mples": [NaN], "b": NaN}', b'{"s\\u0061mples": null, "b": NaN}'),
        (b'{"b": {"samples": [1]}}', b'{"b": {"samples": [1]}}'),
        (b"{}", b"{}"),
        ('{"samples": "…", "b": "…"}'.encode(), '{"samples": null, "b": "…"}'.encode()),
        (b'{"samples": [-Infinity, Infinity,NaN ,"x: NaN, "], "b": "is, NaN, so"}', b'{"samples": null, "b": "is, NaN, so"}'),
    ):  # fmt: skip
        assert kept(raw) == rest
        buffer = bytearray(raw)
        assert kept(buffer) == rest
        assert buffer == raw


def test_a_member_that_is_named_twice_is_found() -> None:
    # With the second value's length for the first one, `a` would be found inside of it.
    inside = b'{"samples": ["xx", "a":"b", 1], "samples": ["xx"]}'.replace(b'"a":"b"', b'", \\"a\\":0"')
    spelled = b'{"samples": [1], "s\\u0061mples": [1]}'
    pairs = (b'{"a": 1, "a": 1}', b'{"samples": [1], "a": 1, "samples": [2]}', b'{"a": 12, "a": 1}', b'{"": 1, "": 2}')
    for raw in (*pairs, spelled, inside):
        json.loads(raw)
        assert refusal(kept, raw).code is Code.FILE_DUPLICATE_KEY, raw


def test_bytes_that_are_no_json_object_are_refused_with_their_place() -> None:
    for raw, code, line in (
        (b'{"a": 1,\n "b": tru}', Code.FILE_SYNTAX, 2), (b'{"samples": [1, NaNa]}', Code.FILE_SYNTAX, 1),
        (b'{"samples": [1', Code.FILE_SYNTAX, None), (b'{"a": 1} {}', Code.FILE_SYNTAX, 1),
        (b"", Code.FILE_SYNTAX, None), (b"[1]", Code.FILE_SCHEMA, None), (b"1", Code.FILE_SCHEMA, None),
        (b'{"samples": ' + b"[" * 100_000, Code.FILE_TOO_LARGE, None),
        (b'{"samples": "\xff"}', Code.FILE_ENCODING, None),
        ('{"samples": "…"}'.encode()[:-4], Code.FILE_ENCODING, None),
    ):  # fmt: skip
        error = refusal(kept, raw)
        assert (error.code, line in {None, error.place.line}) == (code, True), raw[:99]
        buffer = bytearray(raw)
        refusal(kept, buffer)
        assert buffer == raw


def test_absurd_documents_are_refused() -> None:
    """A quadratic reading would take hours."""
    for raw in (
        b'{"samples": [' + b"NaN," * large_json.MAX_NOT_NUMBERS + b"NaN]}",
        b'{"samples": ["' + b"xNaN" * large_json.MAX_LOOKED_AT + b'", NaN]}',
        b"{" + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}",
        b'{"other": "' + b"x" * large_json.MAX_REST + b'"}',
    ):
        assert refusal(kept, raw).code is Code.FILE_TOO_LARGE, raw[:30]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=8) | st.just("a, NaN, b"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["samples", "a", "b", 'q"\\', "ü"]), VALUES), st.booleans())
def test_the_kept_part_reads_like_the_whole(members: dict[str, object], ascii_only: bool) -> None:
    raw = json.dumps(members, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if (error := refusal_or_none(lambda: kept(raw))) is not None:
        assert error.code is Code.FILE_ENCODING
        return
    whole = {**members, **({"samples": None} if "samples" in members else {})}
    assert json.dumps(json.loads(kept(raw))) == json.dumps(whole)


@given(st.integers(0, 60), st.integers(0, 6), st.binary(max_size=6))
def test_any_bytes_are_read_or_an_input_error(at: int, length: int, instead: bytes) -> None:
    raw = b'{"version": 2, "samples": [{"value": NaN, "text": "\\u00e9"}], "status": "success"}'
    error = refusal_or_none(lambda: kept(raw[:at] + instead + raw[at + length :]))
    assert error is None or error.code.value.startswith("file.")
