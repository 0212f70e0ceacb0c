"""When a token and an entry agree: each numbered check fails for its own reason, and only InputError escapes.

tests/vectors/contract/verify.json has most of the single faults; here are their evidence and the rest.
"""

from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from issuer.errors import InputError
from issuer.formats import jcs, jose
from issuer.results.entry import read_entries, write_entry
from issuer.token.verify_token import Attempt
from issuer.verify import due
from issuer.verify.report import ALWAYS_DUE, NAMES, Check, Report, Status, verdict_of
from tests.support import make
from tests.support.reports import SOON, judge, judge_all, numbers
from tests.support.shared import examples

PASS, FAIL, _, SKIP = Status
ITEM = make.submission({"date": "2026-11-21", "notes": "no tools", "run": {"seed": 1}})
FILE = make.file_for(ITEM)
TOKEN = make.token_for(ITEM)
BARE = FILE[: FILE.index("  verify_token")]
HEX = "0" * 40


def failed(text: str, *args: Any, **known: Any) -> list[int]:
    return list(judge(text, *args, **known).failed)


def with_token(token: str) -> str:
    return write_entry(ITEM.form, token)


def with_header(**members: Any) -> str:
    return make.file_for(ITEM, header=make.without_dots({**make.HEADER, **members}))


def replaced(old: str, new: str) -> str:
    assert old in FILE
    return FILE.replace(old, new, 1)


# -- good, and without a token -----------------------------------------------------------------------------------------


def test_a_token_and_its_entry_agree_in_any_spelling_of_the_entry() -> None:
    report = judge(FILE)
    assert {check.number: check.name for check in report.checks} == NAMES
    assert report.verdict == "verified"
    assert numbers(report, PASS) == list(range(1, 10))
    assert numbers(report, SKIP) == [10, 11]
    assert (report.jti, report.at, report.reason, report.pointer) == (make.JTI, SOON, "", "/0")
    spelled = (
        replaced("value: 20.9\n", "value: 20.90\n"),
        replaced('"2026-11-21"', "2026-11-21"),
        replaced("  run:\n    seed: 1\n", "  run: {seed: 1.0, other: null}  # a comment\n"),
        FILE + "  value: null\n",
    )
    assert [judge(text).verdict for text in spelled] == ["verified"] * 4


def test_an_entry_without_a_token_or_metrics_is_unverified_with_the_reason() -> None:
    report = judge(f"{BARE}  verified: true\n  verdict: verified\n")
    assert (report.verdict, report.reason, report.jti) == ("unverified", "no token", "")
    assert numbers(report, SKIP) == list(NAMES)
    form = {name: value for name, value in ITEM.form.items() if name != "metrics"}
    for text in (write_entry(form, TOKEN), write_entry({**form, "value": 20.9}, "junk")):
        report = judge(text)
        assert (report.verdict, report.reason[:7]) == ("unverified", "profile")


# -- (1) well-formed token --------------------------------------------------------------------------------------------


def test_1_another_header_payload_or_form_is_no_verify_token() -> None:
    headers: list[dict[str, Any]] = [
        {"typ": "eval-verify+JWT"}, {"typ": "application/eval-verify+jwt"}, {"crit": ["exp"]}, {"b64": False},
        {"jwk": jose.public_jwk(make.KEY.public_key())}, {"typ": ...}, {"alg": ...}, {"kid": None}, {"kid": [make.KID]},
        {"alg": ["EdDSA"]}, {"typ": 1}, dict.fromkeys(make.HEADER, ...),
    ]  # fmt: skip
    payloads: list[dict[str, Any]] = [
        {"exp": True}, {"jti": ""}, {"sub": ...}, {"caller": None}, {"metrics": []}, {"claims_digest": "x"}, {"log": 5},
        {"attempt": {"number": 3, "since": make.NOW + 61}},
    ]  # fmt: skip
    tokens = ("", "x", TOKEN[:-1], f"{TOKEN}.", TOKEN.replace(".", ".."), TOKEN[:-1] + "é")
    files = [with_header(**header) for header in headers]
    files += [make.file_for(ITEM, **payload) for payload in payloads]
    files += map(with_token, tokens)
    reports = [judge(text) for text in files]
    assert [text for text, report in zip(files, reports, strict=True) if numbers(report, FAIL) != [1]] == []
    assert {tuple(numbers(report, SKIP)) for report in reports} == {tuple(range(2, 12))}
    assert {report.attempt for report in reports} == {None}


# -- (2) key, (3) signature -------------------------------------------------------------------------------------------


