"""`issuer results export`: one record an entry, verified where that is asked for; all of them or none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from issuer.results.entry import write_entry
from tests.support import make
from tests.support.command import issuer
from tests.support.scripted import Scripted, reply

SAID = make.submission({"notes": "no tools"})
STATED = (
    "--to",
    "eee",
    "--repo",
    make.REPO,
    "--source-type",
    "evaluation_run",
    "--organization",
    "Acme",
    "--evaluator",
    "first_party",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model" / make.PATH
    path.parent.mkdir(parents=True)
    path.write_text(make.file_for(SAID))
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    return path


def trust_file(folder: Path) -> Path:
    path = folder / "trust.yaml"
    (folder / "keys.json").write_bytes(make.jwks())
    path.write_text(
        f'version: 1\naudience: "{make.AUDIENCE}"\nissuers:\n'
        f'  - {{issuer: "{make.ISSUER}", frameworks: ["inspect-ai"], keys: {{file: "keys.json"}}}}\n'
    )
    return path


def export(file: Path, *more: object, code: int = 0) -> str:
    folder = file.parents[2]
    done = issuer(
        "results", "export", file, *STATED, "--benchmark", folder / "eval.yaml", "-o", folder / "records", *more
    )
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done.stderr


def records(file: Path) -> list[dict[str, Any]]:
    found = sorted((file.parents[2] / "records").rglob("*.json"))
    return [json.loads(path.read_bytes()) for path in found]


def test_an_entry_becomes_a_record_in_the_place_that_the_format_has(file: Path) -> None:
    export(file)
    export(file)
    (path,) = (file.parents[2] / "records").rglob("*.json")
    assert path.relative_to(file.parents[2] / "records").parts[:3] == ("gsm8k", "acme", "open-model")
    (record,) = records(file)
    assert record["source_metadata"]["evaluator_relationship"] == "first_party"
    assert not [name for name in record["source_metadata"]["additional_details"] if name.startswith("verification")]


def test_who_verified_it_is_said_and_what_came_of_it(file: Path) -> None:
    trust = trust_file(file.parents[2])
    export(file, "--trust", trust, "--offline")
    said = records(file)[0]["source_metadata"]["additional_details"]
    assert said["verification_verdict"] == "good_when_issued", "its token has ended, and nobody here knows when it came"
    assert (said["verification_issuer"], said["verification_token_digest"][:7]) == (make.ISSUER, "sha256:")
    file.write_text(file.read_text().replace("20.9", "90.9"))
    export(file, "--trust", trust, "--offline")
    assert {one["source_metadata"]["additional_details"]["verification_verdict"] for one in records(file)} == {
        "good_when_issued",
        "failed",
    }


def test_an_entry_for_both_is_verified_by_the_benchmark_that_is_vouched_for(file: Path) -> None:
    now = int(time.time())
    token = make.token_for(SAID, iat=now, nbf=now, exp=now + 600)
    file.write_text(write_entry(SAID.form, token, profile="both", primary="accuracy"))
    export(file, "--trust", trust_file(file.parents[2]), "--offline", "--received-now")
    assert records(file)[0]["source_metadata"]["additional_details"]["verification_verdict"] == "verified"


def test_nothing_is_written_where_one_entry_cannot_be(file: Path) -> None:
    file.write_text(file.read_text() + "- dataset: {id: openai/gsm8k, task_id: gsm8k}\n  value: 1\n")
    assert f"{file}:15:3: result.unbound: this entry has no valid run claims: object missing" in export(file, code=3)
    assert not (file.parents[2] / "records").exists()


def test_another_benchmark_s_definition_gives_no_direction(file: Path) -> None:
    definition = file.parents[2] / "eval.yaml"
    text = definition.read_text()
    definition.write_text(text.replace('id: "gsm8k"', 'id: "other"'))
    assert definition.read_text() != text
    assert "result.undefined: the benchmark defines no task 'gsm8k'" in export(file, code=3)
    assert records(file) == []


def test_what_the_format_cannot_hold_is_said(file: Path) -> None:
    said = make.submission(metrics=[{"metric_id": "accuracy", "value": 1, "slice": "easy"}])
    file.write_text(make.file_for(said))
    assert "warning: /0/metrics/0/slice: this format has no member for it" in export(file)


@pytest.mark.parametrize("left_out", ["--source-type", "--organization", "--evaluator", "--benchmark", "--repo"])
def test_what_must_be_stated_is_not_guessed(file: Path, left_out: str) -> None:
    folder = file.parents[2]
    arguments = [*STATED, "--benchmark", str(folder / "eval.yaml"), "-o", str(folder / "records")]
    place = arguments.index(left_out)
    del arguments[place : place + 2]
    assert issuer("results", "export", file, *arguments).returncode == 2


def test_trust_is_whole_or_usage(file: Path) -> None:
    export(file, "--issuer", make.ISSUER, code=2)
    export(file, "--trust", trust_file(file.parents[2]), "--audience", "x", code=2)


def test_one_issuer_may_be_trusted_by_what_it_publishes(file: Path) -> None:
    with Scripted([reply(200, make.jwks())]) as server:
        file.write_text(make.file_for(SAID, iss=server.url))
        export(file, "--issuer", server.url, "--audience", make.AUDIENCE)
    assert records(file)[0]["source_metadata"]["additional_details"]["verification_issuer"] == server.url
