"""A monitor finds what was done to a log between two looks, and keeps all that it has seen."""

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.errors import InputError, Undecided
from issuer.formats.jose import MAX_TOKEN_BYTES
from issuer.relying.logs.monitor import (
    Monitor,
    MonitorOptions,
    MonitorSummary,
    OwnTokens,
    read_followed,
    write_followed,
)
from issuer.relying.logs.reader import TimedCheckpoint
from issuer.results.entry import write_entry
from issuer.tlog.checkpoint import parse_checkpoint
from issuer.tlog.leaf import token_digest
from issuer.tlog.note import parse_note
from issuer.tlog.watch import MAX_ANNOUNCED, MAX_UNMATCHED, Alarm, Announced, LeafNotice
from issuer.tlog.witness_policy import parse_policy
from tests.support import make
from tests.support.tlog import ANNOUNCED, WITNESSES, InMemory, Tree, key_leaf, policy_text, token_leaf

POLICY = parse_policy(policy_text().encode(), "policy")
NO_WITNESS = parse_policy(policy_text(quorum="none").encode(), "policy")
NOW = make.NOW + 10


class Watching:
    """A monitor with its state in a folder; a new process for each look."""

    def __init__(self, folder: Path, tree: Tree, **wanted: Any) -> None:
        self.state = folder / "state"
        self.log = InMemory(tree.files())
        self.policy = POLICY
        self.wanted = MonitorOptions(**wanted)

    def look(self, tree: Tree | None = None, now: int = NOW) -> list[LeafNotice | Alarm | MonitorSummary]:
        if tree is not None:
            self.log.files = tree.files()
        return list(Monitor(self.log, self.policy, self.state, self.wanted).look(now))

    def alarms(self, tree: Tree | None = None, now: int = NOW) -> list[str]:
        return [line.alarm for line in self.look(tree, now) if isinstance(line, Alarm)]


def grown(*leaves: bytes) -> Tree:
    return Tree([*ANNOUNCED, *map(token_leaf, range(300)), *leaves])


def test_a_look_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    watching = Watching(tmp_path, Tree(), integration="inspect-ai")
    first, second, third = watching.look(), watching.look(grown()), watching.look(grown(key_leaf(state="retiring")))
    assert [(line.seen, line.index) for line in first if isinstance(line, LeafNotice)] == [("key", 0), ("policy", 1)]
    assert [line.index for line in second if isinstance(line, LeafNotice)] == list(range(2, 302))
    assert [(line.seen, line.index) for line in third if isinstance(line, LeafNotice)] == [("key", 302)]
    assert [line.size for line in (first[-1], second[-1], third[-1]) if isinstance(line, MonitorSummary)] == [
        2,
        302,
        303,
    ]
    assert watching.look()[:-1] == [], "a second look reports no leaf and no alarm again"


def test_announcements_of_an_earlier_look_count(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown(key_leaf(state="revoked")))
    assert watching.alarms() == []
    assert watching.alarms(grown(key_leaf(state="revoked"), token_leaf(1000))) == ["token.kid_revoked"]
    assert watching.alarms() == [], "the next look begins behind it"


def test_the_state_is_stored_only_after_every_line_was_read(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown())
    lines = Monitor(watching.log, POLICY, watching.state, watching.wanted).look(NOW)
    for _ in range(2):
        next(lines)
    assert not watching.state.exists()
    del lines
    watching.look()
    assert watching.state.stat().st_mode & 0o777 == 0o600
    followed = read_followed(watching.state)
    assert followed is not None
    assert followed.head is not None
    assert (followed.head.checkpoint.size, followed.head.time) == (302, make.NOW + 1)
    assert len(followed.announced.keys) == len(followed.announced.policies) == 1


