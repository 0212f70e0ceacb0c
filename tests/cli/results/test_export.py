"""`issuer results export`: one record for each entry, verified on request; all of them or none."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from issuer.results.entry import write_entry
from tests.support import make
from tests.support.in_process import run
from tests.support.scripted import Scripted, reply
from tests.support.tree import write_trust

SAID = make.submission({"notes": "no tools"})
STATED = ("--to", "eee", "--repo", make.REPO, "--source-type", "evaluation_run", "--organization", "Acme",
          "--evaluator", "first_party")  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model" / make.PATH
    path.parent.mkdir(parents=True)
    path.write_text(make.file_for(SAID))
    (tmp_path / "eval.yaml").write_text(make.BENCHMARK_TEXT)
    return path


def export(file: Path, *more: object, code: int = 0) -> str:
    folder = file.parents[2]
    given = (*STATED, "--benchmark", folder / "eval.yaml", "-o", folder / "records", *more)
    done = run(["results", "export", str(file), *map(str, given)], folder)
    assert done.code == code, done
    return done.err


def verification(record: dict[str, Any]) -> dict[str, str]:
    details = record["source_metadata"]["additional_details"]
    return {
        name.removeprefix("verification_"): text for name, text in details.items() if name.startswith("verification")
    }


def records(file: Path) -> list[dict[str, Any]]:
    found = sorted((file.parents[2] / "records").rglob("*.json"))
    return [json.loads(path.read_bytes()) for path in found]


def test_an_entry_becomes_a_record_in_the_place_of_the_format(file: Path) -> None:
    export(file)
    export(file)
    (path,) = (file.parents[2] / "records").rglob("*.json")
    assert path.relative_to(file.parents[2] / "records").parts[:3] == ("gsm8k", "acme", "open-model")
    (record,) = records(file)
    assert (record["source_metadata"]["evaluator_relationship"], verification(record)) == ("first_party", {})
    file.write_text(make.file_for(make.submission(metrics=[{"metric_id": "accuracy", "value": 1, "slice": "easy"}])))
    assert "warning: /0/metrics/0/slice: this format has no member for it" in export(file)


def test_a_record_has_the_verdict_and_the_issuer_of_its_entry(file: Path) -> None:
    by = ("--trust", write_trust(file.parents[2]), "--offline")
    export(file, *by)
    found = verification(records(file)[0])
    assert found["verdict"] == "good_when_issued", "its token has expired, and the time of receipt is unknown"
    assert (found["issuer"], found["token_digest"][:7]) == (make.ISSUER, "sha256:")
    file.write_text(file.read_text().replace("20.9", "90.9"))
    export(file, *by)
    assert {verification(record)["verdict"] for record in records(file)} == {"good_when_issued", "failed"}
    with Scripted([reply(200, make.jwks())]) as server:
        file.write_text(make.file_for(SAID, iss=server.url))
        export(file, "--issuer", server.url, "--audience", make.AUDIENCE)
    assert server.url in {verification(record)["issuer"] for record in records(file)}
    export(file, "--issuer", make.ISSUER, code=2)
    export(file, *by, "--audience", "x", code=2)
    now = int(time.time())
    token = make.token_for(SAID, iat=now, nbf=now, exp=now + 600)
    file.write_text(write_entry(SAID.form, token, profile="both", primary="accuracy"))
    shutil.rmtree(file.parents[2] / "records")
    export(file, *by, "--received-now")
    assert verification(records(file)[0])["verdict"] == "verified", "also its value, with the definition"


def test_no_record_is_written_if_one_entry_or_option_is_missing_or_wrong(file: Path) -> None:
    definition, good = file.parents[2] / "eval.yaml", file.read_text()
    file.write_text(good + "- dataset: {id: openai/gsm8k, task_id: gsm8k}\n  value: 1\n")
    assert f"{file}:15:3: result.unbound: this entry has no valid run claims: object missing" in export(file, code=3)
    file.write_text(good)
    definition.write_text(definition.read_text().replace('id: "gsm8k"', 'id: "other"'))
    assert "result.undefined: the benchmark defines no task 'gsm8k'" in export(file, code=3)
    assert records(file) == []
    arguments = [*STATED, "--benchmark", "eval.yaml", "-o", "records"]
    for option in ("--source-type", "--organization", "--evaluator", "--benchmark", "--repo"):
        place = arguments.index(option)
        rest = arguments[:place] + arguments[place + 2 :]
        assert run(["results", "export", str(file), *rest], file.parents[2]).code == 2, option
