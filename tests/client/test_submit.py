"""Many results to tokens and files: batches, state between two starts, refusals, and the form of entries."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from issuer.adapters import Run, Supplied, read
from issuer.client.batches import (
    CLOCKS_S,
    LEAST_LEFT_S,
    MAX_REFUSED,
    IssuerAccess,
    ResumeState,
    explain_each,
    obtain_each,
)
from issuer.client.build import BuildOptions, Result, build_results
from issuer.client.credential import Credential
from issuer.client.proposal import InFolder, earlier, items_of
from issuer.client.submit import Outcome, plan_of, propose, sign
from issuer.codes import Code
from issuer.errors import Refused, Undecided, VerificationError
from issuer.results.benchmark import read_benchmark
from issuer.results.entry import Submission, read_entries
from issuer.token.wire import MAX_RESULTS
from tests.support import make
from tests.support.hostile_issuer import Good, HostileIssuer
from tests.support.runs import DATA, edited, refusal
from tests.support.scripted import Action, hang_up, reply
from tests.support.submitting import BENCHMARK, MODEL, PATH

SECRET = "hush0123456789abcdef.hush"


class Identities:
    """A credential for each request, each another one; counts them."""

    def __init__(self, *, reusable: bool = False) -> None:
        self.count, self._reusable = 0, reusable

    def __call__(self) -> Credential:
        self.count += 1
        return Credential(f"{SECRET}{self.count}", self._reusable)


def submissions(count: int) -> list[Submission]:
    return [make.submission({"notes": f"run {number}"}) for number in range(count)]


def bodies(server: HostileIssuer) -> list[dict[str, Any]]:
    return [json.loads(seen.body) for seen in server.posted]


def asking(server: HostileIssuer, identity: Callable[[], Credential] | None = None) -> IssuerAccess:
    return IssuerAccess(server.url, identity or Identities(), patience_s=5)


def problem(status: int, code: str, **members: Any) -> bytes:
    return reply(status, {"status": status, "code": code, "detail": "what happened", **members}, Retry_After="0")


def checks(*pointers: str) -> list[dict[str, Any]]:
    made = {"code": "policy.task", "rule": "r", "actual": "a", "expected": "", "hint": ""}
    return [{**made, "pointer": pointer, "passed": False} for pointer in pointers]


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_batch_is_no_larger_than_an_issuer_takes_and_each_has_its_own_identity(tmp_path: Path) -> None:
    wanted, identities = submissions(MAX_RESULTS + 1), Identities()
    with HostileIssuer() as server:
        answered = obtain_each(asking(server, identities), wanted, ResumeState(tmp_path))
    assert [len(body["results"]) for body in bodies(server)] == [MAX_RESULTS, 1]
    assert len({seen.headers["authorization"] for seen in server.posted}) == identities.count == 2
    assert [answered.tokens[index].content_digest for index in range(len(wanted))] == [
        each.content_digest for each in wanted
    ]
    large = [make.submission({"notes": str(number) + "x" * 15_000}) for number in range(80)]
    with HostileIssuer() as server:
        obtain_each(asking(server), large, ResumeState(tmp_path))
    assert [len(seen.body) < 1024 * 1024 for seen in server.posted] == [True, True]


# -- the state of a job -------------------------------------------------------------------------------------------------


def test_a_received_token_is_used_again_unless_its_file_was_changed(tmp_path: Path) -> None:
    wanted, identities = submissions(2), Identities()
    with HostileIssuer() as server:
        first = obtain_each(asking(server), wanted, ResumeState(tmp_path))
        again = obtain_each(asking(server, identities), wanted, ResumeState(tmp_path))
        assert len(server.posted) == 1
        assert (again.tokens, again.again, identities.count) == (first.tokens, frozenset({0, 1}), 0)
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
        for name in ("one", "ending"):
            (tmp_path / name).mkdir()
        obtain_each(asking(server), wanted[:1], ResumeState(tmp_path / "one"))
        (file,) = (tmp_path / "one").glob("*.kept")
        good = file.read_bytes()
        for old, new in ((b"{", b"["), (b"eyJ", b"eyK"), (b"run 0", b"run 1"), (b"sha256:", b"sha256:0")):
            file.write_bytes(good.replace(old, new))
            before = len(server.posted)
            answered = obtain_each(asking(server), wanted[:1], ResumeState(tmp_path / "one"))
            assert (len(server.posted) - before, list(answered.tokens), answered.again) == (1, [0], frozenset())
    with HostileIssuer(lambda good: good.answer(exp=good.terms["iat"] + LEAST_LEFT_S - 1)) as server:
        for _ in range(2):
            obtain_each(asking(server), submissions(1), ResumeState(tmp_path / "ending"))
        assert len(server.posted) == 2, "one that is about to end is not used again"


def test_a_lost_answer_is_requested_with_the_same_nonce_until_it_is_spent(tmp_path: Path) -> None:
    wanted, pats = submissions(1), Identities(reusable=True)
    with HostileIssuer(answers=[hang_up]) as server:
        with pytest.raises(Undecided):
            obtain_each(IssuerAccess(server.url, pats, patience_s=0.5), wanted, ResumeState(tmp_path))
        server.say()
        obtain_each(asking(server, pats), wanted, ResumeState(tmp_path))
        nonces = {body["nonce"] for body in bodies(server)}
    assert len(nonces) == 1
    assert ResumeState(tmp_path).nonce(next(tmp_path.glob("*.kept")).stem) == "", "the next request is another one"
    spent: list[Action] = [hang_up, problem(409, "nonce.reused")]
    with HostileIssuer(answers=spent) as server:
        (tmp_path / "spent").mkdir()
        state = ResumeState(tmp_path / "spent")
        with pytest.raises(Undecided):
            obtain_each(IssuerAccess(server.url, pats, patience_s=0.5), wanted, state)
        with pytest.raises(Refused):
            obtain_each(asking(server, pats), wanted, state)
        first, second, third = (body["nonce"] for body in bodies(server))
    assert first == second != third, "a spent nonce begins the request once more"


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_every_refused_result_of_a_batch_is_reported_and_left_out_on_demand(tmp_path: Path) -> None:
    denied = problem(403, "policy.task", checks=checks("/results/0/claims/task_id", "/results/2/claims/task_id"))
    with HostileIssuer(answers=[denied]) as server:
        answered = obtain_each(asking(server), submissions(3), ResumeState(tmp_path))
        assert len(server.posted) == 1
    assert [(each.index, each.code) for each in answered.refusals] == [(0, Code.POLICY_TASK), (2, Code.POLICY_TASK)]
    assert {check.pointer for each in answered.refusals for check in each.checks} == {"/claims/task_id"}
    assert not answered.tokens
    # A refusal of the caller is not a refusal of a result.
    for denied in (problem(403, "identity.claim_mismatch", checks=checks("")), problem(409, "identity.replayed")):
        with HostileIssuer(answers=[denied]) as server, pytest.raises(Refused):
            obtain_each(asking(server), submissions(2), ResumeState(tmp_path), keep_going=True)
    fault = {"pointer": "/results/1/claims", "code": "claims.secret", "detail": "x"}
    with HostileIssuer() as server:
        good = [Good(server.url, {"claims": each.claims.to_json(), "details": each.details}) for each in submissions(3)]
        left = {"tokens": [good[0].answer(), good[2].answer(jti="A" * 22)]}
        server.say(problem(422, "claims.secret", errors=[fault]), reply(201, left))
        answered = obtain_each(asking(server), submissions(3), ResumeState(tmp_path), keep_going=True)
        assert [len(body["results"]) for body in bodies(server)] == [3, 2]
    assert (sorted(answered.tokens), [each.index for each in answered.refusals]) == ([0, 2], [1])


def lost_memory(wait_s: int) -> bytes:
    body = {"status": 503, "code": "dependency.state_reset", "detail": "what happened"}
    return reply(503, body, Retry_After=str(wait_s))


@pytest.mark.long
def test_an_issuer_that_lost_its_memory_gets_another_identity_after_its_wait(tmp_path: Path) -> None:
    """One that is fetched at once would be refused as the first one was: its store knows nothing of that second."""
    (wanted,) = submissions(1)
    with HostileIssuer() as server:
        good = Good(server.url, {"claims": wanted.claims.to_json(), "details": wanted.details})
        server.say(lost_memory(2), reply(201, {"tokens": [good.answer()]}))
        obtain_each(asking(server), [wanted], ResumeState(tmp_path))
        first, second = server.posted
    assert second.at - first.at >= 2 + CLOCKS_S
    assert first.headers["authorization"] != second.headers["authorization"]


def test_a_client_does_not_wait_beyond_its_patience(tmp_path: Path) -> None:
    with HostileIssuer(answers=[lost_memory(4)]) as server, pytest.raises(Undecided) as lost:
        obtain_each(asking(server), submissions(1), ResumeState(tmp_path))
    assert (lost.value.code, len(server.posted)) == (Code.DEPENDENCY_STATE_RESET, 1)


def test_a_rehearsal_asks_no_more_once_many_are_refused() -> None:
    refused = {"verdict": "refused", "integration": "i", "identity": "ci", "policy": "p", "checks": checks(""),
               "warnings": [], "request_id": "r", "code": "policy.task"}  # fmt: skip
    with HostileIssuer(answers=[reply(200, refused)]) as server:
        explained = list(explain_each(asking(server), submissions(MAX_REFUSED + 5)))
    assert len(explained) == len(server.posted) == MAX_REFUSED


# -- forms -------------------------------------------------------------------------------------------------------------


ONE = {"accuracy": "match/accuracy"}
TWO = {**ONE, "stderr": "match/stderr"}


def results(run: Run | None = None, metrics: dict[str, str] | None = None) -> tuple[Result, ...]:
    given = Supplied(model_repo=MODEL, command="x", metrics=metrics or ONE)
    runs = [run or read(DATA / "inspect_two_scorers.json")]
    return build_results(runs, Path("out"), BuildOptions(given, allow_mock=frozenset({"mockllm/model"})))


def test_an_entry_has_today_s_form_too_if_its_benchmark_allows_that_and_one_run(tmp_path: Path) -> None:
    unmarked = BENCHMARK.replace(b", primary: true", b"")
    cases: list[tuple[bytes | None, dict[str, str], str | None, str, str]] = [
        (BENCHMARK, TWO, None, "both", "the primary metric is accuracy"),
        (unmarked, ONE, None, "both", "the only metric is accuracy"),
        (unmarked, TWO, None, "target", "the primary metric is unknown: eval.yaml marks none"),
        (unmarked, TWO, "stderr", "both", "the primary metric is stderr"),
        (unmarked.replace(b"false}", b"false, primary: true}"), ONE, None, "target", "of the primary metric, stderr"),
        (None, ONE, None, "both", "the only metric is accuracy"),
        (None, TWO, None, "target", "is unknown: eval.yaml of openai/gsm8k at that commit is unavailable"),
        (None, TWO, "accuracy", "both", "the primary metric is accuracy"),
    ]
    for benchmark, metrics, stated, profile, why in cases:
        given = read_benchmark(benchmark, "eval.yaml") if benchmark else None
        (item,) = items_of(results(metrics=metrics), InFolder(tmp_path), given, stated)
        assert item.profile == profile
        assert why in item.why
        (entry,) = read_entries(item.entry("a.b.c").encode(), "f")
        assert len(entry.token_members) == (2 if profile == "both" else 1)
    undefined = read_benchmark(BENCHMARK.replace(b"gsm8k_mini", b"other"), "eval.yaml")
    assert refusal(lambda: items_of(results(), InFolder(tmp_path), undefined)).code is Code.RESULT_UNDEFINED
    run = read(DATA / "inspect_two_scorers.json")
    other = replace(run, name="second.json", details={**run.details, "date": "2026-11-22"})
    error = refusal(lambda: items_of((*results(run), *results(other)), InFolder(tmp_path)))
    assert (error.place.file, "inspect_two_scorers.json" in error.detail) == ("second.json", True)
    assert "two runs are for the same entry, gsm8k_mini of openai/gsm8k for acme/open-model" in error.detail


# -- files --------------------------------------------------------------------------------------------------------------


def proposed(
    server: HostileIssuer, folder: Path, given: tuple[Result, ...], state: str = "state", primary: str | None = None
) -> list[Outcome]:
    place = InFolder(folder / "out")
    signed = sign(plan_of(given, place, None, primary), place, asking(server), ResumeState(folder / state))
    return list(propose(signed, place, asking(server)))


def submit(server: HostileIssuer, folder: Path, given: tuple[Result, ...], **named: str) -> list[str | None]:
    made = [outcome.pull_request for outcome in proposed(server, folder, given, **named)]
    return [one.url if one else None for one in made]


def test_an_existing_result_is_not_signed_again_and_a_newer_one_replaces_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "out" / MODEL / PATH
    with HostileIssuer() as server:
        assert submit(server, tmp_path, results()) == [str(tmp_path / "out" / MODEL)]
        for file in (tmp_path / "state").glob("*.kept"):
            file.unlink()
        assert submit(server, tmp_path, results()) == []
        assert len(server.posted) == 1
        path.write_text(f"# ours\n{path.read_text()}")
        run = read(DATA / "inspect_two_scorers.json")
        later = results(replace(run, details={**run.details, "date": "2026-11-22"}))
        place = InFolder(tmp_path / "out")
        (item,), changes = items_of(later, place), plan_of(later, place).changes
        (old,) = earlier(item, changes, server.url, "inspect-ai")
        assert not list(earlier(item, changes, server.url, "other"))
        (outcome,) = proposed(server, tmp_path, later)
        assert [entry.form for entry in outcome.replaced] == [old.form]
    assert path.read_text().startswith("# ours\n")
    (entry,) = read_entries(path.read_bytes(), "f")
    assert entry.details.date == "2026-11-22"
    path.write_text("dataset: {}\n")
    with HostileIssuer() as server:
        error = refusal(lambda: submit(server, tmp_path, results()))
        assert (error.code, server.seen) == (Code.FILE_SCHEMA, []), "a file that cannot have the entry"


def test_another_party_s_entry_stays_and_ours_is_the_one_that_is_verified(tmp_path: Path) -> None:
    (item,) = items_of(results(), InFolder(tmp_path))
    theirs = make.file_for(item.said, iss="https://other.example", sub="theirs")
    path = tmp_path / "out" / MODEL / PATH
    path.parent.mkdir(parents=True)
    path.write_text(theirs)
    with HostileIssuer() as server:
        (outcome,) = proposed(server, tmp_path, results())
    assert path.read_text().startswith(theirs)
    assert (outcome.replaced, [report.integration for report in outcome.reports.values()]) == ((), ["inspect-ai"])
    assert len(read_entries(path.read_bytes(), "f")) == 2


def test_a_primary_metric_that_only_its_author_names_passes_the_client_s_own_check(tmp_path: Path) -> None:
    with HostileIssuer() as server:
        made = [submit(server, tmp_path, results(metrics=TWO), primary="stderr") for _ in range(2)]
        assert ([len(each) for each in made], len(server.posted)) == ([1, 0], 1)
    (entry,) = read_entries((tmp_path / "out" / MODEL / PATH).read_bytes(), "f")
    assert entry.value == next(metric.value for metric in entry.metrics or () if metric.metric_id == "stderr")


def written(folder: Path, *tasks: str) -> list[tuple[Result, ...]]:
    raw = (DATA / "inspect_two_scorers.json").read_bytes()
    for task in tasks:
        (folder / f"{task}.json").write_bytes(edited(raw, "/eval/task", task))
    return [results(read(folder / f"{task}.json")) for task in tasks]


def tasks_in(path: Path) -> list[str]:
    return sorted(str(entry.dataset.task_id) for entry in read_entries(path.read_bytes(), "f"))


def test_an_entry_that_another_job_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """The other one comes when the file was read and is about to be written: at the last question for the keys."""
    first, second = written(tmp_path, "first", "second")
    good = reply(200, make.jwks())
    with HostileIssuer() as other:

        def interrupt(connection: socket.socket) -> None:
            submit(other, tmp_path, second, state="other")
            connection.sendall(good)

        keys: list[Action] = [good, good, interrupt, good]
        with HostileIssuer(keys=keys) as server:
            submit(server, tmp_path, first)
            assert server.asked_for_keys == len(keys), "the file was made again"
    assert tasks_in(tmp_path / "out" / MODEL / PATH) == ["first", "second"]


@pytest.mark.long
def test_many_jobs_at_once_write_into_one_folder(tmp_path: Path) -> None:
    tasks = [f"task-{number}" for number in range(8)]
    with HostileIssuer() as server, ThreadPoolExecutor(len(tasks)) as pool:
        jobs = [pool.submit(submit, server, tmp_path, one, state=task)
                for task, one in zip(tasks, written(tmp_path, *tasks), strict=True)]  # fmt: skip
        assert [job.result() for job in jobs] == [[str(tmp_path / "out" / MODEL)]] * len(tasks)
    assert tasks_in(tmp_path / "out" / MODEL / PATH) == tasks


def test_only_tokens_that_the_issuer_s_keys_verify_are_written(tmp_path: Path) -> None:
    """The answer was good; by the time of the proposal the issuer has other keys."""
    good, other = reply(200, make.jwks()), reply(200, make.jwks(Ed25519PrivateKey.generate()))
    keys: list[Action] = [good, good, other]
    with HostileIssuer(keys=keys) as server, pytest.raises((VerificationError, Undecided)):
        submit(server, tmp_path, results())
    assert not (tmp_path / "out").exists()