def test_a_rewritten_log_is_an_alarm_with_both_signed_checkpoints(tmp_path: Path) -> None:
    inconsistent, shrinks = "checkpoint.inconsistent", "checkpoint.shrinks"
    cases = [
        (Tree([*ANNOUNCED, token_leaf(77), *map(token_leaf, range(1, 400))]), inconsistent),
        (Tree([*ANNOUNCED, token_leaf(77), *map(token_leaf, range(1, 300))]), inconsistent),
        (Tree(grown().leaves[:301]), shrinks),
        (Tree([]), shrinks),
    ]
    watching = Watching(tmp_path, grown())
    watching.look()
    kept = watching.state.read_bytes()
    for after, alarm in cases:
        (line,) = watching.look(after)
        assert isinstance(line, Alarm)
        assert line.alarm == alarm
        for note, tree in zip(line.notes, (grown(), after), strict=True):
            assert POLICY.check(parse_note(note.encode()), NOW).checkpoint.root == tree.root()
        assert watching.state.read_bytes() == kept, "the verified state stays"
        assert watching.alarms() == [alarm], "and the alarm is raised again"


def test_two_roots_of_one_size_are_an_alarm_whatever_else_is_served(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown())
    watching.look()
    watching.log.files = {"checkpoint": Tree([*grown().leaves[:-1], token_leaf(77)]).note().to_bytes()}
    assert watching.alarms() == ["checkpoint.inconsistent"]


def test_a_look_ends_with_how_many_alarms_there_were(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown())
    for leaves, alarms in ([], 0), ([b"\xff", b"\xfe"], 2):
        last = watching.look(grown(*leaves))[-1]
        assert isinstance(last, MonitorSummary)
        assert last.alarms == alarms


def test_another_log_in_its_place_is_an_alarm(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown())
    watching.look()
    other = Tree(origin="log.example/other", key=make.STRANGER)
    assert watching.alarms(other) == ["log.unverified"], "it is not trusted"
    watching.policy = parse_policy(policy_text(logs=[Tree().signer, other.signer]).encode(), "policy")
    (alarm,) = watching.look(other)
    assert isinstance(alarm, Alarm)
    assert "this is the log log.example/other" in alarm.detail, "trusted, and still not the one that is followed"


def test_files_that_do_not_match_the_checkpoint_are_an_alarm(tmp_path: Path) -> None:
    watching, good = Watching(tmp_path, grown()), grown().files()
    for path in ("tile/entries/000", "tile/0/000", "tile/0/001.p/46", "tile/1/000.p/1"):
        raw = good[path]
        watching.log.files = {**good, path: raw[:-1] + bytes([raw[-1] ^ 1])}
        assert watching.alarms() == ["log.unverified"]
    other = Tree([*ANNOUNCED, *map(token_leaf, range(1000, 1300))]).files()
    watching.log.files = {**other, "checkpoint": good["checkpoint"]}
    assert watching.alarms() == ["log.unverified"]
    assert not watching.state.exists()


def test_a_stranger_s_checkpoint_is_an_alarm_and_one_without_its_quorum_undecided(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown())
    note = grown().note()
    watching.log.files["checkpoint"] = note.to_bytes().replace(note.text.encode(), grown(b"").note().text.encode())
    assert watching.alarms() == ["log.unverified"]
    watching.log.files["checkpoint"] = grown().note(witnesses=WITNESSES[:1]).to_bytes()
    with pytest.raises(Undecided, match="too few witnesses"):
        watching.look()


def test_an_iat_is_compared_with_the_witnessed_time_of_the_leaf(tmp_path: Path) -> None:
    watching = Watching(tmp_path, Tree(time=make.NOW))
    early = token_leaf(1, iat=make.NOW + 200, exp=make.NOW + 900)
    assert watching.alarms() == []
    assert watching.alarms(Tree([*ANNOUNCED, early], time=make.NOW + 100), now=make.NOW + 500) == ["token.iat_ahead"]
    late = token_leaf(2, iat=make.NOW - 90_000)
    assert watching.alarms(Tree([*ANNOUNCED, early, late], time=make.NOW + 200), now=make.NOW + 500) == [
        "token.iat_behind"
    ]


