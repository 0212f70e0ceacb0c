"""The linter of result files: every broken rule of the contract at its place, all in one run."""

from itertools import product
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.results.benchmark import lint_benchmark, read_benchmark
from issuer.results.entry import PROFILES, Profile, result_file_name, write_entry
from issuer.results.lint import lint_results
from tests.support import make
from tests.support.result_texts import FILE, PARTS
from tests.support.shared import SHARED, examples, hub_files, needs_shared

SAID = make.submission({"date": "2026-11-21", "source": {"url": "https://a.example/x"}, "notes": "no tools"})
GOOD = make.file_for(SAID)


def lint(text: str, **members: Any) -> list[tuple[str, int, str]]:
    known = {"path": make.PATH, "repo": make.REPO, "benchmark": make.benchmark(), **members}
    findings = lint_results(text.encode(), "f.yaml", **known)
    return [(str(found.code), found.place.line, found.severity) for found in findings]


# (old, new) in the good file; code, line, severity.
RULES = {
    "short model commit": ('"9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"', '"9f3c2c9a"', ("claims.revision", 5, "error")),
    "short benchmark commit": ('"5503434ddd753f426f4b38109466949a1217c2bb"', '"5503434d"', ("claims.revision", 4, "error")),
    "commit that is a number": ('"9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"', "36190055", ("file.schema", 5, "error")),
    "empty command": ('"inspect eval gsm8k"', '""', ("claims.invalid", 9, "error")),
    "secret in the notes": ('"no tools"', '"with hf_abcdefghijklmnopqrstuvwxyz"', ("claims.secret", 16, "error")),
    "secret": ('"inspect eval gsm8k"', '"x --api-key=sk-abcdefghijklmnopqrstuvwxyz0123456789abcdefghijkl"', ("claims.secret", 9, "error")),
    "disputed number": ("value: 20.9", "value: 2e1", ("file.scalar", 12, "error")),
    "inexact number": ("value: 20.9", "value: 0.123456789012345678", ("file.number", 12, "error")),
    "quoted number": ("value: 20.9", 'value: "20.9"', ("file.schema", 12, "error")),
    "unknown member of a metric": ("value: 20.9", "value: 20.9\n      unit: x", ("file.unknown_member", 13, "error")),
    "undefined metric": ('"accuracy"', '"f1"', ("result.undefined", 11, "error")),
    "undefined task": ('task_id: "gsm8k"', 'task_id: "gsm"', ("result.undefined", 3, "error")),
    "no date": ('"2026-11-21"', '"yesterday"', ("details.invalid", 13, "error")),
    "no public address": ("https://a.example", "https://u:p@a.example", ("details.invalid", 15, "error")),
    "null in a list": ("  date:", "  run:\n    a: [null]\n  date:", ("file.rule", 14, "error")),
    "duplicate key": ('  notes: "no tools"', '  notes: "a"\n  notes: "b"', ("file.duplicate_key", 17, "error")),
    "unknown member": ('  notes: "no tools"', '  note: "no tools"', ("result.unknown_member", 16, "warning")),
    "unknown member of dataset": ('    task_id: "gsm8k"', '    task_id: "gsm8k"\n    split: "x"', ("result.unknown_member", 4, "warning")),
    "no token": ("verify_token: ", "verify_token: null # ", None),
    "no JWS": ("verify_token: ", "verify_token: '...' # ", ("result.token", 17, "error")),
    "two tokens": ("  verify_token: ", "  verifyToken: a.b.c\n  verify_token: ", ("file.rule", 17, "error")),
    "no model commit": ('  model_revision: "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321"\n', "", ("result.unbound", 1, "error")),
    "no version": ('    version: "0.3.285"\n', "", ("file.schema", 7, "error")),
    "value of another metric": ("  date:", "  value: 20.8\n  date:", ("result.value", 13, "error")),
    "another benchmark": ('id: "openai/gsm8k"', 'id: "openai/mmlu"', ("result.file_name", 2, "error")),
    "no repository name": ('id: "openai/gsm8k"', 'id: "gsm8k"', ("claims.invalid", 2, "error")),
}  # fmt: skip


