"""The tier of a result: it follows from the evidence alone, and has its reason in words."""

from itertools import product
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from issuer.results.entry import EntryFramework, write_entry
from issuer.verify import fail_shared_jti
from issuer.verify.receipts import token_digest, write_receipt
from issuer.verify.report import NAMES, TIERS, Check, Report, Said, Status, verdict_of
from issuer.verify.reproduction import Tolerance, setting_differences
from issuer.verify.tiers import RANKS, ranked, with_reproductions
from issuer.verify.trust import Trust
from tests.support import make, reports
from tests.support.reports import SOON
from tests.support.witnessed import ORIGIN, TestLog, at_hand, trusted_log

ITEM = make.submission()
FILE = make.file_for(ITEM)
LATER = make.NOW + make.YEAR
LOGGED = make.token_for(ITEM, log=ORIGIN)
LOGGED_FILE = make.file_for(ITEM, log=ORIGIN)


def judge(text: str = FILE, by: Trust | None = None, **known: Any) -> Report:
    """Judge the file as a reader does in time, or as `known` says."""
    return reports.judge(text, by, **{"at": None, "now": SOON, **known})


def tier(*given: Any, **known: Any) -> str:
    return ranked(judge(*given, **known)).tier


def test_an_entry_is_self_reported_or_verified_by_its_evidence_of_the_time() -> None:
    assert tier(write_entry(ITEM.form) + '  tier: "reproduced"\n  verified: true\n') == "self-reported"
    trust = make.trust(receipt_keys=make.key_set(make.RECEIPT_KEY))
    assert (ranked(judge()).tier, ranked(judge()).tier_reason) == ("verified", "in time")
    assert ranked(judge(at=SOON)).tier_reason == "received in time, as stated"
    received = judge(FILE, trust, at=SOON, witnessed=True)
    assert ranked(received).tier_reason == "received in time, by this party's own clock"
    receipt = write_receipt(received, trust, make.RECEIPT_KEY, SOON)
    assert receipt is not None
    later = judge(FILE, trust, now=LATER, receipts={token_digest(make.token_for(ITEM)): receipt.decode()})
    assert (ranked(later).tier, ranked(later).tier_reason) == ("verified", "received in time, by a receipt")


def test_a_log_raises_only_what_this_party_itself_received_in_time() -> None:
    trust = make.trust(log=trusted_log(2))
    proof = at_hand(LOGGED, TestLog(LOGGED).proof(LOGGED, make.NOW + 1, make.NOW + 2))
    for required in (frozenset(), frozenset({"log"})):
        by = replace(trust, require=required)
        own = ranked(judge(LOGGED_FILE, by, at=SOON, witnessed=True, proofs=proof))
        assert own.tier == "logged"
        assert "in the issuer's log, witnessed at" in own.tier_reason
        assert tier(LOGGED_FILE, by, at=SOON, proofs=proof) == "verified", "the time is only stated"
        assert tier(LOGGED_FILE, by, proofs=proof) == "verified", "a reader received nothing"
        old = ranked(judge(LOGGED_FILE, by, now=LATER, proofs=proof))
        assert (old.tier, old.tier_reason[:45]) == ("verified", "it existed in time, by the log's witnesses, a")
    assert tier(LOGGED_FILE, trust, at=SOON, witnessed=True) == "verified", "no proof was found"
    for seen in (make.NOW - 61, make.NOW + 3601):  # before its issue, and after its end
        proof = at_hand(LOGGED, TestLog(LOGGED).proof(LOGGED, seen, seen))
        received = {"at": SOON, "witnessed": True, "now": make.NOW + 4000}
        assert tier(LOGGED_FILE, trust, proofs=proof, **received) == "verified"


def test_a_good_token_that_came_at_an_unknown_time_is_signed() -> None:
    found = ranked(judge(now=LATER))
    assert found.tier == "signed"
    assert found.tier_reason.startswith("check 5, fresh: good when it was issued")
    assert tier(FILE, make.trust(revocations=None)) == "signed"
    assert tier(LOGGED_FILE, make.trust(log=trusted_log(2), require=frozenset({"log"}))) == "signed"


def test_an_entry_that_this_reader_cannot_judge_is_undecided_with_the_reason() -> None:
    revoked = make.trust(keys=make.key_set(make.STRANGER), archive=make.archive(revoked_from=make.NOW))
    for by, at, reason in (
        (make.trust(audience="https://other.example"), None, "check 4, issuer and audience"),
        (make.trust(issuer="https://other.example"), None, "check 2, key"),
        (make.trust(keys=None), None, "check 2, key"),
        (make.trust(), LATER, "check 5, fresh"),
        (revoked, None, "check 5"),
    ):
        found = judge(FILE, by, at=at)
        assert (found.tier, found.tier_reason[: len(reason)]) == ("undecided", reason)