def test_without_witnesses_the_monitor_s_own_clock_is_the_latest_time(tmp_path: Path) -> None:
    watching = Watching(tmp_path, Tree([*ANNOUNCED, token_leaf(1, iat=NOW + 61, exp=NOW + 99)]))
    watching.policy = NO_WITNESS
    assert watching.alarms(now=NOW) == ["token.iat_ahead"]


def test_a_state_that_is_damaged_open_to_others_or_a_link_is_refused(tmp_path: Path) -> None:
    watching = Watching(tmp_path, grown(), integration="inspect-ai")
    watching.look()
    good = watching.state.read_bytes()
    assert json.loads(good)["compared"] == "", "it has no token and no name"
    assert len(good) < 4096
    unknown, loose = good[:-1] + b',"more":1}', good.replace(b'=":"active"', b'=!":"active"')
    assert loose != good
    for raw in (b"", b"{}", b"\xff", b'{"version":2}', b"null", unknown, loose):
        watching.state.write_bytes(raw)
        with pytest.raises(InputError, match="damaged"):
            watching.look()
    watching.state.write_bytes(good)
    watching.state.chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        watching.look()
    watching.state.rename(tmp_path / "other")
    watching.state.symlink_to("other")
    with pytest.raises(InputError, match="symbolic link"):
        watching.look()


def test_the_largest_state_is_read_again_from_a_folder_that_is_made(tmp_path: Path) -> None:
    def digests(count: int) -> list[bytes]:
        return [number.to_bytes(32, "big") for number in range(count)]

    announced = Announced(dict.fromkeys(digests(MAX_ANNOUNCED), "retiring"), set(), set(digests(MAX_UNMATCHED)))
    note = grown().note()
    write_followed(tmp_path / "new" / "state", TimedCheckpoint(note, parse_checkpoint(note.text)), "", announced)
    followed = read_followed(tmp_path / "new" / "state")
    assert followed is not None
    assert followed.announced == announced


def test_leaves_whose_tokens_the_integration_does_not_have_are_an_alarm(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens" / ".eval_results"
    tokens.mkdir(parents=True)
    mine, other = (make.token_for(make.submission({"notes": notes})) for notes in ("a", "b"))
    leaves = [token_leaf(token=token_digest(token.rpartition(".")[0].encode())) for token in (mine, other)]
    (tokens / "gsm8k.yaml").write_text(write_entry(make.submission({"notes": "a"}).form, mine))
    watching = Watching(
        tmp_path, Tree([*ANNOUNCED, *leaves]), integration="inspect-ai", owned=OwnTokens(tmp_path / "tokens")
    )
    assert watching.alarms() == ["tokens.unmatched"]
    (tmp_path / "tokens" / "b.jwt").write_text(other + "\n")
    assert watching.alarms() == [], "it has turned up"
    watching.wanted = MonitorOptions("helm", OwnTokens(tmp_path / "tokens"))
    with pytest.raises(InputError, match=r"of inspect-ai from .* another --state"):
        watching.look()


def test_a_folder_of_tokens_with_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "x.yaml").write_text("- [")
    with pytest.raises(InputError):
        OwnTokens(tmp_path / "tokens")()
    (tmp_path / "tokens" / "x.yaml").rename(tmp_path / "elsewhere")
    for name in ("x.yaml", "x.jwt"):
        (tmp_path / "tokens" / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="symbolic link"):
            OwnTokens(tmp_path / "tokens")()
        (tmp_path / "tokens" / name).unlink()
    token = tmp_path / "tokens" / "x.jwt"
    token.write_text("t" * MAX_TOKEN_BYTES + "\n")
    assert len(OwnTokens(tmp_path / "tokens")()) == 1
    token.write_text("t" * MAX_TOKEN_BYTES + "\n\n")
    with pytest.raises(InputError):
        OwnTokens(tmp_path / "tokens")()
