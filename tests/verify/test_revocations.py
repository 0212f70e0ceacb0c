"""The revocation list as its issuer writes it: a relying party reads back the same list."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from issuer.formats.times import MAX_UNIX_S
from issuer.verify.revocations import Items, RevokedInterval, items_of, objection, write_revocations
from tests.support.make import ISSUER, NOW, REVOCATION_KEY, parse_list, payload_by_joserfc

TIMES = st.integers(0, MAX_UNIX_S)


@st.composite
def intervals(draw: st.DrawFn) -> RevokedInterval:
    begin = draw(TIMES)
    end = draw(st.one_of(st.just(UNSET), st.integers(begin, MAX_UNIX_S)))
    return RevokedInterval(draw(st.sampled_from(["inspect-ai", "lm-eval", "helm"])), begin, end)


ITEMS = st.builds(items_of, st.lists(st.text("abc", min_size=1, max_size=3)), st.lists(intervals(), max_size=6))


def write(items: Items, number: int = 1) -> bytes:
    return write_revocations(items, ISSUER, REVOCATION_KEY, number=number, iat=NOW, next_update=NOW + 60)


@given(items=ITEMS)
def test_a_list_that_is_written_is_read_as_what_was_meant(items: Items) -> None:
    raw = write(items, 7)
    read = parse_list(raw)
    assert (read.number, read.iat, read.next_update) == (7, NOW, NOW + 60)
    assert read.missing(items) == items.missing(read) == 0
    assert read.count == items.count
    assert payload_by_joserfc(raw.decode(), REVOCATION_KEY)


@given(one=ITEMS, other=ITEMS)
def test_the_order_of_items_makes_no_other_list_and_what_joins_them_loses_none(one: Items, other: Items) -> None:
    both = one.with_those_of(other)
    assert write(both) == write(other.with_those_of(one))
    assert both.missing(one) == both.missing(other) == 0
    assert objection(parse_list(write(both, 2)), parse_list(write(one, 1))) == ""


@given(items=ITEMS, sub=st.sampled_from(["inspect-ai", "lm-eval"]), iat=TIMES)
def test_a_token_is_revoked_by_its_interval_and_no_other_is(items: Items, sub: str, iat: int) -> None:
    among = any(
        each.from_ <= iat and (each.until is UNSET or iat <= each.until) for each in items.intervals.get(sub, ())
    )
    assert bool(items.revoked("another", sub, iat)) is among
    assert all(items.revoked(jti, "nobody", iat) for jti in items.jtis)