def test_a_contradicted_or_revoked_entry_is_refuted_and_a_renamed_one_undecided() -> None:
    integration = make.revocations(sub=[{"sub": "inspect-ai", "from": 0}])
    for text, revoked, reason in (
        (FILE.replace("20.9", "99.9"), UNSET, "check 8, metrics"),
        (FILE.replace("0.3.285", "0.3.286"), UNSET, "check 7, bound fields"),
        (FILE + '  notes: "no tools"\n', UNSET, "check 9, digests"),
        (write_entry(ITEM.form, make.token_for(ITEM)[:-4] + "AAAA"), UNSET, "check 3, signature"),
        (FILE, make.revocations(jti=[make.JTI]), "the issuer has revoked this jti"),
        (FILE, integration, "the issuer has revoked what inspect-ai had signed at that time"),
    ):
        found = judge(text, make.trust(revocations=revoked))
        assert (found.tier, RANKS[found.tier], found.tier_reason[: len(reason)]) == ("refuted", 0, reason)
    shared = ranked(fail_shared_jti(judge(), "entry /1 of this file"))
    assert (shared.tier, "neither counts" in shared.tier_reason) == ("refuted", True)
    elsewhere: dict[str, Any] = {"path": ".eval_results/other.yaml"}
    renamed: dict[str, Any] = {"repo": "acme/new"}
    for place, reason in ((elsewhere, "results of"), (renamed, "the token is for another")):
        moved = judge(**place)
        assert (moved.verdict, moved.failed, moved.tier) == ("failed", (6,), "undecided")
        assert moved.tier_reason.startswith(f"check 6, repository and file name: {reason}")
        assert tier(FILE + '  notes: "no tools"\n', **place) == "refuted", "moved and changed"


def test_every_outcome_of_the_checks_has_a_tier_and_more_evidence_never_lowers_it() -> None:
    assert [RANKS[name] for name in TIERS] == sorted(RANKS.values(), reverse=True)
    blank = replace(judge(), checks=())
    order = (Status.FAIL, Status.UNKNOWN, Status.PASS)
    seen: dict[tuple[Status, ...], int] = {}
    for statuses in product(order, repeat=9):
        checks = tuple(Check(number, NAMES[number], status, "", "", "") for number, status in enumerate(statuses, 1))
        found = ranked(replace(blank, checks=checks, verdict=verdict_of(checks)))
        assert found.tier in TIERS
        seen[statuses] = RANKS[found.tier]
    for statuses, rank in seen.items():
        for place, status in enumerate(statuses):
            if status is not Status.PASS:
                better = order[order.index(status) + 1]
                raised = (*statuses[:place], better, *statuses[place + 1 :])
                assert seen[raised] >= rank, (statuses, place)


OWNER = {"provider": "github", "issuer": "https://a.example", "repository_owner_id": "2"}
OTHERS: dict[str, Any] = {"sub": "lm-eval", "jti": "AAECAwQFBgcICQoLDA0OEA", "caller": OWNER}
OTHERS |= dict.fromkeys(("iat", "nbf"), make.NOW + 60)
FIRST_FILE = make.file_for(ITEM, caller={**OWNER, "repository_owner_id": "1"})
FIRST = judge(FIRST_FILE)


