"""A monitor's rules for leaves: each breach raises its alarm, and good leaves raise none."""

import json
from collections.abc import Sequence

import msgspec

from issuer.tlog import watch as watching
from issuer.tlog.leaf import AuditLeaf, RevocationsLeaf
from issuer.tlog.watch import AHEAD_S, BEHIND_S, Alarm, Announced, LeafNotice, Times, Watch
from tests.support import make
from tests.support.tlog import ANNOUNCED, X, key_leaf, policy_leaf, token_leaf

NOW = Times(None, make.NOW + 5)


def lines(leaves: Sequence[bytes], times: Times = NOW, watch: Watch | None = None) -> list[LeafNotice | Alarm]:
    watch = watch or Watch(Announced())
    return [line for index, leaf in enumerate(leaves) for line in watch.take(index, leaf, times)]


def alarms(leaves: Sequence[bytes], times: Times = NOW, watch: Watch | None = None) -> list[tuple[str, object]]:
    return [(line.alarm, line.index) for line in lines(leaves, times, watch) if isinstance(line, Alarm)]


def test_a_token_needs_earlier_announcements_of_its_key_and_policy() -> None:
    for state in ("next", "active", "retiring"):
        assert alarms([key_leaf(state=state), policy_leaf(), token_leaf()]) == []
    late = alarms([token_leaf(), *ANNOUNCED])
    assert late == [("token.kid_unannounced", 0), ("token.policy_unannounced", 0)]
    announced = Announced()
    lines(ANNOUNCED, watch=Watch(announced))
    assert alarms([token_leaf()], watch=Watch(announced)) == [], "in an earlier look"


def test_a_token_under_an_archived_or_revoked_key_is_an_alarm() -> None:
    """An archived key may be announced anew, a revoked one may not."""
    for state in ("archived", "revoked"):
        assert alarms([*ANNOUNCED, key_leaf(state=state), token_leaf()]) == [(f"token.kid_{state}", 3)]
    assert alarms([*ANNOUNCED, token_leaf(), key_leaf(state="revoked")]) == [], "revoked later"
    assert alarms([*ANNOUNCED, key_leaf(state="archived"), key_leaf(state="next", since=make.NOW), token_leaf()]) == []
    found = alarms([*ANNOUNCED, key_leaf(state="revoked"), key_leaf(state="active", since=make.NOW), token_leaf()])
    assert found == [("token.kid_revoked", 4)]


def test_an_announcement_counts_for_its_issuer_and_its_integration() -> None:
    for other in ({"iss": "https://other.example"}, {"sub": "helm"}, {"policy": "sha256:" + "1" * 64}):
        assert ("token.policy_unannounced", 2) in alarms([key_leaf(), policy_leaf(**other), token_leaf()])
    assert ("token.kid_unannounced", 2) in alarms([key_leaf(iss="https://other.example"), policy_leaf(), token_leaf()])


def test_an_iat_a_minute_after_its_leaf_or_a_day_before_it_is_an_alarm() -> None:
    for iat, found in ((5 + AHEAD_S, []), (6 + AHEAD_S, [("token.iat_ahead", 2)])):
        assert alarms([*ANNOUNCED, token_leaf(iat=make.NOW + iat, exp=make.NOW + 3600)]) == found
    for iat, found in ((-BEHIND_S, []), (-BEHIND_S - 1, [("token.iat_behind", 2)])):
        leaves = [*ANNOUNCED, token_leaf(iat=make.NOW + iat)]
        assert alarms(leaves, Times(make.NOW, make.NOW + 5)) == found
        assert alarms(leaves, Times(None, make.NOW + 5)) == [], "the earliest time is unknown"


def test_a_malformed_leaf_is_an_alarm_and_announces_nothing_an_unknown_is_a_notice() -> None:
    leaves = [key_leaf().replace(b"active", b"ACTIVE"), policy_leaf(), b"\xff", token_leaf()]
    assert alarms(leaves) == [("leaf.malformed", 0), ("leaf.malformed", 2), ("token.kid_unannounced", 3)]
    (line,) = lines([b"eval-token-issuer/token/v2\niss x\n"])
    assert line == LeafNotice("unknown", 0, {"first_line": "eval-token-issuer/token/v2"})