def test_a_broken_rule_is_found_at_its_place_and_nothing_else_is() -> None:
    for name, (old, new, expected) in RULES.items():
        assert GOOD.count(old) >= 1
        assert lint(GOOD.replace(old, new, 1)) == ([expected] if expected else []), name
    assert lint(GOOD, repo="nobody") == [("claims.invalid", 1, "error")]


def test_all_findings_of_a_file_are_in_its_order_with_the_places_of_its_metrics() -> None:
    text = GOOD.replace("value: 20.9", "value: 2e1").replace('"2026-11-21"', "on").replace('"gsm8k"', "1_0")
    text += "- 1\n- {}\n- dataset: {id: a}\n  value: 1\n"
    found = lint(text)
    assert [line for _, line, _ in found] == sorted(line for _, line, _ in found)
    assert {code for code, *_ in found} >= {"file.scalar", "file.schema", "claims.invalid", "result.unbound"}
    assert len(found) >= 8
    pairs = (("b", 1), ("a a", 2), ("b", 3), ("c", "x"))
    metrics = "\n".join(f'    - {{metric_id: "{name}", value: {value}}}' for name, value in pairs)
    text = f"- dataset: {{id: openai/gsm8k, task_id: gsm8k}}\n  metrics:\n{metrics}\n"
    errors = [(code, line) for code, line, severity in lint(text, benchmark=None) if severity == "error"]
    assert errors == [("claims.invalid", 4), ("claims.duplicate_metric", 5), ("file.schema", 6)]


def test_value_without_a_benchmark_must_be_the_score_of_a_metric_without_a_slice() -> None:
    assert lint(GOOD.replace("  date:", "  value: 20.9\n  date:", 1), benchmark=None) == []
    assert lint(GOOD.replace("  date:", "  value: 1\n  date:", 1), benchmark=None) == [("result.value", 13, "error")]
    unread = GOOD.replace("value: 20.9", "value: true").replace("  date:", "  value: 20.9\n  date:", 1)
    assert lint(unread) == [("file.schema", 12, "error")]


WILD = "- dataset: {id: openai/gsm8k, task_id: gsm8k}\n  value: 96.06\n  source: {url: https://a.b, name: Card}\n"
BOTH = write_entry(SAID.form, make.token_for(SAID), profile="both", primary="accuracy")


def test_entries_without_metrics_are_for_the_hub_and_without_value_for_the_target() -> None:
    assert lint(WILD) == lint(WILD, profile="both") == [("result.unbound", 2, "error")]
    assert lint(WILD, profile="hub") == [("result.unbound", 2, "warning")]
    nothing = WILD.replace("  value: 96.06\n", "")
    assert lint(nothing) == [("result.unbound", 1, "error")]
    assert lint(nothing, profile="hub") == [("result.profile", 1, "error"), ("result.unbound", 1, "warning")]
    for profile in ("both", "hub"):
        assert ("result.profile", 1, "error") in lint(GOOD, profile=profile)
    # Each profile takes its own entries, and advises what a token binds.
    hub = write_entry(SAID.form, profile="hub", primary="accuracy")
    assert {profile: lint(BOTH, profile=profile) for profile in PROFILES} == {profile: [] for profile in PROFILES}
    assert lint(hub, profile="hub") == [("result.unbound", 5, "warning")]
    text = "- dataset: {id: openai/gsm8k, task_id: gsm8k}\n  metrics: [{metric_id: accuracy, value: 1}]\n"
    assert {severity for _, _, severity in lint(text)} == {"warning"}
    assert {severity for _, _, severity in lint(text + "  verify_token: a.b.c\n")} == {"error"}