def text_again(details: dict[str, Any] | None = None, terms: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a second party's result, which names the first one's."""
    run = {"run": {"reproduces": FIRST.content_digest}, **(details or {})}
    item = make.submission(run, **{"framework": {"name": "lm-eval", "version": "0.4.9"}, **claims})
    return make.file_for(item, **{**OTHERS, **(terms or {})})


def again(details: dict[str, Any] | None = None, *, by: Trust | None = None, **more: Any) -> Report:
    return judge(text_again(details, **more), by, at=make.NOW + 60)


def first_beside(second: Report, tolerance: Tolerance | None = None) -> tuple[str, str]:
    found = with_reproductions([FIRST, second], tolerance or Tolerance())[0]
    return found.tier, found.tier_reason


def test_a_result_that_another_party_had_signed_again_is_reproduced() -> None:
    tier, reason = first_beside(again())
    assert (tier, reason[:22]) == ("reproduced", "reproduced by lm-eval,")
    tiers = [found.tier for found in with_reproductions([again(), FIRST])]
    assert tiers == ["verified", "reproduced"], "in either order"
    elsewhere = {"provider": "buildkite", "issuer": "https://b.example", "organization_id": "1"}
    assert first_beside(again(terms={"caller": elsewhere}))[0] == "reproduced", "the same digits at another provider"


def test_a_reproduction_by_the_numbers_counts_within_the_reader_s_tolerance_alone() -> None:
    near = again(metrics=[{"metric_id": "accuracy", "value": 21.4}])
    assert first_beside(near)[0] == "verified"
    assert "they differ at /metrics/0/value: accuracy 20.9 and accuracy 21.4" in first_beside(near)[1]
    assert first_beside(near, Tolerance({"accuracy": 0.5}))[0] == "reproduced"
    assert first_beside(near, Tolerance({"accuracy": 0.4}))[0] == "verified"
    assert first_beside(near, Tolerance({"f1": 9.0}))[0] == "verified"


def test_a_result_that_is_not_a_second_party_s_same_run_raises_nothing_and_says_why() -> None:
    named = {"reproduces": FIRST.content_digest}
    elsewhere = {"issuer": "https://b.example", "namespace_id": "2"}
    robot = {"issuer": make.ISSUER, "account": "robot"}
    score = {"metric_id": "accuracy", "value": 20.9}
    for second, reason in (
        (again(model_revision="0" * 40), "they differ at /model_revision"),
        (again(benchmark_revision="0" * 40), "they differ at /benchmark_revision"),
        (again(task_id="other"), "they differ at /task_id"),
        (again(metrics=[{**score, "slice": "easy"}]), "they differ at /metrics/0:"),
        (again(metrics=[score, {"metric_id": "f1", "value": 1}]), "they differ at /metrics: - and f1 1"),
        (again({"benchmark_subset": "easy"}), "they differ at benchmark_subset: - and easy"),
        (again({"normalization": {"lowercase": True}}), "they differ at normalization"),
        (again({"run": {**named, "selection": {"accuracy": "strict"}}}), "they differ at run.selection"),
        (again(terms={"iat": make.NOW, "nbf": make.NOW}), "it was not signed later than the result that it names"),
        (again(terms={"sub": "inspect-ai"}), "both were signed for inspect-ai"),
        (again(terms={"caller": {**OWNER, "repository_owner_id": "1"}}), "workloads of one owner"),
        (again(terms={"caller": elsewhere}), "the owner of a caller is unknown"),
        (again(terms={"caller": robot}), "the holder of a personal access token may also own the other caller"),
    ):
        tier, given = first_beside(second)
        assert (tier, "a reproduction does not count" in given, reason in given) == ("verified", True, True), given


def test_split_epochs_and_completeness_are_not_compared_and_completeness_is_named() -> None:
    for run, named in (
        ({}, ""), ({"split": "test", "epochs": 4}, ""), ({"completeness": "partial"}, "is not compared: - and partial"),
    ):  # fmt: skip
        tier, reason = first_beside(again({"run": {"reproduces": FIRST.content_digest, **run}}))
        assert (tier, named in reason, "not compared" in reason) == ("reproduced", True, bool(named))
    whole, spelled = (replace(FIRST.said, normalization={"scale": scale}) for scale in (100, 100.0))
    assert not list(setting_differences(whole, spelled)), "the same number"


def test_arguments_are_compared_if_both_results_of_one_framework_have_them() -> None:
    five, zero, without = (replace(FIRST.said, arguments=made) for made in ({"shots": 5}, {"shots": 0}, {}))
    elsewhere = replace(zero, framework=EntryFramework("lm-eval"))
    (found,) = setting_differences(
        replace(five, arguments={"shots": 5, "n": 1, "x": True}), replace(five, arguments={"n": 1, "x": 1})
    )
    assert (found.where, found.first, found.second) == ("run.arguments", '{"shots":5,"x":true}', '{"x":1}')
    assert list(setting_differences(five, zero))
    for other in (replace(FIRST.said, arguments={"shots": 5.0}), without, elsewhere):
        assert not [*setting_differences(five, other), *setting_differences(other, five)]
    said = again({"run": {"arguments": {"shots": 5, "n.0": "x", "greedy": True}}}).said
    assert isinstance(said, Said)
    assert said.arguments == {"shots": 5, "n.0": "x", "greedy": True}


def test_a_copy_of_a_reproduction_counts_once_and_long_text_is_cut() -> None:
    near = again({"benchmark_subset": "x" * 5000})
    found = with_reproductions([FIRST, near, replace(near, pointer="/2"), FIRST])
    assert found[0].tier_reason == found[3].tier_reason
    assert "a reproduction does not count: they differ at benchmark_subset: - and xxx" in found[0].tier_reason
    assert len(found[0].tier_reason) < 400


def test_only_a_verified_result_reproduces_the_one_that_it_names_and_is_reproduced() -> None:
    for run in ({}, *({"reproduces": named} for named in ("", "sha256:" + "0" * 64, 5, ["x"]))):
        assert first_beside(again({"run": run}))[0] == "verified"
    assert first_beside(again(by=make.trust(keys=None)))[0] == "verified"
    unsure = tuple(replace(made, status=Status.UNKNOWN) if made.number == 5 else made for made in FIRST.checks)
    first = ranked(replace(FIRST, verdict="undecided", checks=unsure))
    assert with_reproductions([first, again()])[0].tier == "signed"
    said = again({"benchmark_subset": "easy", "normalization": {"lowercase": True}}).said
    assert isinstance(said, Said)
    assert (said.reproduces, said.benchmark_subset) == (FIRST.content_digest, "easy")
    assert said.normalization == {"lowercase": True}


def test_the_reports_of_a_file_have_tiers_by_the_tolerance_of_the_reader_s_trust() -> None:
    text = FIRST_FILE + text_again(metrics=[{"metric_id": "accuracy", "value": 21.4}])
    for tolerance, first in ((Tolerance(), "verified"), (Tolerance({"accuracy": 0.5}), "reproduced")):
        trust = replace(make.trust(), tolerance=tolerance)
        found = reports.judge_all(text, trust, at=make.NOW + 60)
        assert [report.tier for report in found] == [first, "verified"]
