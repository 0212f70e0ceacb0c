"""`issuer verify` with a log in the trust file: proofs beside files, in one file and in a folder, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.verify.check_log import sidecar_name
from tests.support import make
from tests.support.command import issuer
from tests.support.tree import write_result, write_tree
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, read_token, write_logged_trust, write_sidecars

END = make.NOW + 3600
NOT_KNOWN = "it is not known when this file was received"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_logged_trust(tmp_path)
    return write_result(tmp_path / "hub", make.REPO, "gsm8k.yaml", make.file_for(make.submission(), log=ORIGIN))


def put_proof(file: Path, *times: int) -> Path:
    token = read_token(file)
    sidecar = file.with_name(sidecar_name(file.name, leaf_of(token).token))
    sidecar.write_bytes(TestLog(token).proof(token, *times))
    return sidecar


def judge(file: Path, *more: str) -> tuple[int, Any]:
    done = issuer(
        "verify", str(file), "--repo", make.REPO, "--trust", str(file.parents[4] / "logged.yaml"), "--json", *more
    )
    return done.returncode, json.loads(done.stdout)["reports"][0]


def of(report: Any, number: int) -> tuple[str, str]:
    return report["checks"][number - 1]["status"], report["checks"][number - 1]["evidence"]


def test_a_reader_passes_an_old_file_by_its_proof_and_is_told_what_is_not_known(file: Path) -> None:
    put_proof(file, make.NOW + 2, make.NOW + 4)
    code, report = judge(file)
    assert (code, report["verdict"], report["at_from"], report["at"]) == (0, "verified", "log", make.NOW + 4)
    assert NOT_KNOWN in of(report, 5)[1]
    assert of(report, 11)[0] == "pass"


def test_who_receives_it_now_is_bound_by_the_end_of_the_token(file: Path) -> None:
    put_proof(file, make.NOW + 2, make.NOW + 4)
    for when in (["--received-now"], ["--at", str(END + 1)]):
        code, report = judge(file, *when)
        assert (code, report["verdict"], of(report, 5)[0]) == (1, "failed", "fail")
    assert judge(file, "--at", str(END))[0] == 0


def test_without_a_proof_it_cannot_be_decided(file: Path) -> None:
    code, report = judge(file, "--at", str(make.NOW))
    assert (code, report["verdict"], of(report, 11)) == (4, "undecided", ("unknown", "no proof was found"))


def test_people_are_told_too(file: Path) -> None:
    put_proof(file, make.NOW + 2, make.NOW + 4)
    trust = str(file.parents[4] / "logged.yaml")
    done = issuer("verify", str(file), "--repo", make.REPO, "--trust", trust)
    assert done.returncode == 0
    assert "judged as it existed at 2026-11-18T11:06:44Z, by the log's witnesses" in done.stdout
    assert NOT_KNOWN in done.stdout


def test_a_folder_gets_the_answers_of_its_files(tmp_path: Path) -> None:
    """Also where proofs are missing, are another file's, or cannot be read."""
    write_logged_trust(tmp_path)
    files = list(write_tree(tmp_path / "hub", 12, log=ORIGIN))
    write_sidecars(files)
    sidecars = [file.with_name(sidecar_name(file.name, leaf_of(read_token(file)).token)) for file in files]
    sidecars[0].unlink()
    sidecars[1].write_bytes(sidecars[2].read_bytes())
    sidecars[3].unlink()
    sidecars[3].symlink_to(sidecars[2].name)
    done = issuer("verify", str(tmp_path / "hub"), "--trust", str(tmp_path / "logged.yaml"), "--json", "--jobs", "2")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["repo"] + "/" + line["path"]: line["verdict"] for line in lines if "checks" in line}
    bad = {f"{files[number].parts[-4]}/{'/'.join(files[number].parts[-3:])}" for number in (0, 1, 3)}
    assert len(found) == 12
    assert {name for name, verdict in found.items() if verdict != "verified"} == bad
    assert (done.returncode, lines[-1]["summary"]["findings"]) == (4, 0)


def test_a_policy_that_is_wrong_or_missing_is_an_error_with_its_place(file: Path) -> None:
    policy = file.parents[4] / "policy"
    policy.write_text("quorum none\n")
    done = issuer("verify", str(file), "--repo", make.REPO, "--trust", str(file.parents[4] / "logged.yaml"))
    assert (done.returncode, "log.policy" in done.stderr, "/issuers/0/log/policy" in done.stderr) == (3, True, True)
    policy.unlink()
    done = issuer("verify", str(file), "--repo", make.REPO, "--trust", str(file.parents[4] / "logged.yaml"))
    assert (done.returncode, "file.unreadable" in done.stderr) == (3, True)