def test_a_token_has_the_name_that_the_profile_s_readers_know() -> None:
    for spelling, other, severities in (
        ("verify_token", "verifyToken", {"target": "", "hub": "warning", "both": "error"}),
        ("verifyToken", "verify_token", {"target": "warning", "hub": "", "both": "error"}),
    ):
        text = "".join(line for line in BOTH.splitlines(keepends=True) if f"  {other}:" not in line)
        line = text[: text.index(f"  {spelling}:")].count("\n") + 1
        for profile, severity in severities.items():
            assert lint(text, profile=profile) == ([("result.profile", line, severity)] if severity else [])


def test_a_member_of_the_hub_s_answers_is_an_error_in_every_profile() -> None:
    for member, profile in product(("error: null", "data: {a: null}", "data: 1"), PROFILES):
        assert lint(f"{BOTH}  {member}\n", profile=profile) == [("file.rule", len(BOTH.splitlines()) + 1, "error")]


# Changes that today's Hub accepts: (old, new) in a file of the profile `both`, and the code.
SPARED = {
    "any name": ('id: "openai/gsm8k"', 'id: "openai/mmlu"', None),
    "a short commit": ('"5503434ddd753f426f4b38109466949a1217c2bb"', '"5503434d"', "claims.revision"),
    "an unknown member of a metric": ("value: 20.9\n  value", "value: 20.9\n      unit: x\n  value", "file.unknown_member"),
    "no token": ("verifyToken: ", "verifyToken: '...' #", "result.token"),
    "its own framework": ("  date:", "  evaluation_framework: x\n  date:", None),
}  # fmt: skip


def test_what_today_s_hub_accepts_is_not_an_error_for_it() -> None:
    for name, (old, new, code) in SPARED.items():
        text = BOTH.replace(old, new, 1).replace("  verify_token: ", "  # ")
        assert text.count(new) == 1
        found = {(each[0], each[2]) for each in lint(text, profile="hub")}
        assert found == ({(code, "warning")} if code else set()), name
        severity = "warning" if "own framework" in name else "error"
        aimed = code or ("result.file_name" if name == "any name" else "result.unknown_member")
        assert (aimed, severity) in {(each[0], each[2]) for each in lint(text)}, name


def test_a_fault_of_today_s_hub_s_own_members_and_a_secret_are_errors_for_it() -> None:
    for old, new in (('"2026-11-21"', '"soon"'), ("https://a.example", "a.example"), ('"no tools"', "[x]"), ('task_id: "gsm8k"', 'x: "y"'),
                     ('"inspect eval gsm8k"', '"hf_abcdefghijklmnopqrstuvwxyz"')):  # fmt: skip
        assert [each for each in lint(BOTH.replace(old, new, 1), profile="hub") if each[2] == "error"], old


def test_a_file_name_is_demanded_in_its_folder_and_a_repeated_entry_warned_of() -> None:
    for path, expected in ((".eval_results/x.yaml", "error"), ("x.yaml", "warning")):
        assert [(code, severity) for code, _, severity in lint(GOOD, path=path)] == [("result.file_name", expected)]
    assert lint(GOOD, path="out/gsm8k.yaml") == lint(GOOD, path="") == []
    assert [(code, severity) for code, _, severity in lint(GOOD + GOOD)] == [("result.repeated", "warning")]


def test_a_thousand_faults_are_listed_and_then_that_there_are_more() -> None:
    def faulty(count: int) -> str:
        head = "- dataset: {id: openai/gsm8k, task_id: gsm8k}\n  value: 1\n"
        return head + "".join(f"  x{index}: 1\n" for index in range(count - 1))

    for count in (999, 1000):
        text = faulty(count)
        assert [code for code, _, severity in lint(text, profile="hub") if severity == "error"] == []
        assert len(lint(text, profile="hub")) == count
    found = lint(faulty(1000) + "  more: 1\n  and_more: 1\n", profile="hub")
    assert (len(found), [each for each in found if each[2] == "error"]) == (1001, [("file.rule", 1003, "error")])


