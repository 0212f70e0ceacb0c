"""The tier of a result: what stands behind it, by evidence alone, and the reason in words."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from issuer.results.entry import read_entries, write_entry
from issuer.verify import Context, fail_shared_jti, verify_entries
from issuer.verify.receipts import token_digest, write_receipt
from issuer.verify.report import NAMES, TIERS, Check, Report, Said, Status, verdict_of
from issuer.verify.reproduction import Tolerance, setting_differences
from issuer.verify.tiers import RANKS, ranked, with_reproductions
from issuer.verify.trust import Trust
from tests.support import make
from tests.support.witnessed import ORIGIN, TestLog, at_hand, trusted_log

SAID = make.submission()
FILE = make.file_for(SAID)
LATER = make.NOW + make.YEAR
LOGGED = make.token_for(SAID, log=ORIGIN)
LOGGED_FILE = make.file_for(SAID, log=ORIGIN)


def judge(text: str = FILE, by: Trust | None = None, *, at: int | None = None, **known: Any) -> Report:
    context = Context(**{"now": make.NOW + 5, **known})
    entries = read_entries(text.encode(), make.PATH)
    return verify_entries(entries, make.REPO, make.PATH, by or make.trust(), at, context)[0]


def tier(*given: Any, **known: Any) -> str:
    return ranked(judge(*given, **known)).tier


# -- by an entry's own report ---------------------------------------------------------------------------------------------


def test_an_entry_without_a_token_is_self_reported_whatever_it_says_of_itself() -> None:
    assert tier(write_entry(SAID.form) + '  tier: "reproduced"\n  verified: true\n') == "self-reported"


def test_what_passes_all_checks_is_verified_and_says_by_which_evidence_of_the_time() -> None:
    trust = make.trust(receipt_keys=make.key_set(make.RECEIPT_KEY))
    assert (ranked(judge()).tier, ranked(judge()).tier_reason) == ("verified", "in time")
    assert ranked(judge(at=make.NOW + 5)).tier_reason == "received in time, as stated"
    received = judge(FILE, trust, at=make.NOW + 5, witnessed=True)
    assert ranked(received).tier_reason == "received in time, by this party's own clock"
    receipt = write_receipt(received, trust, make.RECEIPT_KEY, make.NOW + 5)
    assert receipt is not None
    later = judge(FILE, trust, now=LATER, receipts={token_digest(make.token_for(SAID)): receipt.decode()})
    assert (ranked(later).tier, ranked(later).tier_reason) == ("verified", "received in time, by a receipt")


def test_a_log_raises_only_what_this_party_itself_received_in_time() -> None:
    trust = make.trust(log=trusted_log(2))
    proof = at_hand(LOGGED, TestLog(LOGGED).proof(LOGGED, make.NOW + 1, make.NOW + 2))
    for required in (frozenset(), frozenset({"log"})):
        by = replace(trust, require=required)
        own = ranked(judge(LOGGED_FILE, by, at=make.NOW + 5, witnessed=True, proofs=proof))
        assert own.tier == "logged"
        assert "in the issuer's log, witnessed at" in own.tier_reason
        assert tier(LOGGED_FILE, by, at=make.NOW + 5, proofs=proof) == "verified", "the time is only stated"
        assert tier(LOGGED_FILE, by, proofs=proof) == "verified", "a reader received nothing"
        old = ranked(judge(LOGGED_FILE, by, now=LATER, proofs=proof))
        assert (old.tier, old.tier_reason[:45]) == ("verified", "it existed in time, by the log's witnesses, a")
    assert tier(LOGGED_FILE, trust, at=make.NOW + 5, witnessed=True) == "verified", "no proof was found"


@pytest.mark.parametrize("seen", [make.NOW - 61, make.NOW + 3601], ids=["before its issue", "after its end"])
def test_a_log_that_saw_the_token_at_another_time_raises_nothing(seen: int) -> None:
    proof = at_hand(LOGGED, TestLog(LOGGED).proof(LOGGED, seen, seen))
    known: dict[str, Any] = {"at": make.NOW + 5, "witnessed": True, "proofs": proof, "now": make.NOW + 4000}
    assert tier(LOGGED_FILE, make.trust(log=trusted_log(2)), **known) == "verified"


def test_a_good_token_of_which_nobody_knows_when_it_came_is_signed() -> None:
    found = ranked(judge(now=LATER))
    assert found.tier == "signed"
    assert found.tier_reason.startswith("check 5, fresh: good when it was issued")
    assert tier(FILE, make.trust(revocations=None)) == "signed"
    assert tier(LOGGED_FILE, make.trust(log=trusted_log(2), require=frozenset({"log"}))) == "signed"


@pytest.mark.parametrize(
    ("by", "known", "reason"),
    [
        (make.trust(audience="https://other.example"), {}, "check 4, issuer and audience"),
        (make.trust(issuer="https://other.example"), {}, "check 2, key"),
        (make.trust(keys=None), {}, "check 2, key"),
        (make.trust(), {"at": LATER}, "check 5, fresh"),
        (make.trust(keys=make.key_set(make.STRANGER), archive=make.archive(revoked_from=make.NOW)), {}, "check 5"),
    ],
    ids=["another audience", "another issuer", "no keys", "too late", "a revoked key"],
)
def test_what_this_reader_cannot_decide_is_undecided_with_the_reason(by: Trust, known: Any, reason: str) -> None:
    found = ranked(judge(FILE, by, **known))
    assert found.tier == "undecided"
    assert found.tier_reason.startswith(reason)


@pytest.mark.parametrize(
    ("text", "by", "reason"),
    [
        (FILE.replace("20.9", "99.9"), make.trust(), "check 8, metrics"),
        (FILE.replace("0.3.285", "0.3.286"), make.trust(), "check 7, bound fields"),
        (FILE + '  notes: "no tools"\n', make.trust(), "check 9, digests"),
        (write_entry(SAID.form, make.token_for(SAID)[:-4] + "AAAA"), make.trust(), "check 3, signature"),
        (FILE, make.trust(revocations=make.revocations(jti=[make.JTI])), "the issuer has revoked this jti"),
        (
            FILE,
            make.trust(revocations=make.revocations(sub=[{"sub": "inspect-ai", "from": 0}])),
            "the issuer has revoked what inspect-ai had signed at that time",
        ),
    ],
    ids=["a metric", "a field", "a note", "a signature", "a revoked token", "a revoked interval"],
)
def test_what_the_token_contradicts_or_its_issuer_took_back_is_refuted(text: str, by: Trust, reason: str) -> None:
    found = ranked(judge(text, by))
    assert (found.tier, RANKS[found.tier]) == ("refuted", 0)
    assert found.tier_reason.startswith(reason)


def test_in_a_file_of_another_name_it_is_undecided_and_in_another_repository_refuted() -> None:
    """There it says of another model what nobody signed: the digest of the claims has the repository in it."""
    entries, known = read_entries(FILE.encode(), make.PATH), Context(make.NOW + 5)
    (renamed,) = verify_entries(entries, make.REPO, ".eval_results/other.yaml", make.trust(), None, known)
    assert (renamed.tier, renamed.tier_reason[:33]) == ("undecided", "check 6, repository and file name")
    (copied,) = verify_entries(entries, "thief/model", make.PATH, make.trust(), None, known)
    assert (copied.tier, copied.tier_reason[:16]) == ("refuted", "check 9, digests")


def test_two_tokens_with_one_jti_are_both_refuted() -> None:
    found = ranked(fail_shared_jti(judge(), "entry /1 of this file"))
    assert found.tier == "refuted"
    assert "neither counts" in found.tier_reason


def test_every_outcome_of_the_checks_has_a_tier_and_more_evidence_never_lowers_it() -> None:
    """Every combination of a no, not known and a yes: total, and monotone in each check."""
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


def test_the_tiers_stand_in_the_order_of_their_ranks() -> None:
    assert [RANKS[name] for name in TIERS] == sorted(RANKS.values(), reverse=True)


# -- reproduced -----------------------------------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    "sub": "lm-eval",
    "iat": make.NOW + 60,
    "nbf": make.NOW + 60,
    "jti": "AAECAwQFBgcICQoLDA0OEA",
    "caller": {"provider": "github", "issuer": "https://a.example", "repository_owner_id": "2"},
}
FIRST = judge(make.file_for(SAID, caller={**OTHERS["caller"], "repository_owner_id": "1"}))


def again(
    details: dict[str, Any] | None = None,
    *,
    terms: dict[str, Any] | None = None,
    by: Trust | None = None,
    **claims: Any,
) -> Report:
    """Return the report of a second party's result, which names the first one's."""
    run = {"run": {"reproduces": FIRST.content_digest}, **(details or {})}
    said = make.submission(run, **{"framework": {"name": "lm-eval", "version": "0.4.9"}, **claims})
    return judge(make.file_for(said, **{**OTHERS, **(terms or {})}), by, at=make.NOW + 60)


def first_beside(second: Report, tolerance: Tolerance | None = None) -> tuple[str, str]:
    found = with_reproductions([FIRST, second], tolerance or Tolerance())[0]
    return found.tier, found.tier_reason


def test_a_result_that_another_party_had_signed_again_is_reproduced() -> None:
    tier, reason = first_beside(again())
    assert (tier, reason[:22]) == ("reproduced", "reproduced by lm-eval,")
    assert [found.tier for found in with_reproductions([again(), FIRST])] == ["verified", "reproduced"], (
        "in either order"
    )


def test_a_reproduction_by_the_numbers_counts_within_the_reader_s_tolerance_alone() -> None:
    near = again(metrics=[{"metric_id": "accuracy", "value": 21.4}])
    assert first_beside(near)[0] == "verified"
    assert "they differ at /metrics/0/value: accuracy 20.9 and accuracy 21.4" in first_beside(near)[1]
    assert first_beside(near, Tolerance({"accuracy": 0.5}))[0] == "reproduced"
    assert first_beside(near, Tolerance({"accuracy": 0.4}))[0] == "verified"
    assert first_beside(near, Tolerance({"f1": 9.0}))[0] == "verified"


OWNER = OTHERS["caller"]


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (again(model_revision="0" * 40), "they differ at /model_revision"),
        (again(benchmark_revision="0" * 40), "they differ at /benchmark_revision"),
        (again(task_id="other"), "they differ at /task_id"),
        (again(metrics=[{"metric_id": "accuracy", "value": 20.9, "slice": "easy"}]), "they differ at /metrics/0:"),
        (
            again(metrics=[{"metric_id": "accuracy", "value": 20.9}, {"metric_id": "f1", "value": 1}]),
            "they differ at /metrics: - and f1 1",
        ),
        (again({"benchmark_subset": "easy"}), "they differ at benchmark_subset: - and easy"),
        (again({"normalization": {"lowercase": True}}), "they differ at normalization"),
        (
            again({"run": {"reproduces": FIRST.content_digest, "selection": {"accuracy": "strict"}}}),
            "they differ at run.selection",
        ),
        (again(terms={"iat": make.NOW, "nbf": make.NOW}), "it was not signed later than the result that it names"),
        (again(terms={"sub": "inspect-ai"}), "both were signed for inspect-ai"),
        (again(terms={"caller": {**OWNER, "repository_owner_id": "1"}}), "workloads of one owner"),
        (again(terms={"caller": {"issuer": "https://a.example", "namespace_id": "2"}}), "their owners are unknown"),
    ],
)  # fmt: skip
def test_what_is_no_second_party_s_same_run_raises_nothing_and_says_why(second: Report, reason: str) -> None:
    tier, said = first_beside(second)
    assert tier == "verified"
    assert "a reproduction does not count" in said
    assert reason in said


@pytest.mark.parametrize(
    ("run", "said"),
    [({}, ""), ({"split": "test", "epochs": 4}, ""), ({"completeness": "partial"}, "is not compared: - and partial")],
)
def test_split_epochs_and_completeness_are_not_compared_and_completeness_is_said(run: Any, said: str) -> None:
    tier, reason = first_beside(again({"run": {"reproduces": FIRST.content_digest, **run}}))
    assert (tier, said in reason, "not compared" in reason) == ("reproduced", True, bool(said))


def test_settings_of_the_same_numbers_are_the_same_however_they_are_spelled() -> None:
    whole, spelled = (replace(FIRST.said, normalization={"scale": scale}) for scale in (100, 100.0))
    assert not list(setting_differences(whole, spelled))


def test_a_copy_of_a_reproduction_is_no_other_one_and_what_it_says_is_cut() -> None:
    near = again({"benchmark_subset": "x" * 5000})
    found = with_reproductions([FIRST, near, replace(near, pointer="/2"), FIRST])
    assert found[0].tier_reason == found[3].tier_reason
    assert "a reproduction does not count: they differ at benchmark_subset: - and xxx" in found[0].tier_reason
    assert len(found[0].tier_reason) < 400


@pytest.mark.parametrize("named", ["", "sha256:" + "0" * 64, 5, None, ["x"]])
def test_who_names_no_result_or_another_one_raises_nothing(named: Any) -> None:
    assert first_beside(again({"run": {"reproduces": named}} if named is not None else {"run": {}}))[0] == "verified"


def test_only_what_is_verified_itself_reproduces_and_is_reproduced() -> None:
    assert first_beside(again(by=make.trust(keys=None)))[0] == "verified"
    bare = ranked(replace(FIRST, verdict="undecided", checks=replace_check(FIRST, 5, Status.UNKNOWN)))
    assert with_reproductions([bare, again()])[0].tier == "signed"


def replace_check(report: Report, number: int, status: Status) -> tuple[Check, ...]:
    return tuple(replace(made, status=status) if made.number == number else made for made in report.checks)


def test_another_owner_s_id_of_the_same_digits_at_another_provider_is_another_owner() -> None:
    elsewhere = {"provider": "gitlab", "issuer": "https://b.example", "namespace_id": "1"}
    assert first_beside(again(terms={"caller": elsewhere}))[0] == "reproduced"


def test_what_the_file_says_of_a_reproduction_is_in_the_report() -> None:
    second = again({"benchmark_subset": "easy", "normalization": {"lowercase": True}})
    assert isinstance(second.said, Said)
    assert (second.said.reproduces, second.said.benchmark_subset) == (FIRST.content_digest, "easy")
    assert second.said.normalization == {"lowercase": True}


def test_a_file_s_reports_are_in_their_tiers_and_the_reader_s_trust_says_how_near_is_near() -> None:
    near = make.submission(
        {"run": {"reproduces": FIRST.content_digest}},
        framework={"name": "lm-eval", "version": "0.4.9"},
        metrics=[{"metric_id": "accuracy", "value": 21.4}],
    )
    text = make.file_for(SAID, caller={**OWNER, "repository_owner_id": "1"}) + make.file_for(near, **OTHERS)
    for tolerance, first in ((Tolerance(), "verified"), (Tolerance({"accuracy": 0.5}), "reproduced")):
        trust = replace(make.trust(), tolerance=tolerance)
        entries = read_entries(text.encode(), make.PATH)
        reports = verify_entries(entries, make.REPO, make.PATH, trust, make.NOW + 60, Context(make.NOW + 60))
        assert [report.tier for report in reports] == [first, "verified"]