def test_2_another_algorithm_kid_issuer_or_kind_of_key_fails() -> None:
    issuers = (make.ISSUER.upper(), "", f"{make.ISSUER}\u200b")
    headers = [{"alg": alg} for alg in ("ES256", "RS256", "Ed448", "")]
    headers += [{"kid": kid} for kid in ("", make.KID + "A", "../key", "k" * 300)]
    for text in (*(with_header(**header) for header in headers), *(make.file_for(ITEM, iss=iss) for iss in issuers)):
        report = judge(text)
        assert (report.failed, numbers(report, SKIP)) == ((2,), [*range(3, 12)]), text
    assert judge(make.file_for(ITEM, iss="https://x")).checks[1].token == "https://x"
    # A key of another kind under the kid.
    point = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    x, y = (jose.base64url_encode(part.to_bytes(32, "big")) for part in (point.x, point.y))
    keys = jose.parse_key_set(jcs.canonical({"keys": [{"kty": "EC", "crv": "P-256", "kid": make.KID, "x": x, "y": y}]}))
    assert make.KID in keys.keys
    assert failed(FILE, make.trust(keys=keys)) == [2]


def test_3_a_signature_of_other_bytes_fails_and_says_what_rests_on_it() -> None:
    head, payload, signature = TOKEN.split(".")
    other = make.token_for(ITEM, aud="other").split(".")[1]
    with_attempt = jcs.canonical(make.payload_of(ITEM, attempt={"number": 1, "since": make.NOW}))
    by_stranger = make.signed(make.HEADER, with_attempt, make.STRANGER)
    swapped_head = jose.base64url_encode(jcs.canonical({**make.HEADER, "alg": "Ed25519"}))
    for token in (by_stranger, f"{head}.{other}.{signature}", f"{swapped_head}.{payload}.{signature}",
                  f"{head}.{payload}.AA"):  # fmt: skip
        report = judge(with_token(token))
        assert (report.failed, numbers(report, SKIP)) == ((3,), list(range(4, 12)))
        assert all(check.evidence.startswith("rests on check 3") for check in report.checks[3:9])
        assert (report.jti, report.attempt) == ("", None)


# -- (4) issuer and audience ------------------------------------------------------------------------------------------


def test_4_a_token_for_another_relying_party_fails() -> None:
    for audience in (make.AUDIENCE.upper(), "https://hub", "", "https://other.example"):
        report = judge(make.file_for(ITEM, aud=audience))
        assert report.failed == (4,)
        assert (report.checks[3].token, report.checks[3].file) == (audience, make.AUDIENCE)


def counted(number: int, **trust: Any) -> Report:
    """Judge a file whose token says which attempt it is."""
    text = make.file_for(ITEM, attempt={"number": number, "since": make.NOW - 9})
    return judge(text, make.trust(**trust))


REQUIRED = frozenset({"attempt"})


def test_4_an_attempt_passes_up_to_the_highest_that_is_trusted() -> None:
    for most in (1, 2, 63, 64):
        for number in {1, most, min(most + 1, 64), 64}:
            report = counted(number, max_attempt=most)
            named = f"attempt {number} or more" if number == 64 else f"attempt {number}"
            if number <= most:
                assert report.verdict == "verified"
                assert report.checks[3].evidence.endswith(f"; {named}, of at most {most}")
            else:
                assert report.failed == (4,)
                assert (report.checks[3].token, report.checks[3].file) == (named, f"at most {most}")


def test_4_attempts_are_judged_only_where_the_trust_asks_for_them() -> None:
    issuer = f"{make.ISSUER}, for {make.AUDIENCE}"
    ignored, uncounted = counted(64), judge(FILE, make.trust(max_attempt=1))
    assert (ignored.verdict, ignored.attempt) == ("verified", Attempt(64, make.NOW - 9))
    assert (uncounted.verdict, uncounted.attempt) == ("verified", None)
    assert ignored.checks[3].evidence == issuer
    assert uncounted.checks[3].evidence == f"{issuer}; attempts were not counted"
    for trust in (make.trust(require=REQUIRED), make.trust(require=REQUIRED, max_attempt=64)):
        assert failed(FILE, trust) == [4]
    report = counted(3, require=REQUIRED)
    assert report.checks[3].evidence.endswith("; attempt 3")
    assert numbers(report, SKIP) == [10, 11]
    assert due(make.trust(require=REQUIRED)) == ALWAYS_DUE


# -- (5) fresh, (6) place ---------------------------------------------------------------------------------------------


def test_5_not_before_and_the_longest_life_count_to_the_second() -> None:
    early = make.file_for(ITEM, nbf=make.NOW + 600)
    assert failed(early, at=make.NOW + 539) == [5]
    assert judge(early, at=make.NOW + 540).verdict == "verified"
    assert judge(FILE, make.trust(life_s=3600)).verdict == "verified"
    assert (failed(FILE, at=0), failed(FILE, at=2**40)) == ([5], [5])


def test_6_a_copy_in_another_place_fails() -> None:
    report = judge(FILE, repo="acme/open-model/")
    assert report.failed == (6,)
    assert (report.checks[5].token, report.checks[5].file) == (make.REPO, "acme/open-model/")
    paths = (
        "", "/", "\0", "x/.eval_results/gsm8k.yaml", "/.eval_results/gsm8k.yaml", "./.eval_results/gsm8k.yaml",
        ".eval_results/x/gsm8k.yaml", ".eval_results//gsm8k.yaml", ".EVAL_RESULTS/gsm8k.yaml", ".eval_results\\gsm8k.yaml",
    )  # fmt: skip
    assert [path for path in paths if failed(FILE, path=path) != [6]] == []


