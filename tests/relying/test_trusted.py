"""Keys that are newer than the cached copy, and revocation lists that cannot be rolled back: over real HTTP."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from issuer.cli.verify.formats import JSON_LINES
from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.errors import SetupError
from issuer.formats import jose
from issuer.relying.bulk import CHUNK_FILES, Listener, judge_folder, processes
from issuer.relying.documents import PAUSE_S, Documents
from issuer.relying.trusted import SeenLists, Trusted, default_state
from issuer.relying.verifier import FileVerifier
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH, REVOCATION_KEYS_PATH, REVOCATIONS_PATH
from issuer.verify import Context
from issuer.verify.revocations import Revocations
from issuer.verify.trust import Trust
from tests.support import make
from tests.support.cluster import cluster
from tests.support.tree import write_result, write_trust

AUDIENCE, NOW, PATH, REPO = make.AUDIENCE, make.NOW, make.PATH, make.REPO
# The cached set was fetched half an hour ago, and serves for an hour; the token is a minute old.
FETCHED, ISSUED, AGE = NOW - 1800, NOW - 60, "max-age=3600"
OLD, NEW = make.jwks(make.STRANGER), make.jwks(make.STRANGER, make.KEY)
SUBMISSION = make.submission()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalProvider]:
    with LocalProvider() as provider:
        yield provider


class Site:
    """An issuer's well-known documents; others are not published."""

    def __init__(self, provider: LocalProvider) -> None:
        self.url = provider.issuer
        self.asked: list[tuple[str, str]] = []
        self._provider = provider

    def says(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> None:
        def answer(exchange: Any) -> None:
            self.asked.append((path, exchange.headers.get("Cache-Control", "")))
            exchange.reply(status, body, **{"Cache_Control": AGE, **headers})

        self._provider.answers[path] = answer

    def lists(self, status: int = 200, **payload: Any) -> None:
        members = {"iss": self.url, "iat": NOW, "next_update": NOW + 86_400, **payload}
        self.says(REVOCATIONS_PATH, make.revocation_list(**members), status, Cache_Control="no-cache")

    def count(self, path: str = JWKS_PATH) -> int:
        return sum(asked == path for asked, _ in self.asked)


@pytest.fixture
def site(running: LocalProvider) -> Site:
    running.answers.clear()
    found = Site(running)
    found.says(JWKS_PATH, NEW)
    found.says(REVOCATION_KEYS_PATH, make.jwks(make.REVOCATION_KEY))
    return found


def token(site: Site, **members: Any) -> str:
    return make.file_for(SUBMISSION, **{"iss": site.url, "iat": ISSUED, "nbf": ISSUED, "exp": ISSUED + 3600, **members})


def trusted(site: Site, folder: Path, now: int = NOW, *, state: bool = True, **options: Any) -> Trusted:
    """Trust the issuer by what it publishes, as a new process would."""
    seen = SeenLists(folder / "state") if state else None
    return Trusted.in_issuer(site.url, AUDIENCE, Documents(folder / "cache", now, **options), seen)


def verifier_by(known: Trusted, now: int = NOW) -> FileVerifier:
    return FileVerifier(known.trust, now, Context(now, witnessed=True), renew=known.renew)


def verify(site: Site, folder: Path, text: str | None = None, now: int = NOW, **options: Any) -> Any:
    return verifier_by(trusted(site, folder, now, **options), now).verify((text or token(site)).encode(), PATH, REPO)


def cached(site: Site, folder: Path, body: bytes = OLD, at: int = FETCHED) -> None:
    """Fill the cache with an older key set; then the issuer publishes the newer one."""
    site.says(JWKS_PATH, body)
    trusted(site, folder, at)
    site.says(JWKS_PATH, NEW)
    site.asked.clear()


def test_a_kid_that_a_cached_set_lacks_makes_one_more_fetch_from_the_origin(tmp_path: Path, site: Site) -> None:
    cached(site, tmp_path)
    (report,) = verify(site, tmp_path)
    assert (report.verdict, report.wants_keys_of) == ("verified", "")
    assert [pair for pair in site.asked if pair[0] == JWKS_PATH] == [(JWKS_PATH, "no-cache")]
    site.says(JWKS_PATH, OLD, Age="300")  # of a cache on the way
    known = trusted(site, tmp_path / "aged")
    assert known.trust.issuers[site.url].keys_fetched_at == NOW - 300
    site.says(JWKS_PATH, NEW)
    assert verify(site, tmp_path / "aged")[0].verdict == "verified"


def test_a_hostile_file_of_unknown_kids_makes_one_fetch(tmp_path: Path, site: Site) -> None:
    cached(site, tmp_path)
    kids = [{**make.HEADER, "kid": f"nobody's-{number}"} for number in range(40)]
    reports = verify(site, tmp_path, "".join(token(site, header=header) for header in kids) * 4)
    assert len(reports) == 160
    assert {report.checks[1].status.value for report in reports} == {"fail"}, "the set is confirmed since their issue"
    assert site.count() == 1
    verify(site, tmp_path, token(site, header=kids[0]), NOW + 1)
    assert site.count() == 1


@pytest.mark.parametrize("cache", [True, False])
def test_a_hostile_folder_of_unknown_kids_makes_one_fetch_however_many_processes(
    tmp_path: Path, site: Site, *, cache: bool
) -> None:
    cached(site, tmp_path)
    for number in range(100):
        repo, kid = f"a/m{number}", f"nobody's-{number}" if number else make.KID
        text = token(site, header={**make.HEADER, "kid": kid}, model_repo=repo)
        write_result(tmp_path / "hub", repo, "gsm8k.yaml", text)
    known = trusted(site, tmp_path)
    if not cache:
        known._documents._folder = None  # each process is on its own
    lines: list[str] = []
    listener = Listener(lines.append)
    summary = judge_folder(tmp_path / "hub", verifier_by(known), JSON_LINES, listener, engine=processes(3))
    assert summary.verdicts["failed"] == 100
    reports = [msgspec.json.decode(line) for line in "".join(lines).splitlines()]
    passed = [report["path"] for report in reports if report["checks"][2]["status"] == "pass"]
    assert len(passed) == 1, "the one of the new key"
    assert 1 <= site.count() <= (1 if cache else 3)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of Dask's library
def test_a_cluster_judges_by_keys_that_are_newer_than_its_workers_have_in_one_fetch(tmp_path: Path, site: Site) -> None:
    from issuer.relying.dask_engine import dask_engine

    cached(site, tmp_path)
    for number in range(2 * CHUNK_FILES):
        header = {**make.HEADER, "kid": make.KID if number % 2 else f"nobody's-{number}"}
        write_result(tmp_path / "hub", f"a/m{number:03}", "gsm8k.yaml", token(site, header=header))
    verifier, lines = verifier_by(trusted(site, tmp_path)), list[str]()
    with cluster(tmp_path, 1) as found:
        engine = dask_engine(found.url, None, tmp_path / "hub")
        judge_folder(tmp_path / "hub", verifier, JSON_LINES, Listener(lines.append), engine=engine)
    reports = [msgspec.json.decode(line) for line in "".join(lines).splitlines()]
    second = [report["checks"][1]["status"] for report in reports]
    assert second == ["fail", "pass"] * CHUNK_FILES, "none is left unknown"
    assert site.count() == 1


def test_without_an_answer_or_offline_the_key_is_unknown(tmp_path: Path, site: Site) -> None:
    cached(site, tmp_path)
    (report,) = verify(site, tmp_path, offline=True)
    assert (report.verdict, report.checks[1].status.value, site.asked) == ("undecided", "unknown", [])
    verifier = verifier_by(trusted(site, tmp_path))
    site.says(JWKS_PATH, status=500)
    counts = []
    for _ in range(3):
        reports = verifier.verify((token(site) * 5).encode(), PATH, REPO)
        assert {(report.verdict, report.wants_keys_of) for report in reports} == {("undecided", site.url)}
        counts.append(site.count())
    assert counts[0] == counts[1] == counts[2] >= 1, "it is requested once"
    site.says(JWKS_PATH, b"{}")
    assert verify(site, tmp_path)[0].verdict == "undecided"


def test_fetches_that_strangers_cause_have_a_pause_between_them(tmp_path: Path, site: Site) -> None:
    cached(site, tmp_path, OLD, NOW)
    fresh = {"iat": NOW + 2, "nbf": NOW + 2}
    (report,) = verify(site, tmp_path, token(site, **fresh), NOW + PAUSE_S - 1)
    assert (report.verdict, site.count()) == ("undecided", 0)
    (report,) = verify(site, tmp_path, token(site, **fresh), NOW + PAUSE_S)
    assert (report.verdict, site.count()) == ("verified", 1)


def test_a_key_that_moved_to_the_archive_since_is_found_there(tmp_path: Path, site: Site) -> None:
    site.says(ARCHIVE_PATH, make.jwks(make.STRANGER, active_from=0))
    cached(site, tmp_path)
    site.says(JWKS_PATH, OLD)
    site.says(ARCHIVE_PATH, make.jwks(make.STRANGER, make.KEY, active_from=0))
    (report,) = verify(site, tmp_path)
    assert (report.verdict, "from the archive" in report.checks[1].evidence) == ("verified", True)
    assert (site.count(), site.count(ARCHIVE_PATH)) == (1, 1)


def test_keys_from_a_file_are_not_confirmed(tmp_path: Path) -> None:
    trust = write_trust(tmp_path)
    (tmp_path / "keys.json").write_bytes(OLD)
    verifier = verifier_by(Trusted.by_file(trust, Documents(None, NOW)))
    (report,) = verifier.verify(make.file_for(SUBMISSION).encode(), PATH, REPO)
    assert (report.verdict, report.checks[1].status.value) == ("undecided", "unknown")


REVOKED: dict[str, Any] = {"number": 2, "jti": [make.JTI]}


def outcome(site: Site, folder: Path, now: int = NOW, **options: Any) -> tuple[str, str]:
    (report,) = verify(site, folder, now=now, **options)
    return report.verdict, report.checks[4].evidence


def test_an_issuer_is_asked_for_its_revocations(tmp_path: Path, site: Site) -> None:
    verdict, evidence = outcome(site, tmp_path)
    assert (verdict, evidence.endswith("revocations not published by the issuer")) == ("verified", True)
    assert not (tmp_path / "state").exists()
    assert site.count(REVOCATION_KEYS_PATH) == 1
    assert outcome(site, tmp_path, offline=True)[1].endswith("revocations not asked for")
    site.lists()
    assert outcome(site, tmp_path)[1].endswith("revocations by list 1 of 2026-11-18T11:06:40Z")
    site.lists(**REVOKED)
    assert outcome(site, tmp_path) == ("failed", "the issuer has revoked this jti")


@pytest.mark.parametrize("path", [REVOCATIONS_PATH, REVOCATION_KEYS_PATH, ARCHIVE_PATH])
def test_a_result_is_undecided_if_the_issuer_s_answer_fails(tmp_path: Path, site: Site, path: str) -> None:
    site.lists()
    site.says(path, status=500)
    assert outcome(site, tmp_path)[0] == "undecided"


def test_a_list_that_was_seen_cannot_be_rolled_back(tmp_path: Path, site: Site) -> None:
    for later in (
        {"number": 1}, {"number": 1, "jti": []}, {"number": 2, "jti": []}, {"number": 3, "jti": []},
        {"number": 3, "iat": NOW - 1, "jti": [make.JTI, "more"]}, {"number": 4, "iat": NOW + 61, "jti": []},
    ):  # fmt: skip
        site.lists(number=1)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert outcome(site, folder)[0] == "verified"
        site.lists(**REVOKED)
        assert outcome(site, folder)[0] == "failed"
        site.lists(**later)
        assert outcome(site, folder) == ("failed", "the issuer has revoked this jti"), later
        (absence,) = trusted(site, folder).trust.absent
        assert "refused, and the list that was seen before counts" in absence.reason


def test_a_list_from_the_future_does_not_displace_a_list_of_today(tmp_path: Path, site: Site) -> None:
    other = jose.base64url_encode(b"n" * 16)
    for listed in (REVOKED, {"number": 10**6, "iat": NOW + 61, "jti": [make.JTI, "more"], "next_update": NOW + 600}):
        site.lists(**listed)
        assert outcome(site, tmp_path)[0] == "failed"
    site.lists(number=3, jti=[make.JTI, other])
    assert trusted(site, tmp_path).trust.absent == ()
    assert verify(site, tmp_path, token(site, jti=other))[0].failed == (5,)


def test_an_older_list_clears_tokens_only_while_it_is_good(tmp_path: Path, site: Site) -> None:
    site.lists(number=2, jti=["other"])
    assert outcome(site, tmp_path)[0] == "verified"
    site.lists(number=1)
    verdict, evidence = outcome(site, tmp_path)
    assert (verdict, "by list 2" in evidence) == ("verified", True)
    stale = make.file_for(SUBMISSION, iss=site.url, iat=NOW + 86_000, nbf=NOW + 86_000, exp=NOW + 89_000)
    (report,) = verify(site, tmp_path, stale, NOW + 86_401)
    assert (report.verdict, "past its next update" in report.checks[4].evidence) == ("undecided", True)


def test_an_issuer_that_has_published_a_list_cannot_stop_to(tmp_path: Path, site: Site) -> None:
    site.lists(**REVOKED)
    assert outcome(site, tmp_path)[0] == "failed"
    for status in (404, 410, 500):
        site.lists(status=status)
        assert outcome(site, tmp_path)[0] == "failed", "the stored list still revokes"
        other = token(site, jti=jose.base64url_encode(b"o" * 16))
        assert verify(site, tmp_path, other)[0].verdict == "undecided", "and clears nothing"
    site.says(REVOCATION_KEYS_PATH, status=404)
    (tmp_path / "cache").rename(tmp_path / "gone")
    assert outcome(site, tmp_path)[0] == "undecided"


def test_a_list_may_grow_and_the_stored_one_grows_with_it(tmp_path: Path, site: Site) -> None:
    for number in range(1, 4):
        site.lists(number=number, jti=[f"t{count}" for count in range(number)])
        assert outcome(site, tmp_path)[0] == "verified"
    (kept,) = (tmp_path / "state").glob("*.jwt")
    newest = make.revocation_list(iss=site.url, number=3, jti=["t0", "t1", "t2"], next_update=NOW + 86_400)
    assert kept.read_bytes().split(b".")[1] == newest.split(b".")[1]
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_list_under_another_key_displaces_no_list_of_the_issuer_or_a_newer_one(tmp_path: Path, site: Site) -> None:
    site.says(REVOCATION_KEYS_PATH, make.jwks(make.RECEIPT_KEY), Cache_Control="no-cache")
    site.lists(key=make.RECEIPT_KEY, number=2**40)
    assert "by list 1099511627776" in outcome(site, tmp_path)[1]
    site.says(REVOCATION_KEYS_PATH, make.jwks(make.REVOCATION_KEY), Cache_Control="no-cache")
    site.lists(number=1)
    assert "by list 1 " in outcome(site, tmp_path)[1]
    site.lists(**REVOKED)
    assert outcome(site, tmp_path / "next")[0] == "failed"
    site.says(REVOCATION_KEYS_PATH, make.jwks(make.REVOCATION_KEY, make.RECEIPT_KEY), Cache_Control="no-cache")
    site.lists(key=make.RECEIPT_KEY, number=1)
    (tmp_path / "next" / "cache").rename(tmp_path / "gone")
    older = outcome(site, tmp_path / "next")
    assert older == ("failed", "the issuer has revoked this jti"), "the next key's list is older"


def test_of_two_processes_the_newer_list_stays(tmp_path: Path, site: Site) -> None:
    numbers = [3, 9, 5, 7, 1, 8, 2, 6, 4]
    keys = make.key_set(make.REVOCATION_KEY)

    def settle(number: int) -> None:
        listed = make.revocation_list(iss=site.url, number=number)
        found = make.parse_list(listed, site.url)
        SeenLists(tmp_path / "state").settle(site.url, keys, (found, listed), NOW)

    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=settle, args=(number,)) for number in numbers]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    listed, _ = SeenLists(tmp_path / "state").settle(site.url, keys, None, NOW)
    assert listed
    assert listed.number == 9


