"""Years of a relying party: its verdicts by receipts and cached keys, while an issuer's keys come and go."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE, free_port, write_policies
from issuer.io import keyfile
from issuer.service.revocation.bounds import LIST_AGE_S
from issuer.service.signing.bounds import KEY_SET_AGE_S, LAST_TOKEN_S, PUBLISHED_S
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH
from tests.support.command import issuer
from tests.support.running import running
from tests.support.tree import write_result
from tests.support.years import FILE, KEYS, RelyingParty, Years, outcomes

DAY = 86_400
OTHER = "lm-eval"


@pytest.fixture
def site() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


class Copies:
    """Copies of the issuer's keys, of every age that one may have: one is made whenever time passes.

    `downs` are what may be down when a file is judged, each alone.
    """

    def __init__(self, years: Years, relying: RelyingParty, downs: tuple[tuple[str, ...], ...]) -> None:
        self.years, self.relying, self._downs = years, relying, downs
        self._made: dict[int, Path] = {}

    def pass_time(self, seconds: int) -> None:
        """Let time pass, and make a copy then."""
        self.years.now += seconds
        self.relying.cache = self._made[self.years.now] = self.relying.folder / f"copy-{self.years.now}"
        self.relying.trusted()

    def judge(self, text: str) -> set[str]:
        """Judge a file that is received now, by each copy that may be held and each failure of the issuer."""
        return {
            self._judged(text, path, down)
            for made, path in self._made.items()
            if self.years.now - made < PUBLISHED_S
            for down in self._downs
        }

    def _judged(self, text: str, path: Path, down: tuple[str, ...]) -> str:
        self.relying.cache, self.years.down = self.relying.folder / "copy", down
        shutil.copytree(path, self.relying.cache)
        try:
            return self.relying.judge_now("copied", text)
        finally:
            self.years.down = ()
            shutil.rmtree(self.relying.cache)


def take_over(copies: Copies) -> tuple[str, int]:
    """Have the next key sign as soon as it may. Return the last file of the key before, and when that may be archived."""
    years, before = copies.years, copies.years.active
    while True:
        copies.pass_time(KEY_SET_AGE_S)
        last = years.sign("copied", life_s=DAY)
        following = years.custody.rotate().next
        if years.active != before:
            assert following.due is not None
            return last, following.due


ALL_DOWNS = (KEYS, (JWKS_PATH,), (ARCHIVE_PATH,), ())


@pytest.mark.parametrize(("rotations", "downs"), [(1, (KEYS,)), pytest.param(3, ALL_DOWNS, marks=pytest.mark.long)])
def test_keys_as_old_as_allowed_verify_every_good_token(
    tmp_path: Path, site: LocalProvider, rotations: int, downs: tuple[tuple[str, ...], ...]
) -> None:
    years = Years(tmp_path, "https://issuer.example", site, int(time.time()))
    years.custody.generate()
    copies = Copies(years, RelyingParty(tmp_path, years), downs)
    copies.pass_time(0)
    for _ in range(rotations):
        copies.pass_time(1)
        years.custody.rotate()
        years.publish()
        for age in (1, KEY_SET_AGE_S - 1):
            copies.pass_time(age)
        last, ends = take_over(copies)
        first = years.sign("copied", life_s=DAY)
        for age in (0, KEY_SET_AGE_S, KEY_SET_AGE_S, KEY_SET_AGE_S - 1):
            years.now += age
            assert copies.judge(last) == copies.judge(first) == {"verified"}
            copies.pass_time(0)
        years.now += DAY - PUBLISHED_S
        copies.pass_time(0)
        assert copies.judge(last) == copies.judge(first) == {"verified"}, "in the last second of the one"
        copies.pass_time(ends - years.now)
        current = years.sign("copied")
        assert years.custody.rotate().done is not None
        for age in (1, KEY_SET_AGE_S, KEY_SET_AGE_S):
            copies.pass_time(age)
            assert copies.judge(current) == {"verified"}


class Story:
    """An issuer and a relying party, day by day. `expected` is what the latter says of each file, as a reader."""

    def __init__(self, folder: Path, name: str, site: LocalProvider, days: int) -> None:
        self._start = int(time.time()) - days * DAY
        self.years = Years(folder, name, site, self._start)
        self.relying = RelyingParty(folder, self.years)
        self.expected: dict[str, str] = {}

    def day(self, number: int) -> int:
        return self._start + number * DAY

    def sleep_until(self, day: int) -> None:
        assert self.day(day) > self.years.now
        self.years.now = self.day(day)

    def receive(self, name: str, sub: str = "inspect-ai", *, receipt: bool = True) -> None:
        """Have a result signed, and take it in."""
        assert self.relying.receive(name, self.years.sign(name, sub), receipt=receipt) == "verified"
        self.expected[name] = "verified"

    def see(self, **changed: str) -> None:
        """Judge all files by documents that are fetched now, and again by these copies at their greatest allowed age."""
        self.expected |= changed
        self.relying.trusted()
        assert self.relying.judge_all() == self.expected
        self.years.down = KEYS
        self.years.now += PUBLISHED_S - 1
        assert self.relying.judge_all() == self.expected
        self.years.down = ()

    def rotate(self) -> None:
        """Do each step of a rotation when it is due, until the day after."""
        for step, seconds in (("generate", PUBLISHED_S), ("activate", LAST_TOKEN_S), ("archive", DAY)):
            done = self.years.custody.rotate().done
            assert done is not None
            assert done.do == step
            self.years.publish()
            self.years.now += seconds


@pytest.mark.long
def test_receipts_outlive_three_rotations_one_theft_and_a_bad_month(tmp_path: Path, site: LocalProvider) -> None:
    port = free_port()
    it = Story(tmp_path, f"http://127.0.0.1:{port}", site, days=1260)
    years, relying = it.years, it.relying
    years.custody.generate()

    it.sleep_until(10)
    it.receive("first")
    it.receive("unseen", receipt=False)
    it.see()
    it.sleep_until(11)
    it.see(unseen="undecided 5")
    it.sleep_until(365)
    it.rotate()
    it.see(unseen="undecided 2 3")

    # A bad month of one integration.
    it.sleep_until(505)
    it.receive("bad", OTHER)
    it.receive("beside")
    it.sleep_until(540)
    it.receive("recovered", OTHER)
    it.see()
    relying.trusted()
    years.revoke_interval(OTHER, it.day(500), it.day(530))
    years.now += LIST_AGE_S - 1
    assert relying.judge_all() == it.expected, "by the list of before, as long as it may be held"
    years.now += 1
    it.see(bad="failed 5")

    it.sleep_until(730)
    it.rotate()
    it.see()

    # The key is stolen on day 820, which is noticed on day 825.
    it.sleep_until(800)
    it.receive("before")
    it.receive("before_unseen", receipt=False)
    (stolen,) = (years.keys / "active").iterdir()
    stolen_kid, thief = years.active, keyfile.read(stolen)
    it.sleep_until(821)
    assert relying.receive("forged", years.forge("forged", thief, years.now)) == "verified"
    backdated = years.forge("backdated", thief, it.day(800))
    assert relying.receive("backdated", backdated) == "failed 5"
    it.receive("after")
    it.see(forged="verified", before_unseen="undecided 5", backdated="undecided 5")

    it.sleep_until(825)
    relying.trusted()
    assert years.custody.revoke(stolen_kid, it.day(820)).failures == ()
    assert years.custody.rotate(compromised=True).made is not None
    successor = years.sign("successor")
    years.down = KEYS
    years.now += PUBLISHED_S - 1
    assert relying.judge_now("successor", successor) == "undecided 2 3", "it could not be published before"
    assert relying.judge_all() == it.expected, "a thief is believed for so long, and no longer"
    years.down = ()
    assert relying.receive("successor", successor, receipt=True) == "verified"
    late = years.forge("forged_late", thief, years.now)
    assert relying.receive("forged_late", late) == "failed 5"
    it.see(
        successor="verified", before="verified", before_unseen="failed 5",
        after="failed 5", forged="failed 5", forged_late="failed 5", backdated="failed 5",
    )  # fmt: skip
    it.sleep_until(830)
    assert relying.receive("forged_later", years.forge("forged_later", thief, years.now)) == "failed 2"
    it.see(forged_later="failed 2")

    it.sleep_until(1095)
    it.rotate()
    it.see()
    it.receive("recent")
    years.now += DAY
    years.down = (ARCHIVE_PATH,)
    gone = dict.fromkeys(it.expected, "undecided 2 3") | {"recent": "undecided 5"}
    assert relying.judge_all() == gone, "without the archive nobody is accused"
    years.down = ()
    it.see()

    # Today the service itself goes on with all that, and answers the command.
    write_policies(tmp_path / "policies", site.issuer)
    with running(tmp_path, site, port=port) as live:
        entry = live.post(live.token()).json()["entry"]
        write_result(relying.hub, "acme/open-model", FILE, entry)
        by_trust = ("--trust", relying.trust_at(live.url), "--receipts", tmp_path / "receipts")
        done = issuer("verify", relying.hub, *by_trust, "--state", tmp_path / "state", "--json")
        assert done.returncode == 1
        assert outcomes(done.stdout) == it.expected | {"open-model": "verified"}, done.stderr
        by_url = ("--issuer", live.url, "--audience", AUDIENCE)
        alone = issuer("verify", relying.hub, *by_url, "--json")
        without = dict.fromkeys(("first", "unseen", "bad", "beside", "recovered", "successor"), "undecided 2 3")
        others = {"before": "failed 5", "recent": "good_when_issued 5", "open-model": "verified"}
        assert outcomes(alone.stdout) == it.expected | without | others, "without receipts"
