"""Proofs beside result files: found by the token, judged by their content, and harmless whatever they are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.formats import jcs
from issuer.relying.folders import MAX_SIDECAR_BYTES, Sidecars
from issuer.relying.verifier import FileVerifier
from issuer.results.entry import read_entries
from issuer.tlog.leaf import TokenLeaf
from issuer.verify import Context, verify_entries
from issuer.verify.check_log import AtHand, sidecar_name
from issuer.verify.report import Report, Status
from tests.support import make
from tests.support.tree import write_result
from tests.support.witnessed import ORIGIN, TestLog, leaf_of, trusted_log

SUBMISSION = make.submission()
TOKEN = make.token_for(SUBMISSION, log=ORIGIN)
OTHER = make.token_for(make.submission(task_id="other"), log=ORIGIN)
LOG = TestLog(TOKEN, OTHER)
GOOD = LOG.proof(TOKEN, make.NOW, make.NOW)
LEAF = leaf_of(TOKEN)
TRUST = make.trust(log=trusted_log(), require=frozenset({"log"}))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_result(tmp_path, make.REPO, "gsm8k.yaml", make.file_for(SUBMISSION, log=ORIGIN))


def beside(file: Path, leaf: TokenLeaf = LEAF) -> Path:
    return file.with_name(sidecar_name(file.name, leaf.token))


def judge(file: Path) -> Report:
    (report,) = FileVerifier(TRUST, None, Context(make.NOW + 9)).verify(file.read_bytes(), str(file), make.REPO)
    return report


def test_a_proof_is_found_by_the_names_of_its_file_and_token(file: Path) -> None:
    write_result(file.parents[2], make.REPO, f"other.yaml.{LEAF.token.hex()[:16]}.tlog-proof", GOOD)
    assert LEAF not in Sidecars(str(file))
    assert judge(file).checks[10].evidence == "no proof was found"
    beside(file).write_bytes(GOOD)
    assert beside(file).name == f"gsm8k.yaml.{LEAF.token.hex()[:16]}.tlog-proof"
    assert Sidecars(str(file))[LEAF] == AtHand(GOOD)
    assert judge(file).verdict == "verified"
    # Each token of a file has its own.
    second = make.submission(task_id="other")
    text = make.file_for(SUBMISSION, log=ORIGIN) + make.file_for(second, log=ORIGIN, jti="A" * 22)
    token = make.token_for(second, log=ORIGIN, jti="A" * 22)
    log = TestLog(TOKEN, token)
    file.write_text(text)
    for each in (TOKEN, token):
        beside(file, leaf_of(each)).write_bytes(log.proof(each, make.NOW, make.NOW))
    reports = FileVerifier(TRUST, None, Context(make.NOW + 9)).verify(file.read_bytes(), str(file), make.REPO)
    assert [report.checks[10].status for report in reports] == [Status.PASS, Status.PASS]
    assert [report.verdict for report in reports] == ["verified", "verified"]


HOSTILE: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to("good"),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "too large": lambda path: path.write_bytes(GOOD + b"x" * MAX_SIDECAR_BYTES),
    "nothing in it": lambda path: path.write_bytes(b""),
    "any bytes": lambda path: path.write_bytes(bytes(range(256))),
    "another leaf's": lambda path: path.write_bytes(LOG.proof(OTHER, make.NOW, make.NOW)),
}


def test_an_unusable_proof_counts_as_none(tmp_path: Path) -> None:
    for number, (kind, spoil) in enumerate(HOSTILE.items()):
        file = write_result(tmp_path / str(number), make.REPO, "gsm8k.yaml", make.file_for(SUBMISSION, log=ORIGIN))
        file.with_name("good").write_bytes(GOOD)
        spoil(beside(file))
        report = judge(file)
        assert (report.verdict, report.checks[10].status) == ("undecided", Status.UNKNOWN), kind
        assert "the proof at hand is not usable" in report.checks[10].evidence
        assert [check.status for check in report.checks[:9]] == [Status.PASS] * 9


class Watched(Sidecars):
    """The proofs beside a file, and which of them were looked for."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.looked: list[TokenLeaf] = []

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        self.looked.append(leaf)
        return super().__getitem__(leaf)


def test_nothing_is_opened_for_a_token_that_its_issuer_has_not_signed(file: Path) -> None:
    """The sender of a file decides its content: for a token that they sign themselves, no file is read."""
    forged = make.signed(make.HEADER, jcs.canonical(make.payload_of(SUBMISSION, log=ORIGIN)), make.STRANGER)
    proofs = Watched(str(file))
    for text, looked in ((file.read_text().replace(TOKEN, forged), []), (file.read_text(), [LEAF])):
        entries = read_entries(text.encode(), str(file))
        verify_entries(entries, make.REPO, make.PATH, TRUST, None, Context(make.NOW + 9, proofs=proofs))
        assert proofs.looked == looked
