"""This project's own JSON of runs: the claims have every member, and the schema fits the types."""

import json
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from issuer import adapters
from issuer.adapters import Supplied, plain_json
from issuer.adapters.plain_json import MEMBERS, schema
from issuer.codes import Code
from issuer.formats import jcs
from tests.support.runs import BENCHMARK_COMMIT, DATA, MODEL_COMMIT, edited, refusal
from tests.support.shared import ROOT

RAW = (DATA / "plain_run.json").read_bytes()
SCHEMA = ROOT / "issuer" / "adapters" / "run.schema.json"
VALIDATOR = Draft202012Validator(json.loads(schema()))


def built(raw: bytes = RAW, supplied: Supplied | None = None, **allowed: bool) -> adapters.Built:
    (run,) = plain_json.read(raw, "run.json")
    return run.claims(supplied or Supplied(), **allowed)


def valid(raw: bytes) -> bool:
    return bool(VALIDATOR.is_valid(json.loads(raw)))


def test_the_claims_and_details_have_every_member_of_a_run() -> None:
    run = json.loads(RAW)["runs"][0]
    made = built()
    claims = made.claims.to_json()
    metrics = [
        {"metric_id": "acc", "value": 0.75, "slice": "algebra", "value_type": "float", "sample_size": 100},
        {"metric_id": "acc", "value": 0.5, "slice": "geometry", "value_type": "float", "sample_size": 40},
        {"metric_id": "rank", "value": 3, "value_type": "rank"},
    ]
    assert list(claims.pop("metrics")) == metrics
    assert claims == {name: run[name] for name in claims}
    assert set(made.origins.values()) == {"run"}
    details: Any = made.details
    selection = {name: f"strict@mean/{name}" for name in ("acc (algebra)", "acc (geometry)")} | {"rank": "judge/rank"}
    added = {"selection": selection, "completeness": "full", "split": "test", "task": "math_all"}
    assert details["run"] == {**run["details"]["run"], **added}
    assert details["artifacts"][:-1] == run["details"]["artifacts"]
    assert details["artifacts"][-1]["name"] == "run.json"
    same = details.keys() - {"run", "artifacts"}
    assert {name: details[name] for name in same} == {name: run["details"][name] for name in same}
    assert same == run["details"].keys() - {"run", "artifacts"}


def test_the_arguments_of_a_run_may_be_nested_and_are_given_once() -> None:
    raw = edited(RAW, "/runs/0/arguments", {"num_fewshot": 5, "prompt": "x" * 300, "generation": {"until": ["a"]}})
    assert valid(raw)
    made: Any = built(raw).details["run"]
    assert made["arguments"] == {"generation.until.0": "a", "num_fewshot": 5, "prompt": jcs.digest("x" * 300)}
    flat = edited(RAW, "/runs/0/details/run/arguments", {"num_fewshot": 5})
    kept: Any = built(flat).details["run"]
    assert kept["arguments"] == {"num_fewshot": 5}
    odd: Any = built(edited(RAW, "/runs/0/arguments", {"a b": 1}), allow_partial=True).details
    assert (odd["run"]["arguments"], odd["run"]["completeness"]) == ({"all": jcs.digest({"a b": 1})}, "not known")
    both = edited(raw, "/runs/0/details/run/arguments", {"num_fewshot": 5})
    assert refusal(built, both).pointer == "/runs/0/details/run/arguments"
    nested = edited(RAW, "/runs/0/details/run/arguments", {"generation": {"until": ["a"]}})
    assert refusal(built, nested).pointer == "/runs/0/details/run/arguments/generation"


def test_a_missing_member_is_supplied_and_a_given_one_is_not_overruled() -> None:
    bare = edited(edited(RAW, "/runs/0/model_revision", ...), "/runs/0/framework/command", ...)
    error = refusal(built, bare)
    assert all(flag in error.detail for flag in ("--model-revision", "--command"))
    made = built(bare, Supplied(model_revision=MODEL_COMMIT, command="run it"))
    assert (made.origins["model_revision"], made.origins["benchmark_repo"]) == ("supplied", "run")
    error = refusal(built, RAW, Supplied(benchmark_revision=MODEL_COMMIT))
    assert error.pointer == "/runs/0/benchmark_revision"
    assert json.loads(RAW)["runs"][0]["benchmark_revision"] == BENCHMARK_COMMIT