def test_an_integration_gets_notices_of_its_tokens_its_policies_and_every_key() -> None:
    others = [policy_leaf(sub="helm"), token_leaf(1, sub="helm"), RevocationsLeaf(make.ISSUER, "sha256:" + "2" * 64).to_bytes(),
              AuditLeaf(make.ISSUER, "w", "0" * 64).to_bytes()]  # fmt: skip
    leaves = [*ANNOUNCED, *others, token_leaf(2)]
    seen = [line for line in lines(leaves, watch=Watch(Announced(), "inspect-ai")) if isinstance(line, LeafNotice)]
    assert [(line.seen, line.index) for line in seen] == [("key", 0), ("policy", 1), ("token", 6)]
    assert seen[-1].leaf["token"] == (2).to_bytes(32).hex()
    assert "from" in seen[0].leaf, "the line's own name"
    unnamed = lines([*ANNOUNCED, token_leaf()])
    assert [line.seen for line in unnamed if isinstance(line, LeafNotice)] == ["key", "policy"]


def test_a_log_that_announces_without_end_is_an_alarm_and_takes_no_more_memory() -> None:
    many = Announced(policies={number.to_bytes(32) for number in range(watching.MAX_ANNOUNCED - 1)})
    leaves = [key_leaf(), policy_leaf(), key_leaf(state="retiring")]
    assert alarms(leaves, watch=Watch(many)) == [("announcements.too_many", 1)]
    assert len(many.keys) + len(many.policies) == watching.MAX_ANNOUNCED
    documented = (AHEAD_S, BEHIND_S, watching.MAX_ANNOUNCED, watching.MAX_UNMATCHED)
    assert documented == (60, 86_400, 262_144, 10_000)


def test_a_notice_and_an_alarm_have_the_members_of_their_leaf() -> None:
    key, *_, late = lines([key_leaf(), token_leaf(3)])
    assert isinstance(key, LeafNotice)
    assert key.leaf == {"iss": make.ISSUER, "kid": make.KID, "x": X, "state": "active", "from": make.NOW - 86_400}
    assert json.loads(msgspec.json.encode(late)) == {
        "alarm": "token.policy_unannounced",
        "detail": "its policy was not announced for its integration at a smaller index",
        "index": 1,
        "leaf": {
            "iss": make.ISSUER, "sub": "inspect-ai", "kid": make.KID, "iat": make.NOW, "exp": make.NOW + 3600,
            "policy": "sha256:" + "0" * 64, "token": "0" * 63 + "3",
        },
    }  # fmt: skip


def test_leaves_without_a_token_are_counted_until_the_token_turns_up() -> None:
    announced, owned = Announced(), {(1).to_bytes(32)}
    leaves = [*ANNOUNCED, policy_leaf(sub="helm"), *map(token_leaf, (1, 2, 3)), token_leaf(4, sub="helm")]
    watch = Watch(announced, "inspect-ai", lambda: owned)
    assert alarms(leaves, watch=watch) == []
    assert announced.unmatched == {(2).to_bytes(32), (3).to_bytes(32)}
    assert [alarm.alarm for alarm in watch.count_unmatched(1)] == ["tokens.unmatched"]
    assert list(watch.count_unmatched(2)) == []
    later = Watch(announced, "inspect-ai", lambda: {(2).to_bytes(32)})
    assert list(later.count_unmatched(1)) == []
    assert announced.unmatched == {(3).to_bytes(32)}


def test_an_integration_s_tokens_are_read_once_and_only_if_needed() -> None:
    asked = []

    def owned() -> set[bytes]:
        asked.append(1)
        return set()

    watch = Watch(Announced(), "inspect-ai", owned)
    lines(ANNOUNCED, watch=watch)
    assert list(watch.count_unmatched(0)) == []
    assert not asked
    lines([token_leaf(1), token_leaf(2)], watch=watch)
    assert len(list(watch.count_unmatched(0))) == 1
    assert len(asked) == 1


def test_unmatched_tokens_take_bounded_memory() -> None:
    announced = Announced(unmatched={number.to_bytes(32) for number in range(watching.MAX_UNMATCHED)})
    watch = Watch(announced, "inspect-ai", set)
    (alarm,) = watch.count_unmatched(watching.MAX_UNMATCHED - 1)
    assert alarm.detail.startswith(f"{watching.MAX_UNMATCHED} tokens")
    lines([*ANNOUNCED, token_leaf(999_998), token_leaf(999_999)], watch=watch)
    assert len(announced.unmatched) == watching.MAX_UNMATCHED + 1
    (alarm,) = watch.count_unmatched(watching.MAX_UNMATCHED)
    assert alarm.detail.startswith(f"more than {watching.MAX_UNMATCHED} tokens")
