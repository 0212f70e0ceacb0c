"""The proof of a logged token: requested until witnesses have cosigned, checked, and put beside the result file."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from issuer.client import put_proof, wait_for_proof
from issuer.client.files import LogProof
from issuer.errors import VerificationError
from issuer.relying.folders import Sidecars
from issuer.token.wire import IssuedToken
from tests.support import make
from tests.support.command import issuer
from tests.support.hostile_issuer import Good, HostileIssuer
from tests.support.scripted import Action, hang_up, reply, stall
from tests.support.witnessed import ORIGIN, TestLog, leaf_of

GOOD = Good("https://issuer.example", {"claims": make.claims()}).answer(log=ORIGIN)
TOKEN: str = GOOD["verify_token"]
LOG = TestLog(TOKEN)
FIRST, COSIGNED = LOG.proof(TOKEN), LOG.proof(TOKEN, make.NOW, make.NOW)
ISSUED = msgspec.convert({**GOOD, "log": {"origin": ORIGIN, "index": 5, "proof": FIRST.decode()}}, IssuedToken)
PENDING = reply(503, {"code": "log.pending"}, Retry_After="1")


def wait(*answers: Action, patience_s: float = 5, issued: IssuedToken = ISSUED) -> tuple[LogProof | None, list[str]]:
    with HostileIssuer(proofs=list(answers)) as server:
        return wait_for_proof(server.url, issued, patience_s=patience_s), server.asked_for_proofs


def test_a_proof_is_requested_by_the_token_s_leaf_until_there_is_one() -> None:
    leaf = leaf_of(TOKEN)
    found, asked = wait(PENDING, reply(404), reply(500), hang_up, reply(200, COSIGNED), patience_s=60)
    assert found == LogProof(leaf.token, COSIGNED)
    assert asked == [f"/log/proof?iat={leaf.iat}&token={leaf.token.hex()}"] * 5
    for answer in (PENDING, stall):
        found, asked = wait(answer, patience_s=0.7)
        assert (found, len(asked) <= 10) == (None, True), "not without a pause"
    assert wait(PENDING, issued=replace(ISSUED, log=UNSET)) == (None, []), "the token is in no log"


def test_a_proof_that_does_not_show_the_token_in_its_log_is_refused() -> None:
    other_leaf = TestLog(TOKEN, others=4).proof(TOKEN).replace(b"index 4", b"index 3")
    for raw in (b"", b"<html>", other_leaf):
        with pytest.raises(VerificationError, match="does not show it in the log"):
            wait(reply(200, raw))


def test_a_proof_is_put_beside_its_file_and_never_through_a_link(tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "gsm8k.yaml", tmp_path / "elsewhere"
    proof = LogProof(leaf_of(TOKEN).token, COSIGNED)
    place = put_proof(file, proof)
    assert place == tmp_path / f"gsm8k.yaml.{leaf_of(TOKEN).token.hex()[:16]}.tlog-proof"
    assert Sidecars(str(file))[leaf_of(TOKEN)].proof == COSIGNED
    elsewhere.write_text("mine")
    place.unlink()
    place.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        put_proof(file, proof)
    assert elsewhere.read_text() == "mine"
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    with pytest.raises(OSError, match="symbolic link"):
        put_proof(tmp_path / "link" / "gsm8k.yaml", proof)


class Logging(HostileIssuer):
    """An issuer with a log: it proves the last token, after `late` requests without a proof."""

    def __init__(self, late: int = 0) -> None:
        self.token = ""
        super().__init__(self.answer_logged, proofs=[*[PENDING] * late, self.prove])

    def answer_logged(self, good: Good) -> dict[str, Any]:
        answer = good.answer(log=ORIGIN)
        self.token = answer["verify_token"]
        proof = TestLog(self.token).proof(self.token).decode()
        return {**answer, "log": {"origin": ORIGIN, "index": 5, "proof": proof}}

    def prove(self, connection: Any) -> None:
        now = int(time.time())
        connection.sendall(reply(200, TestLog(self.token).proof(self.token, now, now)))


def request(server: HostileIssuer, folder: Path, *more: str) -> Any:
    (folder / "claims.json").write_text(json.dumps({"claims": make.claims()}))
    out = folder / make.PATH
    return issuer(
        "token", "request", "--issuer", server.url, "--claims", folder / "claims.json", "--out", out, *more,
        env={"ISSUER_ID_TOKEN": "an-identity"},
    )  # fmt: skip


def test_a_request_leaves_the_proof_of_its_token_beside_the_result(tmp_path: Path) -> None:
    file = tmp_path / make.PATH
    with Logging() as server:
        server.proofs[:] = [reply(200, COSIGNED)]
        wrong = request(server, tmp_path)
    assert (wrong.returncode, "does not show it in the log" in wrong.stderr) == (1, True)
    assert (server.token in file.read_text(), list(file.parent.glob("*.tlog-proof"))) == (True, []), "the entry stays"
    with Logging(late=1) as server:
        done = request(server, tmp_path)
    assert (done.returncode, done.stderr.count("the proof that the log has this token")) == (0, 1)
    (sidecar,) = file.parent.glob("*.tlog-proof")
    assert Sidecars(str(file))[leaf_of(server.token)].proof == sidecar.read_bytes()
    assert server.token in file.read_text()


@pytest.mark.long
def test_a_log_that_has_no_proof_in_time_is_a_warning(tmp_path: Path) -> None:
    with Logging() as server:
        server.proofs[:] = [PENDING]
        done = request(server, tmp_path)
    assert (done.returncode, "the log has no proof yet" in done.stderr) == (0, True)
