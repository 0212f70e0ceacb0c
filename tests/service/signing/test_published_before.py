"""A key signs only when every relying party can know it: by the history, and by what all hosts publish (contract 5)."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.io.common_documents import FolderHome
from issuer.io.shared_memory import SharedPage
from issuer.service.admission.embedded import EmbeddedValkey
from issuer.service.http.public_documents import KEY_SET_CACHE, PublishedKeys
from issuer.service.signing.active_keys import HOSTS_KEY, Hosts
from issuer.service.signing.bounds import HOST_AGAIN_S, HOST_S, KEY_SET_AGE_S, KEY_SET_STALE_S, PUBLISHED_S
from issuer.service.signing.history import KeyHistory, LiveHistory
from issuer.service.signing.keyring import generate
from issuer.verify.trust import parse_archive
from tests.support.key_hosts import NO_STORE, KeyHost, Seconds, another_worker
from tests.support.shared import ROOT
from tests.support.stores import Proxy, Store


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with EmbeddedValkey() as url:
        yield url


@pytest.fixture
def store(valkey: str) -> str:
    """A store that remembers nothing."""
    with Redis.from_url(valkey) as client:
        client.flushall()
    return valkey


class Site:
    """Hosts that share a data folder, a store and a clock."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.clock = Seconds()
        self.hosts: list[KeyHost] = []

    def host(self) -> KeyHost:
        """Return another host, which has no keys and is not started."""
        own = self.folder / f"host-{len(self.hosts)}"
        self.hosts.append(KeyHost(own, self.clock, self.folder / "data", self.store))
        return self.hosts[-1]

    async def turn(self, times: int = 3) -> None:
        """Have every host look so many times, one after the other."""
        for _ in range(times):
            for host in self.hosts:
                await host.turn()

    async def wait(self, seconds: int) -> None:
        """Let time pass, in which every host looks again and again."""
        await self.turn(1)
        ends = self.clock.now + seconds
        while self.clock.now < ends:
            self.clock.now = min(ends, self.clock.now + HOST_AGAIN_S)
            await self.turn(1)
        await self.turn(1)


@contextlib.asynccontextmanager
async def site(folder: Path, store: str = NO_STORE) -> AsyncIterator[Site]:
    built = Site(folder, store)
    try:
        yield built
    finally:
        for host in built.hosts:
            await host.stop()


def rotate(host: KeyHost, old: Path, new: Path) -> tuple[Path, Path]:
    """Move the active key to retiring/ and another one to active/."""
    return host.move(old, "retiring"), host.move(new, "active")


async def signs_with(host: KeyHost, kid: str) -> bool:
    try:
        await host.signer.sign(kid, (b"x",))
    except Undecided:
        return False
    return True