# -- (7) bound fields, (8) metrics ------------------------------------------------------------------------------------


def test_7_a_bound_field_that_is_absent_or_differs_is_named() -> None:
    revision = '  model_revision: "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"\n'
    for name, old, new in (
        ("dataset.task_id", '    task_id: "gsm8k"\n', ""),
        ("dataset.revision", "5503434ddd753f426f4b38109466949a1217c2bb", HEX),
        ("dataset.revision", '    revision: "5503434ddd753f426f4b38109466949a1217c2bb"\n', ""),
        ("model_revision", revision, "  model_revision: null\n"),
        ("framework.name", '    name: "inspect-ai"\n', ""),
        ("framework.version", '"0.3.285"', '"0.3.286"'),
        ("framework.command", '"inspect eval gsm8k"', '"inspect eval gsm8k "'),
        ("framework.command", '"inspect eval gsm8k"', '""'),
    ):
        report = judge(replaced(old, new))
        assert (report.failed, report.checks[6].evidence) == ((7, 9), f"{name} differs"), new
    version = '    version: "0.3.285"\n'  # only the file has a command
    bare = make.file_for(make.submission(framework={"name": "inspect-ai", "version": "0.3.285"}))
    assert judge(bare).verdict == "verified"
    assert failed(bare.replace(version, f'{version}    command: "x"\n')) == [7, 9]
    assert failed(replaced(version, f'{version}    url: "x"\n')) == [9], "a member that no token binds"


def test_8_other_metrics_fail_and_the_difference_is_named() -> None:
    for new, evidence in (
        ("value: 20.900000000000002", "accuracy differs"),
        ("value: 20.9\n      slice: easy", "does not bind"),
        ("value: 20.9\n    - metric_id: other\n      value: 1", "does not bind"),
        ("value: 20.9\n    - metric_id: accuracy\n      value: 20.9", "twice"),
        ("value: 20.9\n    - metric_id: accuracy\n      value: 99", "differs"),
    ):
        report = judge(replaced("value: 20.9", new))
        assert report.failed == (8, 9), new
        assert evidence in report.checks[7].evidence
    two = make.file_for(make.submission(metrics=[{"metric_id": "a", "value": 1}, {"metric_id": "b", "value": 2}]))
    report = judge(two.replace('    - metric_id: "b"\n      value: 2\n', ""))
    assert (report.failed, report.checks[7].token) == ((8, 9), "b")


# -- (9) digests ------------------------------------------------------------------------------------------------------


def test_9_a_member_that_was_not_signed_or_a_digest_that_is_wrong_fails() -> None:
    """Which details change a digest: tests/results/test_entry.py."""
    for member in ("sample_size: 100", "value_type: percentage", "unit: percent", 'slice: ""'):
        assert 9 in failed(replaced("value: 20.9", f"value: 20.9\n      {member}")), member
    for name, text in (
        ("content_digest", replaced("seed: 1", "seed: true")),
        *((name, make.file_for(ITEM, **{name: "sha256:" + "0" * 64})) for name in ("claims_digest", "content_digest")),
    ):
        report = judge(text)
        assert (report.failed, name in report.checks[8].evidence) == ((9,), True), text


# -- the verdict, and anything ----------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(list(Status)), min_size=9, max_size=9), st.sampled_from(list(Status)))
def test_a_fail_outweighs_an_unknown_and_verified_needs_every_due_check(statuses: list[Status], beyond: Status) -> None:
    checks = [Check(number, "", status, "", "", "") for number, status in enumerate([*statuses, beyond], start=1)]
    expected = "failed" if FAIL in statuses else "verified" if set(statuses) == {PASS} else "undecided"
    assert verdict_of(checks) == expected


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | PLAIN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(PLAIN, inner, max_size=2),
    max_leaves=4,
)


@examples(150)
@given(
    st.dictionaries(st.sampled_from([*ITEM.form, "value", "verify_token", "verifyToken", "x"]), JUNK),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_any_entry_in_any_place_is_a_report_or_an_input_error(change: dict[str, Any], repo: str, path: str) -> None:
    form = {**ITEM.form, "verify_token": TOKEN, **change}
    text = write_entry({name: value for name, value in form.items() if name != "verify_token"}, form["verify_token"])
    try:
        read_entries(text.encode(), path)
    except InputError:
        return
    for report in judge_all(text, repo=repo, path=path):
        assert report.verdict in {"failed", "unverified"}


@examples(150)
@given(
    st.dictionaries(st.sampled_from([*make.payload_of(ITEM), "x"]), JUNK, min_size=1),
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "x"]), JUNK),
)
def test_any_signed_payload_under_any_header_is_a_report(payload: dict[str, Any], header: dict[str, Any]) -> None:
    token = make.signed({**make.HEADER, **header}, jcs.canonical({**make.payload_of(ITEM), **payload}))
    assert judge(with_token(token)).verdict in {"failed", "verified"}
