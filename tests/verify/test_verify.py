"""When a token and an entry agree: every numbered check fails for its own reason, and nothing else escapes."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from issuer.errors import InputError
from issuer.formats import jcs, jose
from issuer.results.entry import read_entries, write_entry
from issuer.token.verify_token import Attempt
from issuer.verify import Context, due, verify_entries
from issuer.verify.check_token import NOT_BEFORE_LEEWAY_S
from issuer.verify.report import ALWAYS_DUE, NAMES, Check, Report, Status, verdict_of
from issuer.verify.trust import Trust
from tests.support import make
from tests.support.shared import examples

PASS, FAIL, UNKNOWN, SKIP = Status
SAID = make.submission({"date": "2026-11-21", "notes": "no tools", "run": {"seed": 1}})
FILE = make.file_for(SAID)
HEX = "0" * 40
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


def judge(
    text: str = FILE,
    *,
    repo: str = make.REPO,
    path: str = make.PATH,
    trust: Trust | None = None,
    at: int = make.NOW + 5,
) -> Report:
    (report,) = judge_all(text, repo=repo, path=path, trust=trust, at=at)
    return report


def judge_all(
    text: str, *, repo: str = make.REPO, path: str = make.PATH, trust: Trust | None = None, at: int = make.NOW + 5
) -> tuple[Report, ...]:
    entries = read_entries(text.encode(), path)
    reports = verify_entries(entries, repo, path, make.trust() if trust is None else trust, at, Context(at))
    assert all([check.number for check in report.checks] == list(NAMES) for report in reports)
    assert all([check.name for check in report.checks] == list(NAMES.values()) for report in reports)
    return reports


def with_status(report: Report, status: Status) -> list[int]:
    return [check.number for check in report.checks if check.status is status]


def failed(report: Report) -> list[int]:
    assert report.verdict == "failed"
    return with_status(report, FAIL)


def check(report: Report, number: int) -> Check:
    return report.checks[number - 1]


def with_token(token: str) -> str:
    return write_entry(SAID.form, token)


# -- yes --------------------------------------------------------------------------------------------------------------


def test_a_token_and_its_entry_agree_and_another_library_verifies_the_token() -> None:
    report = judge()
    assert report.verdict == "verified"
    assert with_status(report, PASS) == list(range(1, 10))
    assert with_status(report, SKIP) == [10, 11]
    assert (report.jti, report.at, report.reason, report.pointer) == (make.JTI, make.NOW + 5, "", "/0")
    payload = make.payload_by_joserfc(make.token_for(SAID))
    assert payload == jcs.canonical(make.payload_of(SAID))


def test_what_the_issuer_composes_is_verified_also_in_a_batch() -> None:
    items = (SAID, make.submission({"notes": "other"}))
    text = "".join(
        write_entry(item.form, token) for item, token in zip(items, make.issued(items, batch=True), strict=True)
    )
    assert [report.verdict for report in judge_all(text)] == ["verified", "verified"]


def test_the_other_name_of_the_algorithm_is_accepted_on_an_ed25519_key() -> None:
    assert judge(make.file_for(SAID, header={**make.HEADER, "alg": "Ed25519"})).verdict == "verified"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value: 20.9\n", "value: 20.90\n"),
        ("value: 20.9\n", "value: 2.09e+1\n"),
        ('"no tools"', "no tools"),
        ('"2026-11-21"', "2026-11-21"),
        ("verify_token", "verifyToken"),
        ('  notes: "no tools"\n', '  notes: "no tools"\n  artifacts: null\n'),
        ("  run:\n    seed: 1\n", "  run: {seed: 1.0, other: null}  # a comment\n"),
    ],
)
def test_another_spelling_of_the_same_entry_is_verified(old: str, new: str) -> None:
    assert old in FILE
    assert judge(FILE.replace(old, new)).verdict == "verified"


def test_metrics_may_stand_in_any_order() -> None:
    items: list[Any] = [{"metric_id": "a", "value": 1, "slice": "s"}, {"metric_id": "a", "value": 2}]
    said = make.submission(metrics=items)
    form = {**said.form, "metrics": items}
    assert judge(write_entry(form, make.token_for(said))).verdict == "verified"


# -- no token, no metrics ---------------------------------------------------------------------------------------------


def test_an_entry_without_a_token_is_unverified_and_never_a_pass() -> None:
    report = judge(FILE[: FILE.index("  verify_token")])
    assert (report.verdict, report.reason, report.jti) == ("unverified", "no token", "")
    assert with_status(report, SKIP) == list(NAMES)


def test_an_entry_without_metrics_is_unverified_for_its_profile_whatever_its_token() -> None:
    form = {name: value for name, value in SAID.form.items() if name != "metrics"}
    for text in (write_entry(form, make.token_for(SAID)), write_entry({**form, "value": 20.9}, "junk")):
        report = judge(text)
        assert report.verdict == "unverified"
        assert report.reason.startswith("profile")


def test_no_member_of_the_file_makes_it_verified() -> None:
    report = judge(FILE[: FILE.index("  verify_token")] + "  verified: true\n  verdict: verified\n")
    assert report.verdict == "unverified"


# -- (1) well-formed token --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        {**make.HEADER, "typ": "JWT"}, {**make.HEADER, "typ": "eval-verify+JWT"}, {**make.HEADER, "typ": "application/eval-verify+jwt"},
        {**make.HEADER, "typ": "eval-receipt+jwt"}, {**make.HEADER, "cty": "x"}, {**make.HEADER, "crit": ["exp"]},
        {**make.HEADER, "b64": False}, {**make.HEADER, "jwk": jose.public_jwk(make.KEY.public_key())},
        {**make.HEADER, "jku": "https://evil.example"}, {**make.HEADER, "x5c": []}, {"alg": "EdDSA", "kid": make.KID},
        {"alg": "EdDSA", "typ": "eval-verify+jwt"}, {"kid": make.KID, "typ": "eval-verify+jwt"}, {**make.HEADER, "kid": None},
        {**make.HEADER, "alg": ["EdDSA"]}, {**make.HEADER, "kid": [make.KID]}, {**make.HEADER, "typ": 1}, {},
    ],
    ids=str,
)  # fmt: skip
def test_1_another_header_is_no_verify_token(header: Any) -> None:
    report = judge(make.file_for(SAID, header=header))
    assert failed(report) == [1]
    assert with_status(report, SKIP) == list(range(2, 12))


@pytest.mark.parametrize(
    "members",
    [
        {"ver": 2}, {"ver": ...}, {"exp": ...}, {"exp": "1795003600"}, {"exp": True}, {"jti": ""}, {"extra": 1}, {"sub": ...},
        {"caller": None}, {"metrics": []}, {"model_revision": "main"}, {"claims_digest": "x"}, {"aud": [make.AUDIENCE]},
        {"iat": make.NOW + 1}, {"log": 5},
    ],
    ids=str,
)  # fmt: skip
def test_1_another_payload_is_no_verify_token(members: dict[str, Any]) -> None:
    assert failed(judge(make.file_for(SAID, **members))) == [1]


def test_1_what_is_no_canonical_compact_jws_fails() -> None:
    good = make.token_for(SAID)
    head, payload, signature = good.split(".")
    duplicate = jose.base64url_encode(b'{"alg":"EdDSA","alg":"EdDSA"' + jcs.canonical(make.HEADER)[15:])
    for bad in ("", "x", good + "=", good + " ", good[:-1], f" {good}", f"{good}.", f"{head}.{payload}", f"{head}..{signature}",
                good.replace(".", ".."), f"{duplicate}.{payload}.{signature}", good + "A" * 20_000, good[:-1] + "é", "eyJ\0"[:3]):  # fmt: skip
        assert failed(judge(with_token(bad))) == [1], bad


# -- (2) key, (3) signature -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", ["none", "HS256", "ES256", "RS256", "eddsa", "Ed448", ""])
def test_2_any_other_algorithm_fails(alg: str) -> None:
    report = judge(make.file_for(SAID, header={**make.HEADER, "alg": alg}))
    assert failed(report) == [2]
    assert with_status(report, SKIP) == [*range(3, 12)]


@pytest.mark.parametrize(
    "iss", [make.ISSUER + "/", make.ISSUER.upper(), "https://evil.example", "", make.ISSUER + "\u200b"]
)
def test_2_an_issuer_is_compared_byte_for_byte(iss: str) -> None:
    report = judge(make.file_for(SAID, iss=iss))
    assert failed(report) == [2]
    assert check(report, 2).token == iss


@pytest.mark.parametrize("kid", ["", "unknown", make.KID + "A", "../key", "k" * 300])
def test_2_a_kid_that_the_issuer_does_not_publish_fails(kid: str) -> None:
    assert failed(judge(make.file_for(SAID, header={**make.HEADER, "kid": kid}))) == [2]


def test_2_a_key_of_another_kind_under_the_kid_fails() -> None:
    point = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    x, y = (jose.base64url_encode(part.to_bytes(32, "big")) for part in (point.x, point.y))
    jwk = {"kty": "EC", "crv": "P-256", "kid": make.KID, "x": x, "y": y}
    keys = jose.parse_key_set(jcs.canonical({"keys": [jwk]}))
    assert make.KID in keys.keys
    assert failed(judge(trust=make.trust(keys=keys))) == [2]


def test_2_a_key_of_small_order_never_verifies_anything() -> None:
    identity = "01" + "00" * 31
    jwk: dict[str, Any] = {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": make.KID,
        "x": jose.base64url_encode(bytes.fromhex(identity)),
    }
    keys = jose.parse_key_set(jcs.canonical({"keys": [jwk]}))
    token = jose.compact(
        jose.signing_input(make.HEADER, jcs.canonical(make.payload_of(SAID))), bytes.fromhex(identity) + bytes(32)
    )
    assert failed(judge(with_token(token), trust=make.trust(keys=keys))) == [2]


def test_2_and_3_are_unknown_and_the_rest_skipped_where_the_keys_are_not_to_be_had() -> None:
    report = judge(trust=make.trust(keys=None))
    assert report.verdict == "undecided"
    assert with_status(report, PASS) == [1]
    assert with_status(report, UNKNOWN) == [2, 3]
    assert with_status(report, SKIP) == list(range(4, 12))
    assert report.jti == ""


def test_a_failure_outweighs_what_is_unknown() -> None:
    report = judge(trust=make.trust(keys=None), path=".eval_results/other.yaml")
    assert (report.verdict, failed(report)) == ("failed", [6])


def test_3_a_signature_by_another_key_or_over_other_bytes_fails_and_everything_that_rests_on_it_is_skipped() -> None:
    head, payload, signature = make.token_for(SAID).split(".")
    other = make.token_for(SAID, aud="other").split(".")[1]
    by_stranger = make.signed(make.HEADER, jcs.canonical(make.payload_of(SAID)), STRANGER)
    swapped_head = jose.base64url_encode(jcs.canonical({**make.HEADER, "alg": "Ed25519"}))
    zeros = jose.base64url_encode(bytes(64))
    for token in (by_stranger, f"{head}.{other}.{signature}", f"{swapped_head}.{payload}.{signature}", f"{head}.{payload}.{zeros}",
                  f"{head}.{payload}.AA"):  # fmt: skip
        report = judge(with_token(token))
        assert failed(report) == [3]
        assert with_status(report, SKIP) == list(range(4, 12))
        assert all(check(report, number).evidence.startswith("rests on check 3") for number in range(4, 10))
        assert report.jti == ""


# -- (4) issuer and audience ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "audience", [make.AUDIENCE + "/", make.AUDIENCE.upper(), "https://hub", "", "https://other.example"]
)
def test_4_a_token_for_another_relying_party_fails(audience: str) -> None:
    report = judge(make.file_for(SAID, aud=audience))
    assert failed(report) == [4]
    assert (check(report, 4).token, check(report, 4).file) == (audience, make.AUDIENCE)


def test_4_an_issuer_speaks_only_for_the_frameworks_that_it_is_trusted_for() -> None:
    assert failed(judge(trust=make.trust(frameworks=frozenset({"lm-eval", "inspect"})))) == [4]
    assert judge(trust=make.trust(frameworks=frozenset({"inspect-ai"}))).verdict == "verified"


def third(number: int = 3, **trust: Any) -> Report:
    """Judge a file whose token says which attempt it is, by a trust that asks for it."""
    return judge(make.file_for(SAID, attempt={"number": number, "since": make.NOW - 9}), trust=make.trust(**trust))


REQUIRED = frozenset({"attempt"})


@pytest.mark.parametrize("most", [1, 2, 3, 63, 64])
def test_4_an_attempt_is_trusted_up_to_the_highest_that_is(most: int) -> None:
    for number in {1, most, min(most + 1, 64), 64}:
        report = third(number, max_attempt=most)
        said = f"attempt {number} or more" if number == 64 else f"attempt {number}"
        if number <= most:
            assert report.verdict == "verified"
            assert check(report, 4).evidence.endswith(f"; {said}, of at most {most}")
        else:
            assert failed(report) == [4]
            assert (check(report, 4).token, check(report, 4).file) == (said, f"at most {most}")


def test_4_a_token_that_does_not_say_its_attempt_passes_and_is_told_apart_unless_it_must() -> None:
    plain = judge()
    assert check(plain, 4).evidence == f"{make.ISSUER}, for {make.AUDIENCE}"
    asked = judge(trust=make.trust(max_attempt=1))
    assert (asked.verdict, asked.attempt) == ("verified", None)
    assert check(asked, 4).evidence == f"{make.ISSUER}, for {make.AUDIENCE}; attempts were not counted"
    for trust in (make.trust(require=REQUIRED), make.trust(require=REQUIRED, max_attempt=64)):
        assert failed(judge(trust=trust)) == [4]
    assert third(64, require=REQUIRED).verdict == "verified"
    assert check(third(require=REQUIRED), 4).evidence.endswith("; attempt 3")


def test_4_an_attempt_that_nobody_asks_for_is_said_and_not_judged() -> None:
    report = third(64)
    assert (report.verdict, report.attempt) == ("verified", Attempt(64, make.NOW - 9))
    assert check(report, 4).evidence == f"{make.ISSUER}, for {make.AUDIENCE}"


def test_4_to_require_an_attempt_makes_no_other_check_due() -> None:
    report = third(require=REQUIRED)
    assert with_status(report, SKIP) == [10, 11]
    assert due(make.trust(require=REQUIRED)) == ALWAYS_DUE


def test_1_an_attempt_that_no_issuer_counts_makes_no_token_and_is_not_said() -> None:
    report = judge(make.file_for(SAID, attempt={"number": 3, "since": make.NOW + 61}), trust=make.trust(max_attempt=64))
    assert failed(report) == [1]
    assert check(report, 1).evidence == "later than the token's issue at /attempt/since"
    assert report.attempt is None


def test_an_attempt_is_said_by_a_good_signature_alone() -> None:
    text = write_entry(SAID.form, make.signed(make.HEADER, jcs.canonical(make.payload_of(SAID, attempt={
        "number": 1, "since": make.NOW})), STRANGER))  # fmt: skip
    report = judge(text)
    assert failed(report) == [3]
    assert report.attempt is None


# -- (5) fresh --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "good"),
    [
        (make.NOW - NOT_BEFORE_LEEWAY_S - 1, False), (make.NOW - NOT_BEFORE_LEEWAY_S, True), (make.NOW, True),
        (make.NOW + 3600, True), (make.NOW + 3601, False), (0, False), (2**40, False),
    ],
)  # fmt: skip
def test_5_a_token_is_good_from_a_minute_before_nbf_to_exp(at: int, good: bool) -> None:
    report = judge(at=at)
    if good:
        assert report.verdict == "verified"
    else:
        assert failed(report) == [5]


def test_5_not_before_counts_and_not_only_the_issue() -> None:
    text = make.file_for(SAID, nbf=make.NOW + 600)
    assert failed(judge(text, at=make.NOW + 539)) == [5]
    assert judge(text, at=make.NOW + 540).verdict == "verified"


def test_5_a_token_that_lives_longer_than_is_trusted_fails() -> None:
    assert judge(trust=make.trust(life_s=3600)).verdict == "verified"
    assert failed(judge(trust=make.trust(life_s=3599))) == [5]


# -- (6) place --------------------------------------------------------------------------------------------------------


def test_6_a_copy_in_another_repository_fails() -> None:
    for repo in ("acme/other", "Acme/open-model", "acme/open-model/", ""):
        report = judge(repo=repo)
        assert failed(report) == [6, 9]
        assert (check(report, 6).token, check(report, 6).file) == (make.REPO, repo)


@pytest.mark.parametrize(
    "path",
    [
        ".eval_results/hle.yaml", ".eval_results/GSM8K.yaml", ".eval_results/gsm8k.yml", "", "/", "\0",
        "gsm8k.yaml", "docs/gsm8k.yaml", "x/.eval_results/gsm8k.yaml", "/.eval_results/gsm8k.yaml", "./.eval_results/gsm8k.yaml",
        ".eval_results/x/gsm8k.yaml", ".eval_results//gsm8k.yaml", ".EVAL_RESULTS/gsm8k.yaml", ".eval_results\\gsm8k.yaml",
    ],
)  # fmt: skip
def test_6_a_file_in_another_place_or_of_another_benchmarks_name_fails(path: str) -> None:
    assert failed(judge(path=path)) == [6]


# -- (7) bound fields -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("dataset.task_id", '    task_id: "gsm8k"\n', '    task_id: "gsm8k_hard"\n'),
        ("dataset.task_id", '    task_id: "gsm8k"\n', ""),
        ("dataset.revision", "5503434ddd753f426f4b38109466949a1217c2bb", HEX),
        ("dataset.revision", '    revision: "5503434ddd753f426f4b38109466949a1217c2bb"\n', ""),
        ("model_revision", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321", HEX),
        (
            "model_revision",
            '  model_revision: "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"\n',
            "  model_revision: null\n",
        ),
        ("framework.name", '    name: "inspect-ai"\n', '    name: "Inspect-AI"\n'),
        ("framework.name", '    name: "inspect-ai"\n', ""),
        ("framework.version", '"0.3.285"', '"0.3.286"'),
        ("framework.command", '    command: "inspect eval gsm8k"\n', ""),
        ("framework.command", '"inspect eval gsm8k"', '"inspect eval gsm8k "'),
        ("framework.command", '"inspect eval gsm8k"', '""'),
    ],
)
def test_7_every_bound_field_is_present_and_equal(name: str, old: str, new: str) -> None:
    assert old in FILE
    report = judge(FILE.replace(old, new, 1))
    assert failed(report) == [7, 9]
    assert check(report, 7).evidence == f"{name} differs"


def test_7_another_benchmark_fails_also_in_a_file_of_its_name() -> None:
    text = FILE.replace("openai/gsm8k", "evil/gsm8k")
    assert failed(judge(text)) == [7, 9]


def test_7_a_command_in_the_file_that_the_token_does_not_have_fails() -> None:
    said = make.submission(framework={"name": "inspect-ai", "version": "0.3.285"})
    assert judge(make.file_for(said)).verdict == "verified"
    text = make.file_for(said).replace('    version: "0.3.285"\n', '    version: "0.3.285"\n    command: "x"\n')
    assert failed(judge(text)) == [7, 9]


def test_a_framework_member_that_the_token_cannot_bind_fails() -> None:
    assert failed(judge(FILE.replace('    version: "0.3.285"\n', '    version: "0.3.285"\n    url: "x"\n'))) == [9]


# -- (8) metrics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "evidence"),
    [
        ("value: 20.900000000000002", "accuracy differs"),
        ("value: 21", "accuracy differs"),
        ("value: 20.9\n      slice: easy", "does not bind"),
        ("value: 20.9\n    - metric_id: other\n      value: 1", "does not bind"),
        ("value: 20.9\n    - metric_id: accuracy\n      value: 20.9", "twice"),
        ("value: 20.9\n    - metric_id: accuracy\n      value: 99", "differs"),
    ],
)
def test_8_other_metrics_fail(new: str, evidence: str) -> None:
    report = judge(FILE.replace("value: 20.9", new))
    assert failed(report) == [8, 9]
    assert evidence in check(report, 8).evidence


def test_8_an_entry_without_one_of_the_tokens_metrics_fails() -> None:
    said = make.submission(metrics=[{"metric_id": "a", "value": 1}, {"metric_id": "b", "value": 2}])
    text = make.file_for(said).replace('    - metric_id: "b"\n      value: 2\n', "")
    report = judge(text)
    assert failed(report) == [8, 9]
    assert check(report, 8).token == "b"
    assert failed(judge(FILE.replace('\n    - metric_id: "accuracy"\n      value: 20.9', " []"))) == [8, 9]


@pytest.mark.parametrize("member", ["sample_size: 100", "value_type: percentage", "unit: percent", 'slice: ""'])
def test_a_member_of_a_metric_that_was_not_signed_fails(member: str) -> None:
    assert 9 in failed(judge(FILE.replace("value: 20.9", f"value: 20.9\n      {member}")))


@pytest.mark.parametrize("value", ["20.9", "99"])
def test_8_a_lone_value_beside_the_metrics_is_unknown_without_the_benchmarks_definition(value: str) -> None:
    report = judge(FILE + f"  value: {value}\n")
    assert report.verdict == "undecided"
    assert with_status(report, UNKNOWN) == [8]
    assert judge(FILE + "  value: null\n").verdict == "verified"


# -- (9) digests ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"no tools"', '"with tools"'), ('  notes: "no tools"\n', ""), ('"2026-11-21"', '"2026-11-22"'), ("seed: 1", "seed: 2"),
        ("seed: 1", 'seed: "1"'), ("seed: 1", "seed: true"), ("  run:\n    seed: 1\n", "  run: {}\n"),
        ('  notes: "no tools"\n', '  notes: "no tools"\n  added: 1\n'), ('  notes: "no tools"\n', '  notes: "no tools"\n  artifacts: []\n'),
        ('  notes: "no tools"\n', '  notes: "no tools"\n  source: {url: "https://evil.example"}\n'),
        ('    task_id: "gsm8k"\n', '    task_id: "gsm8k"\n    config: "x"\n'),
    ],
)  # fmt: skip
def test_9_any_changed_detail_fails_and_nothing_else_does(old: str, new: str) -> None:
    assert old in FILE
    report = judge(FILE.replace(old, new, 1))
    assert failed(report) == [9]
    assert "content_digest" in check(report, 9).evidence


def test_9_digests_that_the_token_states_are_recomputed_and_not_believed() -> None:
    for name in ("claims_digest", "content_digest"):
        report = judge(make.file_for(SAID, **{name: "sha256:" + "0" * 64}))
        assert failed(report) == [9]
        assert name in check(report, 9).evidence


def test_a_token_of_another_entry_fails() -> None:
    assert failed(judge(with_token(make.token_for(make.submission())))) == [9]
    assert failed(judge(with_token(make.token_for(make.submission(task_id="x"))))) == [7, 9]


# -- the verdict ------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(list(Status)), min_size=9, max_size=9), st.sampled_from(list(Status)))
def test_any_fail_is_no_then_any_unknown_is_undecided_and_verified_needs_every_check_that_is_due(
    statuses: list[Status], beyond: Status
) -> None:
    checks = [Check(number, "", status, "", "", "") for number, status in enumerate([*statuses, beyond], start=1)]
    expected = "failed" if FAIL in statuses else "verified" if set(statuses) == {PASS} else "undecided"
    assert verdict_of(checks) == expected


# -- anything ---------------------------------------------------------------------------------------------------------


TOKEN = make.token_for(SAID)


def test_no_single_bit_of_a_token_can_change() -> None:
    segments = [jose.base64url_decode(segment) for segment in TOKEN.split(".")]
    for index, raw in enumerate(segments):
        for bit in range(0, len(raw) * 8, 11):
            changed = bytearray(raw)
            changed[bit // 8] ^= 1 << bit % 8
            parts = [*segments[:index], bytes(changed), *segments[index + 1 :]]
            assert judge(with_token(".".join(map(jose.base64url_encode, parts)))).verdict == "failed"


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | PLAIN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(PLAIN, inner, max_size=2),
    max_leaves=4,
)


@examples(150)
@given(
    st.dictionaries(st.sampled_from([*SAID.form, "value", "verify_token", "verifyToken", "x"]), JUNK),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_any_entry_in_any_place_is_a_report_or_an_input_error(change: dict[str, Any], repo: str, path: str) -> None:
    form = {**SAID.form, "verify_token": TOKEN, **change}
    text = write_entry({name: value for name, value in form.items() if name != "verify_token"}, form["verify_token"])
    try:
        entries = read_entries(text.encode(), "f")
    except InputError:
        return
    for report in verify_entries(entries, repo, path, make.trust(), make.NOW, Context(make.NOW)):
        assert report.verdict in {"failed", "unverified"}


@examples(150)
@given(
    st.dictionaries(st.sampled_from([*make.payload_of(SAID), "x"]), JUNK, min_size=1),
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "x"]), JUNK),
)
def test_any_signed_payload_under_any_header_is_a_report(payload: dict[str, Any], header: dict[str, Any]) -> None:
    token = make.signed({**make.HEADER, **header}, jcs.canonical({**make.payload_of(SAID), **payload}))
    assert judge(with_token(token)).verdict in {"failed", "verified"}