def test_one_of_several_numbers_may_be_chosen_by_its_selector() -> None:
    made = built(RAW, Supplied(metrics={"accuracy": "strict@mean/acc (algebra)"}))
    (metric,) = made.claims.metrics
    assert (metric.metric_id, metric.slice, metric.value) == ("accuracy", "algebra", 0.75)
    assert made.details["run"]["selection"] == {"accuracy (algebra)": "strict@mean/acc (algebra)"}  # type: ignore[call-overload,index]


def test_epochs_and_counts_that_all_metrics_share_are_in_the_entry() -> None:
    raw = RAW
    for at in range(3):
        raw = edited(edited(raw, f"/runs/0/metrics/{at}/epochs", 4), f"/runs/0/metrics/{at}/sample_size", 40)
    words: Any = built(raw).details["run"]
    assert (words["epochs"], words["num_samples"]) == (4, 40)


def test_a_run_has_a_reason_exactly_if_it_is_not_whole() -> None:
    reason = "40 of 50 samples were used"
    for answer in ("partial", "not known"):
        raw = edited(RAW, "/runs/0/completeness", {"answer": answer, "reason": reason})
        assert refusal(built, raw).pointer == "/runs/0/completeness/reason"
        made = built(raw, allow_partial=True)
        assert made.details["run"]["completeness"] == answer  # type: ignore[call-overload,index]
        assert f"{reason}. No tools." in str(made.details["notes"])
        silent = edited(RAW, "/runs/0/completeness", {"answer": answer})
        assert (refusal(built, silent).code, valid(raw)) == (Code.FILE_RULE, True)
    full = edited(RAW, "/runs/0/completeness", {"answer": "full", "reason": reason})
    assert refusal(built, full).pointer == "/runs/0/completeness/reason"


def test_a_document_outside_of_the_schema_is_refused() -> None:
    of_run: dict[str, list[object]] = {
        "details/verify_token": ["x"], "metrics/0/f1": [0.5], "metrics": [[]], "metrics/0/value": ["0.75", True],
        "metrics/0/sample_size": [0], "completeness": [...], "completeness/answer": ["whole"], "model_repo": [""],
    }  # fmt: skip
    places: list[tuple[str, object]] = [("/other", 1), ("/format", "eval-token-issuer/run/v2"), ("/runs", [])]
    places += [(f"/runs/0/{member}", value) for member, values in of_run.items() for value in values]
    for pointer, value in places:
        raw = edited(RAW, pointer, value)
        unknown = pointer.rpartition("/")[2] in {"other", "verify_token", "f1"}
        code = Code.FILE_UNKNOWN_MEMBER if unknown else Code.FILE_SCHEMA
        assert (refusal(built, raw).code, valid(raw)) == (code, False), (pointer, value)


def test_a_fault_by_the_rules_of_claims_has_its_place_in_the_file() -> None:
    for pointer, value, code, place in (
        ("/runs/0/mock", "random", Code.FILE_RULE, "/runs/0/mock"),
        ("/runs/0/metrics/1/slice", "algebra", Code.FILE_RULE, ""),
        ("/runs/0/model_revision", "main", Code.CLAIMS_REVISION, "/runs/0/model_revision"),
        ("/runs/0/metrics/2/value", 2.5, Code.CLAIMS_INVALID, "/runs/0/metrics/2/value"),
        ("/runs/0/details/date", "yesterday", Code.DETAILS_INVALID, "/runs/0/details/date"),
        ("/runs/0/details/run/reproduces", "sha256:0", Code.FILE_RULE, "/runs/0/details/run/reproduces"),
    ):
        error = refusal(built, edited(RAW, pointer, value))
        assert (error.code, error.pointer) == (code, place)
    raw = RAW.replace(b"0.75", b"0.123456789012345678")  # which no double carries
    assert refusal(built, raw).code is Code.FILE_NUMBER


def test_the_committed_schema_fits_the_types() -> None:
    """Anew: `issuer results schema > issuer/adapters/run.schema.json`."""
    assert SCHEMA.read_bytes() == schema()
    Draft202012Validator.check_schema(json.loads(schema()))


def test_the_sample_is_valid_and_every_member_is_described_and_in_it() -> None:
    document = json.loads(schema())
    assert valid(RAW)
    kinds = {"PlainFile": document, **document["$defs"]}
    assert {name: set(kind["properties"]) for name, kind in kinds.items()} == {
        name: set(members) for name, members in MEMBERS.items()
    }
    assert all(part["description"] for kind in kinds.values() for part in kind["properties"].values())
