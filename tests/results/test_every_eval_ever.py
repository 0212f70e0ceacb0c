"""Entries as records of Every Eval Ever: the format's rules, and the same claims after reading them again."""

import json
import math
import re
import uuid
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]

from issuer.adapters import Supplied, every_eval_ever
from issuer.codes import Code
from issuer.errors import FormatError
from issuer.results.benchmark import read_benchmark
from issuer.results.entry import Entry, Submission, read_entries, write_entry
from issuer.results.every_eval_ever import Statement, Verification, record_of, record_path, unheld
from tests.support import make
from tests.support.shared import SHARED, needs_shared

STATED = Statement(source_type="evaluation_run", organization="Acme", relationship="third_party")
VERIFIED = Verification("verified", make.ISSUER, "sha256:" + "ab" * 32, make.NOW)
BENCHMARK = read_benchmark(
    b"name: G\ntasks: [{id: gsm8k}]\nmetrics: [{id: accuracy, display_name: Top, higher_is_better: true, unit: percent, primary: true}, "
    b"{id: wer, higher_is_better: false}, {id: open}]\n",
    "eval.yaml",
)
DETAILS: dict[str, Any] = {
    "date": "2026-11-21T09:00:00+01:00", "notes": "no-tools", "source": {"url": "https://a.example/x", "name": "Logs"},
    "run": {
        "num_samples": 1319, "split": "test", "selection": {"accuracy": "match/accuracy"}, "seed": 1, "epochs": 4, "completeness": "full",
        "arguments": {"num_fewshot": 5, "generation.until.0": "\n"},
    },
}  # fmt: skip
ACCURACY = {"metric_id": "accuracy", "value": 20.9, "sample_size": 1318}
SUBMITTED = make.submission(DETAILS, metrics=[ACCURACY, {"metric_id": "wer", "value": 1e-7}])
# A copy of the schema's list of required members. Other members are optional.
REQUIRED = {
    "": {"schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library", "evaluation_results"},
    "source_metadata": {"source_type", "source_organization_name", "evaluator_relationship"},
    "model_info": {"name", "id", "additional_details"},
    "eval_library": {"name", "version"},
}  # fmt: skip
RESULT = {"evaluation_name", "source_data", "metric_config", "score_details"}


def entry_of(submitted: Submission) -> Entry:
    (entry,) = read_entries(write_entry(submitted.form, "a.b.c").encode(), "f.yaml")
    return entry


def record(
    submitted: Submission = SUBMITTED, verified: Verification | None = VERIFIED, **stated: Any
) -> dict[str, Any]:
    statement = Statement(**{name: getattr(STATED, name) for name in STATED.__struct_fields__} | stated)
    return dict(record_of(entry_of(submitted), submitted.claims, BENCHMARK, statement, verified, make.NOW))


def test_a_record_says_what_the_entry_says_and_who_verified_it() -> None:
    made = record()
    assert all(REQUIRED[name] <= (made[name] if name else made).keys() for name in REQUIRED)
    times = (made["schema_version"], made["retrieved_timestamp"], made["evaluation_timestamp"])
    assert times == ("0.3.0", str(make.NOW), "1795248000")
    first, second = made["evaluation_results"]
    assert first.keys() >= RESULT
    assert first["score_details"] == {
        "score": 20.9, "uncertainty": {"num_samples": 1318},
        "details": {
            "notes": "no-tools", "selection": "match/accuracy", "num_samples": "1319", "epochs": "4", "completeness": "full",
            "arguments": '{"generation.until.0":"\\n","num_fewshot":5}',
        },
    }  # fmt: skip
    assert (first["metric_config"]["lower_is_better"], second["metric_config"]["lower_is_better"]) == (False, True)
    assert first["metric_config"]["metric_unit"] == "percent"
    source = made["source_metadata"]
    stated = (source["source_type"], source["source_organization_name"], source["evaluator_relationship"])
    assert stated == ("evaluation_run", "Acme", "third_party")
    assert re.fullmatch("sha256:[0-9a-f]{64}", source["additional_details"].pop("record_digest"))
    assert source["additional_details"] == {
        "content_digest": SUBMITTED.content_digest, "source_url": "https://a.example/x", "verification_verdict": "verified",
        "verification_issuer": make.ISSUER, "verification_token_digest": "sha256:" + "ab" * 32, "verification_at": str(make.NOW),
    }  # fmt: skip


def test_what_the_entry_lacks_is_left_out() -> None:
    bare = make.submission(metrics=[{"metric_id": "wer", "value": 1}], framework={"name": "x", "version": "1"})
    made = record(bare, None)
    assert "evaluation_timestamp" not in made
    assert made["source_metadata"].keys() == {*REQUIRED["source_metadata"], "additional_details"}
    assert made["source_metadata"]["additional_details"].keys() == {"content_digest", "record_digest"}
    assert made["eval_library"] == {"name": "x", "version": "1"}
    (result,) = made["evaluation_results"]
    assert result["score_details"] == {"score": 1}
    assert result["metric_config"] == {"metric_id": "wer", "metric_name": "wer", "lower_is_better": True}
    assert "null" not in json.dumps(made)