def test_without_a_usable_state_folder_no_list_counts(tmp_path: Path, site: Site) -> None:
    site.lists()
    (tmp_path / "state").write_text("a file")
    with pytest.raises(SetupError, match="give --state DIR"):
        outcome(site, tmp_path)
    (tmp_path / "state").unlink()
    outcome(site, tmp_path)
    (kept,) = (tmp_path / "state").glob("*.jwt")
    kept.write_bytes(kept.read_bytes()[:-4])
    with pytest.raises(SetupError, match="a stored revocation list"):
        outcome(site, tmp_path)
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(SetupError) as caught:
        outcome(site, tmp_path)
    assert caught.value.code is Code.CACHE_UNSAFE


def test_a_list_from_a_file_is_stored_like_one_from_a_url(tmp_path: Path) -> None:
    (tmp_path / "rk.json").write_bytes(make.jwks(make.REVOCATION_KEY))
    (tmp_path / "list.jwt").write_bytes(make.revocation_list(**REVOKED))
    file = write_trust(tmp_path, "    revocations: {file: list.jwt}\nrevocation_keys: {file: rk.json}\n")

    def trust() -> Trust:
        return Trusted.by_file(file, Documents(None, NOW), SeenLists(tmp_path / "state")).trust

    assert trust().absent == ()
    (tmp_path / "list.jwt").write_bytes(make.revocation_list(number=1))
    assert [absence.pointer for absence in trust().absent] == ["/issuers/0/revocations"]
    (issuer,) = trust().issuers.values()
    assert isinstance(issuer.revocations, Revocations)
    assert issuer.revocations.number == 2


def test_the_newest_lists_are_stored_in_the_user_s_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state() == tmp_path / "eval-token-issuer"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert str(default_state()).endswith("/.local/state/eval-token-issuer")
