"""One open pull request for one set of results: the state of main, open pull requests, and faults in between."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from issuer.client.hub import Hub, Moved, PullRequest
from issuer.codes import Code
from issuer.errors import IssuerError, Refused, Undecided
from tests.support.hub_server import HubServer
from tests.support.hub_state import Repo
from tests.support.waiting import eventually

NAME = "acme/open-model"
PATH = ".eval_results/gsm8k.yaml"
COMMIT = f"POST /api/models/{NAME}/commit/"
DIGESTS = ["sha256:" + letter * 64 for letter in "abc"]
AT_ONCE = {"Retry-After": "0"}


class Job:
    """A CI job, which has merged its result into the file at the commit `read_at`."""

    def __init__(self, server: HubServer, repo: Repo, token: str = "", *, patience_s: float = 10) -> None:
        self.repo = repo
        self.hub = Hub(server.url, token or server.token(), patience_s=patience_s)
        self.read_at = repo.main

    def propose(
        self, digests: Sequence[str] = DIGESTS[:1], files: dict[str, bytes] | None = None
    ) -> PullRequest | None:
        proposed = {PATH: b"- after\n"} if files is None else files
        return self.hub.open_pull_request(self.repo.name, proposed, "Add", "What it is.", self.read_at, digests)

    def made(self) -> tuple[int, bool]:
        """Propose; return the number of the pull request, and whether it existed."""
        request = self.propose()
        assert request is not None
        return request.number, request.existed


@pytest.fixture
def repo(server: HubServer) -> Repo:
    return server.repo(NAME, {"README.md": b"# A model\n", PATH: b"- before\n"})


@pytest.fixture
def job(server: HubServer, repo: Repo) -> Job:
    return Job(server, repo)


def test_a_proposal_is_an_open_pull_request_from_main_with_its_files(server: HubServer, repo: Repo, job: Job) -> None:
    made = job.propose()
    assert made == PullRequest(f"{server.url}/{NAME}/discussions/1", 1, existed=False)
    assert (repo.file(PATH, made.ref), repo.file(PATH)) == (b"- after\n", b"- before\n")
    (talk,) = repo.open
    assert (talk.title, talk.author, talk.description.splitlines()[0]) == ("Add", "evals-bot", "What it is.")
    assert repo.commits[repo.refs[made.ref]].parent == repo.main
    assert not repo.conflicts(talk)


def test_a_second_proposal_finds_the_first_and_sends_nothing(server: HubServer, repo: Repo, job: Job) -> None:
    first = job.propose(DIGESTS[:2])
    again = Job(server, repo, server.token()).propose(DIGESTS[1::-1])
    assert first is not None
    assert again == PullRequest(first.url, first.number, existed=True)
    assert server.count(COMMIT) == 1


def test_only_files_that_main_does_not_have_are_committed(server: HubServer, repo: Repo, job: Job) -> None:
    assert job.propose(files={PATH: b"- before\n"}) is None
    assert not repo.talks
    assert server.count("POST") == 0
    sidecar = PATH + ".0123456789abcdef.tlog-proof"
    made = job.propose(files={PATH: b"- before\n", sidecar: b"c2sp.org/tlog-proof@v1\n"})
    assert made is not None
    assert repo.file(sidecar, made.ref) == b"c2sp.org/tlog-proof@v1\n"
    assert repo.file(PATH, made.ref) == b"- before\n"


# -- main moves ----------------------------------------------------------------------------------------------------------


def test_a_file_that_has_changed_since_it_was_read_must_be_merged_again(
    server: HubServer, repo: Repo, job: Job
) -> None:
    repo.commit({PATH: b"- theirs\n"})
    with pytest.raises(Moved) as moved:
        job.propose()
    assert (moved.value.code, moved.value.paths) == (Code.HUB_MOVED, (PATH,))
    assert (repo.talks, server.count("POST")) == ([], 0)


@pytest.mark.long
def test_another_file_of_main_may_change_but_this_one_not_vanish(repo: Repo, job: Job) -> None:
    now = repo.commit({"README.md": b"# Better words\n"})
    assert job.made() == (1, False)
    assert repo.commits[repo.refs["refs/pr/1"]].parent == now
    repo.commit({PATH: None})
    with pytest.raises(Moved):
        job.propose(DIGESTS[1:])


@pytest.mark.long
def test_a_file_that_changes_while_the_commit_is_sent_closes_the_pull_request(
    server: HubServer, repo: Repo, job: Job
) -> None:
    """With `create_pr` the Hub takes an older parent without a word: the owner would find a conflict."""
    server.before(COMMIT, lambda: repo.commit({PATH: b"- theirs\n"}))
    with pytest.raises(Moved):
        job.propose()
    (talk,) = repo.talks
    assert talk.status == "closed"
    assert "has changed on main" in talk.comments[-1]
    job.read_at = repo.main
    server.before(COMMIT, lambda: repo.commit({"README.md": b"# Better words\n"}))  # another file may change
    assert (job.made(), len(repo.open)) == ((2, False), 1)


@pytest.mark.long
def test_no_pull_request_is_made_if_main_gets_the_same_file_in_between(server: HubServer, repo: Repo, job: Job) -> None:
    """The library sees it, and sends no commit."""
    server.before("/preupload/", lambda: repo.commit({PATH: b"- after\n"}))
    assert job.propose() is None
    assert not repo.talks


# -- what is open --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_results_that_are_proposed_already_are_refused_with_their_url(server: HubServer, repo: Repo, job: Job) -> None:
    first = job.propose(DIGESTS[:2])
    assert job.hub.proposed(NAME, DIGESTS) == {
        digest: PullRequest(f"{server.url}/{NAME}/discussions/1", 1, existed=True) for digest in DIGESTS[:2]
    }
    with pytest.raises(Refused, match=f"{first.url if first else ''} has 1 of these 2 results") as refused:
        job.propose(DIGESTS[1:])
    assert refused.value.code is Code.HUB_PROPOSED
    assert len(repo.talks) == 1


@pytest.mark.long
@pytest.mark.parametrize("status", ["closed", "merged"])
def test_a_closed_or_merged_pull_request_is_not_adopted(repo: Repo, job: Job, status: str) -> None:
    job.propose()
    repo.talks[0].set_status("acme", status)
    assert job.made() == (2, False)


@pytest.mark.long
@pytest.mark.parametrize("filters", [True, False])
def test_a_stranger_s_pull_request_with_the_same_marker_does_not_count(
    server: HubServer, repo: Repo, job: Job, filters: bool
) -> None:
    """Anybody can copy a marker: if theirs were adopted, only their version would ever be proposed."""
    server.filters = filters
    Job(server, repo, server.token("stranger")).propose(files={PATH: b"- forged\n"})
    assert job.made() == (2, False)
    assert [talk.status for talk in repo.talks] == ["open", "open"]


@pytest.mark.long
def test_a_hub_that_lists_new_ones_late_gets_one_pull_request(server: HubServer, repo: Repo, job: Job) -> None:
    server.late = True
    assert (job.made(), len(repo.talks)) == ((1, False), 1)


@pytest.mark.long
def test_a_marker_that_is_only_quoted_in_the_description_does_not_count(repo: Repo, job: Job) -> None:
    quoted = f"<!-- eval-results {'c' * 32} -->\n"
    job.hub.open_pull_request(NAME, {PATH: b"- after\n"}, "Add", quoted, repo.main, DIGESTS[:1])
    assert set(job.hub.proposed(NAME, DIGESTS)) == {DIGESTS[0]}


@pytest.mark.long
def test_an_open_one_is_found_among_many(server: HubServer, repo: Repo, job: Job) -> None:
    server.page_size = 2
    for number in range(7):
        repo.propose("evals-bot", "Something else", f"Number {number}", repo.main, {"other": b"%d" % number})
        if number == 1:
            job.propose()
    assert job.made() == (3, True)


@pytest.mark.long
@pytest.mark.parametrize("more", [False, True])
def test_of_two_jobs_at_once_the_later_closes_its_own(server: HubServer, repo: Repo, job: Job, more: bool) -> None:
    other = Job(server, repo)
    server.before(COMMIT, lambda: other.propose())
    if more:
        with pytest.raises(Refused) as refused:
            job.propose(DIGESTS)
        assert refused.value.code is Code.HUB_PROPOSED
    else:
        assert job.propose() == PullRequest(f"{server.url}/{NAME}/discussions/1", 1, existed=True)
        assert repo.talks[1].comments[-1] == "#1 proposes the same results and stays open."
    assert [talk.status for talk in repo.talks] == ["open", "closed"]


@pytest.mark.long
def test_of_eight_jobs_at_once_one_pull_request_stays(server: HubServer, repo: Repo) -> None:
    gate = threading.Barrier(8)
    jobs = [Job(server, repo, server.token()) for _ in range(8)]

    def run(job: Job) -> PullRequest | None:
        gate.wait()
        return job.propose()

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(run, jobs))
    assert [talk.num for talk in repo.open] == [1]
    assert {one.number for one in made if one} == {1}
    assert sum(not one.existed for one in made if one) == 1


@pytest.mark.long
def test_a_second_one_that_a_killed_job_left_is_closed_by_the_next(server: HubServer, repo: Repo, job: Job) -> None:
    other = Job(server, repo)
    server.before(COMMIT, lambda: other.propose())
    server.fail("/discussions/2/status", 403)  # as if it had been killed before it could close its own
    with pytest.raises(IssuerError):
        job.propose()
    assert len(repo.open) == 2
    assert Job(server, repo).made() == (1, True)
    assert [talk.status for talk in repo.talks] == ["open", "closed"]


# -- faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("status", [0, 409, 412, 429, 500, 502, 503, 504])
def test_a_commit_whose_answer_is_lost_is_found_again_or_sent_again(
    server: HubServer, repo: Repo, job: Job, status: int, when: str
) -> None:
    server.fail(COMMIT, status, headers=AT_ONCE, when=when)
    assert (job.made(), len(repo.talks)) == ((1, False), 1)
    assert server.count(COMMIT) == (1 if when == "after" else 2)


@pytest.mark.long
@pytest.mark.parametrize("how", [{"status": 503, "headers": AT_ONCE}, {"status": 0}])
@pytest.mark.parametrize("question", range(9))
def test_any_request_may_fail_once(server: HubServer, repo: Repo, job: Job, how: dict[str, Any], question: int) -> None:
    server.fail("", skip=question, **how)
    assert job.made()[0] == 1
    assert len(server.asked) > question
    assert len(repo.open) == len(repo.talks) == 1


@pytest.mark.long
def test_half_an_answer_does_not_count_and_one_lost_as_main_moves_is_withdrawn(
    server: HubServer, repo: Repo, job: Job
) -> None:
    server.before(COMMIT, lambda: repo.commit({PATH: b"- theirs\n"}))
    server.fail(COMMIT, when="after")
    with pytest.raises(Moved):
        job.propose()
    assert [talk.status for talk in repo.talks] == ["closed"]
    job.read_at = repo.main
    server.fail(COMMIT, cut=True)
    assert (job.made(), len(repo.talks)) == ((2, False), 2)


@pytest.mark.long
def test_a_hub_that_never_takes_the_commit_is_asked_four_times(server: HubServer, repo: Repo, job: Job) -> None:
    server.fail(COMMIT, 503, headers=AT_ONCE, times=100)
    with pytest.raises(Undecided) as undecided:
        job.propose()
    assert undecided.value.code is Code.HUB_UNAVAILABLE
    assert server.count(COMMIT) == 4
    assert not repo.talks


@pytest.mark.long
def test_a_commit_that_hangs_is_not_sent_twice(server: HubServer, repo: Repo) -> None:
    """It may still be taken, and then there would be two."""
    job, ended = Job(server, repo, patience_s=2), threading.Event()
    server.before(COMMIT, lambda: ended.wait(60))  # a slow peer
    with pytest.raises(Undecided):
        job.propose()
    ended.set()
    eventually(lambda: len(repo.open) == 1)
    assert server.count(COMMIT) == 1
    assert Job(server, repo).made() == (1, True)
