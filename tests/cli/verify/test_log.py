"""`issuer verify` with a log in the trust file: proofs beside files, for one file and for a folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from issuer.verify.check_log import sidecar_name
from tests.support import make
from tests.support.in_process import Done, run
from tests.support.tree import write_result, write_tree
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, read_token, write_logged_trust, write_sidecars

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


def verify(file: Path, *more: str) -> Done:
    return run(
        ["verify", str(file), "--repo", make.REPO, "--trust", str(file.parents[4] / "logged.yaml"), *more], file.parent
    )


def judge(file: Path, *more: str) -> tuple[int, Any]:
    done = verify(file, "--json", *more)
    return done.code, json.loads(done.out)["reports"][0]


def of(report: Any, number: int) -> tuple[str, str]:
    return report["checks"][number - 1]["status"], report["checks"][number - 1]["evidence"]


def test_a_proof_verifies_an_old_file_for_a_reader_and_no_late_one_for_a_recipient(file: Path) -> None:
    code, report = judge(file, "--at", str(make.NOW))
    assert (code, report["verdict"], of(report, 11)) == (4, "undecided", ("unknown", "no proof was found"))
    put_proof(file, make.NOW + 2, make.NOW + 4)
    code, report = judge(file)
    assert (code, report["verdict"], report["at_from"], report["at"]) == (0, "verified", "log", make.NOW + 4)
    assert (NOT_KNOWN in of(report, 5)[1], of(report, 11)[0]) == (True, "pass")
    done = verify(file)
    assert (done.code, NOT_KNOWN in done.out) == (0, True)
    assert "judged as it existed at 2026-11-18T11:06:44Z, by the log's witnesses" in done.out
    end = make.NOW + 3600
    for when in (["--received-now"], ["--at", str(end + 1)]):
        code, report = judge(file, *when)
        assert (code, report["verdict"], of(report, 5)[0]) == (1, "failed", "fail"), "a recipient is bound by its end"
    assert judge(file, "--at", str(end))[0] == 0


def test_a_folder_gets_the_verdicts_of_its_files(tmp_path: Path) -> None:
    """Three proofs are missing, another file's, or a link."""
    write_logged_trust(tmp_path)
    files = list(write_tree(tmp_path / "hub", 12, log=ORIGIN))
    write_sidecars(files)
    sidecars = [file.with_name(sidecar_name(file.name, leaf_of(read_token(file)).token)) for file in files]
    sidecars[0].unlink()
    sidecars[1].write_bytes(sidecars[2].read_bytes())
    sidecars[3].unlink()
    sidecars[3].symlink_to(sidecars[2].name)
    done = run(["verify", "hub", "--trust", "logged.yaml", "--json", "--jobs", "1"], tmp_path)
    lines = [json.loads(line) for line in done.out.splitlines()]
    found = {line["repo"] + "/" + line["path"]: line["verdict"] for line in lines if "checks" in line}
    bad = {f"{files[number].parts[-4]}/{'/'.join(files[number].parts[-3:])}" for number in (0, 1, 3)}
    assert len(found) == 12
    assert {name for name, verdict in found.items() if verdict != "verified"} == bad
    assert (done.code, lines[-1]["summary"]["findings"]) == (4, 0)


def test_a_malformed_or_missing_policy_is_refused_with_its_place(file: Path) -> None:
    policy = file.parents[4] / "policy"
    policy.write_text("quorum none\n")
    done = verify(file)
    assert (done.code, "log.policy" in done.err, "/issuers/0/log/policy" in done.err) == (3, True, True)
    policy.unlink()
    done = verify(file)
    assert (done.code, "file.unreadable" in done.err) == (3, True)