def test_the_pages_say_for_how_long_a_key_is_published_before_it_signs() -> None:
    assert f"public, max-age={KEY_SET_AGE_S}, stale-if-error={KEY_SET_STALE_S}" == KEY_SET_CACHE
    for page in ("keys/README.md", "issuer/CONTRACT.md"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert KEY_SET_CACHE.removeprefix("public, ") in text
        assert f"{PUBLISHED_S} s" in text
    assert f"{PUBLISHED_S} s after the last host published it" in (ROOT / "deploy/STATE.md").read_text("utf-8")


# -- one host ---------------------------------------------------------------------------------------------------------


async def test_a_key_signs_when_every_relying_party_can_know_it_and_not_before(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active").start()
        assert await signs_with(one, one.paths[0].stem), "the first key of an issuer signs at once"
        await it.turn()
        old, new = one.paths[0], generate(one.keys, "next")
        await it.turn()
        assert one.published == {old.stem, new.stem}
        assert one.life(new).published is None, "another host may live that this store has not heard of yet"
        announced = set[str]()
        one.signer.is_announced = lambda life: life.kid in announced
        await it.wait(HOST_S + PUBLISHED_S)
        assert one.life(new).published is None, "the log has it not yet"
        announced.add(new.stem)
        await it.turn()
        assert one.life(new).published == it.clock.now
        assert not await signs_with(one, new.stem), "no retry either: it has waited for nothing so far"

        old, new = rotate(one, old, new)
        due = it.clock.now + PUBLISHED_S
        await it.wait(PUBLISHED_S - 1)
        assert (one.signs, one.signer.waiting) == (old.stem, {new.stem: due})
        assert (one.life(old).what, one.life(new).what) == ("active", "next")
        assert new.stem not in one.signer.usable_kids

        await it.wait(1)
        assert (one.signs, one.signer.waiting) == (new.stem, {})
        assert set(one.signer.usable_kids) == {old.stem, new.stem}
        assert one.history()[-2:] == [("active", new.stem), ("retiring", old.stem)]
        assert (one.life(new).active_from, one.life(old).began_until) == (due, due)


async def test_a_key_that_waits_is_in_audit_and_log_and_a_restart_changes_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        one = it.host().has("active", "next").start()
        await it.turn()
        old, new = rotate(one, *one.paths)
        await it.turn()
        event = one.recorded()[-1]
        assert (event["event"], event["waiting"]) == ("keys_loaded", {new.stem: None})
        assert event["keys"] == {old.stem: "active", new.stem: "next"}
        logged = len(one.recorded())
        await it.turn()
        assert len(one.recorded()) == logged, "once"
        await one.signer.aclose()
        one.start()
        await it.turn()
        assert (one.signs, one.signer.waiting) == (old.stem, {new.stem: None})
        assert one.life(old).what == "active"
        await it.wait(2 * PUBLISHED_S)
        assert (one.signs, one.signer.waiting, one.signer.stale) == (old.stem, {new.stem: None}, False), "no store"


async def test_the_log_stream_tells_each_event_once_and_what_waits_or_is_refused(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active", "next").start()
        with capture_logs() as logs:
            await it.wait(HOST_S)
            rotate(one, *one.paths)
            await it.wait(PUBLISHED_S)
            generate(one.keys, "active")  # a second one
            await it.turn()
        (old, new), due = (path.stem for path in one.paths), it.clock.now
        logged = {line["event"]: line for line in logs if line["event"].startswith("key")}
        counts = [line["event"] for line in logs]
        for event in ("key published", "keys waiting", "key active", "key retiring", "keys refused"):
            assert counts.count(event) == 1, event
        assert (logged["key published"]["kid"], logged["key published"]["may_sign_from"]) == (new, due)
        assert (logged["keys waiting"]["keys"], logged["keys waiting"]["signs"]) == ({new: due}, old)
        assert "exactly one active key" in logged["keys refused"]["detail"]
        assert logged["keys refused"]["next"] == Code.KEY_UNUSABLE.meaning.remedy


async def test_if_the_signing_key_is_gone_none_signs_until_its_successor_may(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active").start()
        await it.wait(HOST_S)
        one.paths[0].unlink()
        new = generate(one.keys, "active")
        await it.turn()
        assert (one.signs, one.signer.waiting) == (None, {new.stem: it.clock.now + PUBLISHED_S})
        with pytest.raises(Undecided) as error:
            await one.signer.keyring.check(it.clock.now)
        assert error.value.code is Code.DEPENDENCY_SIGNER
        await it.wait(PUBLISHED_S)
        assert one.signs == new.stem


async def test_a_revoked_key_signs_nothing_and_is_not_published_wherever_it_lies(tmp_path: Path) -> None:
    for state in ("active", "next", "retiring"):
        async with site(tmp_path / state) as it:
            one = it.host().has("active", "next", "retiring").start()
            stolen = next(path for path in one.paths if path.parent.name == state)
            one.write("revoked", stolen, ago=3600)
            await it.turn(1)
            assert stolen.stem not in one.published | set(one.signer.usable_kids)
            assert not await signs_with(one, stolen.stem)
            assert (one.signs is None) == (state == "active"), "no other key replaces it"
            one.move(stolen, "active" if state == "retiring" else "retiring")
            await it.turn()
            assert stolen.stem not in one.published
            assert not await signs_with(one, stolen.stem)
            assert one.life(stolen).what == "revoked"


async def test_a_clock_that_goes_back_widens_nothing_and_the_archive_stays_good(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active", "next").start()
        await it.wait(HOST_S)
        old, new = rotate(one, *one.paths)
        due = it.clock.now + PUBLISHED_S
        it.clock.now -= 7200
        await it.turn()
        assert (one.signs, one.signer.waiting) == (old.stem, {new.stem: due})
        it.clock.now = due + 7200
        generate(one.keys, "next")
        one.move(new, "next")  # and all of it again, with an event of the time that will not be
        one.move(old, "active")
        await it.turn()
        it.clock.now = due
        rotate(one, one.keys / "active" / old.name, one.keys / "next" / new.name)
        await it.turn()
        assert one.signs == new.stem
        archive = parse_archive(PublishedKeys(one.signer).archive.whole.body)
        assert archive[new.stem].covers(it.clock.now), "a token that it signs now"
        assert archive[old.stem].covers(it.clock.now - 1)
        for key in archive.values():
            assert key.last_token_exp is None or key.active_from < key.last_token_exp


# -- several hosts ----------------------------------------------------------------------------------------------------


async def test_a_key_that_one_host_lacks_is_not_published_until_it_has_it(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one, other = it.host().has("active").start(), it.host()
        other.copy(one.paths[0], "active")
        other.start()
        await it.wait(HOST_S)
        new = generate(one.keys, "next")
        await it.wait(2 * PUBLISHED_S)
        assert one.life(new).published is None
        assert one.published == {one.paths[0].stem, new.stem}
        other.copy(new, "next")
        await it.turn()
        assert one.life(new).published == it.clock.now
        rotate(one, one.paths[0], new)
        await it.wait(PUBLISHED_S)
        assert (one.signs, other.signs) == (new.stem, one.paths[0].stem)
        assert new.stem in other.signer.usable_kids, "it ends what the other host began"


async def test_a_host_that_joins_late_without_the_next_key_makes_all_wait_anew(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active", "next").start()
        old, new = one.paths
        await it.wait(HOST_S + PUBLISHED_S - 15)
        late = it.host()
        late.copy(old, "active")
        late.start()
        old, new = rotate(one, old, new)
        await it.wait(PUBLISHED_S)
        assert (one.signs, late.signs) == (old.stem, old.stem), "both hosts still sign with the old key"
        assert one.life(new).published is None
        late.copy(new, "next")
        await it.turn()
        assert one.life(new).published == it.clock.now
        await it.wait(PUBLISHED_S)
        assert one.signs == new.stem


async def test_a_host_that_cannot_reach_the_store_still_says_what_it_lacks(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one, cut_off = it.host().has("active").start(), it.host()
        cut_off.store = NO_STORE
        cut_off.copy(one.paths[0], "active")
        cut_off.start()
        await it.wait(HOST_S)
        new = generate(one.keys, "next")
        await it.wait(PUBLISHED_S)
        assert one.life(new).what == "removed"
        assert not await signs_with(one, new.stem)
        cut_off.copy(new, "next")
        await it.wait(PUBLISHED_S + HOST_S)
        assert await signs_with(one, new.stem)


async def test_hosts_that_disagree_do_not_answer_each_other_for_ever(tmp_path: Path, store: str) -> None:
    """One has rotated, the other has not, and has lost a key besides; both sign, and both keys are said to."""
    async with site(tmp_path, store) as it:
        one, other = it.host().has("active", "next").start(), it.host()
        old, new = one.paths
        for path in (old, new):
            other.copy(path, path.parent.name)  # type: ignore[arg-type]
        other.start()
        await it.wait(HOST_S + PUBLISHED_S)
        rotate(one, old, new)
        await it.turn(5)
        (other.keys / "next" / new.name).unlink()
        await it.turn(5)
        logged = len(one.history())
        await it.turn(10)
        assert len(one.history()) == logged
        assert (one.signs, other.signs) == (new.stem, old.stem)
        assert {one.life(path).began_until for path in (old, new)} == {None}, "each still begins tokens somewhere"
        assert one.history()[-2:] == [("removed", new.stem), ("active", new.stem)]
        assert KeyHistory(FolderHome(one.data)).read().keys() == {old.stem, new.stem}


async def test_all_hosts_serve_the_same_archive_written_when_the_history_changes(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one, other = it.host().has("active", "next").start(), it.host()
        for path in one.paths:
            other.copy(path, path.parent.name)  # type: ignore[arg-type]
        other.start()
        served = [PublishedKeys(host.signer) for host in it.hosts]
        await it.wait(HOST_S + PUBLISHED_S)
        for host in it.hosts:
            rotate(host, host.keys / "active" / one.paths[0].name, host.keys / "next" / one.paths[1].name)
        await it.turn()
        first, second = (each.archive for each in served)
        assert first.whole.body == second.whole.body
        assert first is served[0].archive, "not for each request"
        archive = parse_archive(first.whole.body)
        assert {kid: key.last_token_exp is None for kid, key in archive.items()} == {
            one.paths[0].stem: False,
            one.paths[1].stem: True,
        }


# -- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_damaged_history_widens_nothing_and_the_last_good_one_goes_on(tmp_path: Path, store: str) -> None:
    async with site(tmp_path, store) as it:
        one = it.host().has("active", "next").start()
        await it.wait(HOST_S + PUBLISHED_S)
        path = one.data / "key-history.jsonl"
        good = path.read_bytes()
        rotate(one, *one.paths)
        for damage in (good[:-20], good.partition(b"\n")[0] + b"\n", None, b"a folder"):
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            if damage == b"a folder":
                path.mkdir()
            elif damage is not None:
                path.write_bytes(damage)
            it.clock.now += 10
            await it.turn()
            assert (one.signs, one.signer.stale) == (one.paths[0].stem, True), damage
            assert await signs_with(one, one.paths[0].stem)
            assert len(parse_archive(PublishedKeys(one.signer).archive.whole.body)) == 1
        path.rmdir()
        path.write_bytes(b"{}\n")
        with pytest.raises(SetupError) as error:
            LiveHistory(FolderHome(one.data))  # as at a start
        assert (error.value.code, f"{path}:1: " in error.value.detail) == (Code.KEY_HISTORY, True)
        path.write_bytes(good)
        await it.turn()
        assert (one.signs, one.signer.stale) == (one.paths[1].stem, False)


# -- rows of hosts: for how long a table must know all hosts to be believed --------------------------------------------


class Place:
    """Hosts on one store, and the clock of that store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Seconds()
        self.hosts: list[Hosts] = []
        self.pages: list[SharedPage] = []

    def host(self, *kids: str, url: str = "", durable: bool = False) -> Hosts:
        self.pages.append(SharedPage())
        hosts = Hosts(
            url or self.url, self.pages[-1], durable_store=durable, now=self.clock, seconds=lambda: float(self.clock())
        )
        hosts.publish(kids)
        self.hosts.append(hosts)
        return hosts

    def rows(self) -> set[bytes]:
        with Redis.from_url(self.url) as client:
            return set(client.hkeys(HOSTS_KEY.decode())) - {b"since"}


@pytest.fixture
async def place(store: str) -> AsyncIterator[Place]:
    built = Place(store)
    yield built
    for hosts in built.hosts:
        await hosts.aclose()


async def known(place: Place, *hosts: Hosts) -> None:
    """Let the table know these hosts for as long as it must."""
    for _ in range(0, HOST_S + 1, HOST_AGAIN_S):
        for each in hosts:
            await each.agree(ask=True)
        place.clock.now += HOST_AGAIN_S


async def test_a_table_is_believed_when_it_has_known_its_hosts_for_the_life_of_a_row(place: Place) -> None:
    one = place.host("a")
    for age_s in range(0, HOST_S, HOST_AGAIN_S):
        assert not await one.agree(ask=True), age_s
        place.clock.now += HOST_AGAIN_S
    assert await one.agree(ask=True)
    other = place.host("b")
    await known(place, one, other)
    place.clock.now += HOST_S - HOST_AGAIN_S
    assert not await one.agree(ask=True), "its life is not over"
    place.clock.now += 1
    assert await one.agree(ask=True), "a row that is not renewed is forgotten"
    assert len(place.rows()) == 1


async def test_all_agree_when_each_publishes_the_same_keys_in_whatever_order(place: Place) -> None:
    one, other = place.host("a", "b"), place.host("b", "a")
    await known(place, one, other)
    assert await one.agree(ask=True)
    other.publish(["a"])
    await other.agree(ask=False)
    assert not await one.agree(ask=True)
    assert not await other.agree(ask=True)
    one.publish(["a"])
    assert await one.agree(ask=False), "a change is written at once"


async def test_a_row_is_renewed_in_time_and_not_for_each_question(place: Place) -> None:
    one = place.host("a")
    await known(place, one)
    assert await one.agree(ask=True)
    with Redis.from_url(place.url) as client:
        client.delete(HOSTS_KEY.decode())
        assert not await one.agree(ask=False)
        assert not client.exists(HOSTS_KEY.decode()), "it was not asked"
        place.clock.now += HOST_AGAIN_S
        await one.agree(ask=False)
        assert client.ttl(HOSTS_KEY.decode()) in {HOST_S - 1, HOST_S}, "a table without writes is forgotten"


async def test_a_store_with_another_run_id_has_to_hear_its_hosts_first(place: Place) -> None:
    """It came back from a snapshot, or was a replica: a host may be missing that joined after that."""
    with Redis.from_url(place.url) as client:
        for durable in (False, True):
            client.flushall()
            one = place.host("a", durable=durable)
            await known(place, one)
            since = client.hget(HOSTS_KEY.decode(), "since")
            assert isinstance(since, bytes)
            time_s, _, run = since.partition(b" ")
            assert (run == b"-") is durable
            client.hset(HOSTS_KEY.decode(), "since", time_s + b" " + (b"-" if durable else b"f" * 40))
            assert await one.agree(ask=True) is durable


async def test_a_table_that_somebody_has_spoiled_is_not_believed(place: Place) -> None:
    one = place.host("a")
    await known(place, one)
    with Redis.from_url(place.url) as client:
        client.hset(HOSTS_KEY.decode(), "since", b"%d x" % (place.clock.now + 10**6))
        assert not await one.agree(ask=True)
        await known(place, one)
        client.hset(HOSTS_KEY.decode(), "someone", b"nonsense")
        assert await one.agree(ask=True), "an unreadable row does not count"
        client.set(HOSTS_KEY.decode(), b"nonsense")
        assert not await one.agree(ask=True)


async def test_a_host_whose_workers_disagree_agrees_with_nobody(place: Place) -> None:
    one, other = place.host("a"), place.host("a")
    await known(place, one, other)
    with another_worker(place.pages[0], bytes(32)), another_worker(place.pages[1], bytes(32)):
        for each in (one, other, one):
            assert not await each.agree(ask=True)
    for each in (one, other):
        await each.agree(ask=True)
    assert await one.agree(ask=True)


async def test_a_store_that_is_silent_holds_nobody_up(place: Place, tmp_path: Path) -> None:
    with Store(tmp_path) as store, Proxy(store.port) as proxy:
        one = place.host("a", url=f"redis://127.0.0.1:{proxy.port}")
        await one.agree(ask=True)
        proxy.silent = True
        assert not await one.agree(ask=True), "and it returns"
        await one.aclose()