def test_a_direction_is_never_guessed() -> None:
    for metric in ["open", "f1"]:
        submitted = make.submission(metrics=[{"metric_id": "accuracy", "value": 1}, {"metric_id": metric, "value": 1}])
        with pytest.raises(FormatError) as refused:
            record(submitted)
        assert (refused.value.code, metric in refused.value.detail) == (Code.RESULT_UNDEFINED, True)


def test_a_record_read_again_gives_the_same_claims() -> None:
    """Only the command is supplied if the entry has none: a run's claims need one."""
    framework = {"name": "inspect-ai", "version": "0.3.285"}
    bare = make.submission(framework=framework, task_id="acme/gsm8k", metrics=[{"metric_id": "wer", "value": 0}])
    other = make.submission(framework={**framework, "command": "lm_eval \u00e9"}, model_revision="ab" * 32)
    for submitted in (SUBMITTED, bare, other):
        (run,) = every_eval_ever.read(json.dumps(record(submitted)).encode(), "record.json")
        supplied = not submitted.claims.framework.command
        built = run.claims(Supplied(command="x") if supplied else Supplied(), allow_partial=True)
        again = built.claims.to_json()
        if supplied:
            del again["framework"]["command"]
        assert again == submitted.claims.to_json()
        assert set(built.origins.values()) == {"run", *(["supplied"] if supplied else [])}


def test_only_an_unchanged_export_keeps_its_completeness_epochs_and_arguments() -> None:
    def words(made: dict[str, Any]) -> tuple[Any, ...]:
        (run,) = every_eval_ever.read(json.dumps(made, indent=1).encode(), "record.json")
        details: Any = run.claims(Supplied(), allow_partial=True).details["run"]
        return details["completeness"], details.get("epochs"), details.get("arguments")

    assert words(record()) == ("full", 4, DETAILS["run"]["arguments"])
    for completeness in ("partial", "not known", ...):
        run = {**DETAILS["run"], "completeness": completeness}
        submitted = make.submission({**DETAILS, "run": make.without_dots(run)}, metrics=[ACCURACY])
        assert words(record(submitted))[0] == ("not known" if completeness is ... else completeness)
    changed, sealed = record(), record()
    changed["evaluation_results"][0]["score_details"]["score"] = 21
    sealed["source_metadata"]["additional_details"]["record_digest"] = "sha256:" + "0" * 64
    unsealed = record()
    del unsealed["source_metadata"]["additional_details"]["record_digest"]
    for made in (changed, sealed, unsealed, {**record(), "x": math.nan}, {**record(), "x": 1}):
        assert words(made) == ("not known", None, None)


def test_what_the_format_cannot_hold_is_named() -> None:
    easy = {"metric_id": "accuracy", "value": 1, "slice": "easy", "value_type": "int"}
    submitted = make.submission(metrics=[easy, {"metric_id": "wer", "value": 1}])
    assert list(unheld(submitted.claims)) == ["/metrics/0/slice", "/metrics/0/value_type"]
    assert record(submitted)["evaluation_results"][0]["metric_config"]["additional_details"] == {
        "display_name": "Top", "slice": "easy", "value_type": "int",
    }  # fmt: skip


def test_an_entry_has_one_place_and_another_has_another() -> None:
    place = record_path(entry_of(SUBMITTED), SUBMITTED.claims)
    other = make.submission({**DETAILS, "notes": "tools"}, metrics=[{"metric_id": "accuracy", "value": 20.9}])
    folder, _, name = place.rpartition("/")
    assert folder == "gsm8k/acme/open-model"
    assert record_path(entry_of(SUBMITTED), SUBMITTED.claims) == place != record_path(entry_of(other), other.claims)
    assert record()["evaluation_id"] != record(other)["evaluation_id"]
    assert uuid.UUID(name.removesuffix(".json")).version == 4
    assert name == f"{uuid.UUID(name.removesuffix('.json'))}.json"


@needs_shared
def test_a_record_is_valid_by_the_published_schema() -> None:
    schema = Draft7Validator(json.loads((SHARED / "schemas" / "eval.schema-0.3.0.json").read_bytes()))
    sliced = make.submission({"date": "2026-11-21"}, metrics=[{"metric_id": "wer", "value": 1, "slice": "a"}])
    for submitted in (SUBMITTED, make.submission(), sliced):
        for verified in (VERIFIED, Verification("failed", "", "", make.NOW), None):
            made = record(submitted, verified, organization_url="https://a.example")
            assert [error.message for error in schema.iter_errors(made)] == []