def test_a_file_full_of_faults_is_linted_in_linear_time() -> None:
    """In quadratic time it would take minutes."""
    for text in (
        "- {dataset: {id: a/b}, value: 1, " + ", ".join(f"k{index}: 1" for index in range(40_000)) + "}\n",
        "- {dataset: {id: a/b}, metrics: [" + "{}," * 30_000 + "]}\n",
        ("- {dataset: {id: a/b}, metrics: [" + "{}," * 150 + "]}\n") * 100,
        "- a\n" + "- |\n  b\n" * 999 + "- c",
    ):
        assert lint_results(text.encode(), "f", path="f"), text[:60]


def test_a_file_that_is_not_a_list_has_a_finding_with_its_place() -> None:
    for raw in [b"\xff", b"a: b", b"", b"- &a 1\n- *a", b"\xef\xbb\xbf- 1", b"- a\n---\n- b"]:
        found = lint_results(raw, "f.yaml")
        assert found
        assert all(each.place.line > 0 for each in found)


NAMES = ["metrics: ", "metric_id: m", "framework: ", "run: ", "tasks: ", "id: a", "name: ", "primary: true"]
EDITS = st.tuples(
    st.sampled_from([GOOD, FILE]), st.floats(0, 1), st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"])
)
EDITED = EDITS.map(
    lambda edit: edit[0][: int(edit[1] * len(edit[0]))] + edit[2] + edit[0][int(edit[1] * len(edit[0])) :]
)
JOINED = st.lists(st.sampled_from([*PARTS, *NAMES]), max_size=14).map("".join)


@examples(400)
@given(st.binary(max_size=60) | (JOINED | EDITED).map(str.encode))
def test_any_bytes_are_linted(raw: bytes) -> None:
    for found in (*lint_results(raw, "f", path="f", benchmark=make.benchmark()), *lint_benchmark(raw, "f")):
        assert isinstance(found.code, Code)


BENCHMARKS = {
    "aime_2026": "matharena", "coco": "coco", "datasets": "open_asr", "hle_full": "hle", "hle_minimal": "hle", "swe_bench_pro": "swe_bench_pro",
}  # fmt: skip
# The rules that the target specification's six examples break.
BROKEN = {
    "coco": {"claims.invalid": "`dataset.id` must be `owner/name`", "result.undefined": "no task 'bbox_testdev_2017'"},
    "hle_full": {"claims.revision": "a full commit", "result.token": "three base64url parts", "result.undefined": "no task 'default'"},
    "hle_minimal": {"result.undefined": "no task 'default'"},
    "swe_bench_pro": {"result.undefined": "no task 'public'"},
}  # fmt: skip


@needs_shared
def test_four_of_the_target_specification_s_six_examples_break_its_rules() -> None:
    for name, benchmark in BENCHMARKS.items():
        raw = (SHARED / "eval_results_yaml" / f"target001__{name}.yaml").read_bytes()
        definition = (SHARED / "eval_yaml" / f"target001__{benchmark}.yaml").read_bytes()
        path = f".eval_results/{name.removesuffix('_full').removesuffix('_minimal')}.yaml"
        found = lint_results(raw, name, path=path, benchmark=read_benchmark(definition, benchmark))
        errors = {str(each.code): each.detail for each in found if each.severity == "error"}
        expected = BROKEN.get(name, {})
        assert errors.keys() == expected.keys(), name
        assert all(detail in errors[code] for code, detail in expected.items()), name


def test_real_files_of_the_live_hub_name_no_metric_and_break_no_rule() -> None:
    for path in hub_files("result", "eval_results_yaml"):
        raw = path.read_bytes()
        placed = result_file_name(yaml.safe_load(raw)[0]["dataset"]["id"])
        profiles: tuple[tuple[Profile, str], ...] = (("hub", "warning"), ("target", "error"))
        for profile, severity in () if path.name.startswith("target") else profiles:
            found = lint_results(raw, path.name, path=placed, profile=profile)
            assert [(each.code, each.severity) for each in found] == [(Code.RESULT_UNBOUND, severity)], path
