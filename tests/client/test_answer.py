"""The answers of a hostile issuer, over real HTTP: they are not used, and the error names the fault."""

import gzip
import itertools
import json
import socket
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from issuer.client import Credential, request_batch, request_token
from issuer.codes import Code
from issuer.errors import Undecided, VerificationError
from issuer.formats import jcs
from issuer.results.entry import read_entries, write_entry
from issuer.token.wire import is_nonce
from tests.support import make
from tests.support.hostile_issuer import Good, HostileIssuer, Lie, Spoil
from tests.support.scripted import Action, drip, hang_up, reply
from tests.support.witnessed import ORIGIN, SPARE, TestLog

CREDENTIAL = Credential("an-identity", reusable=False)
BODY: dict[str, Any] = {
    "claims": make.claims(), "details": {"notes": "no tools"}, "integration": "inspect-ai", "audience": make.AUDIENCE,
}  # fmt: skip
OTHER = make.submission({"notes": "no tools"}, metrics=[{"metric_id": "accuracy", "value": 99.9}])
PROMPTED = make.submission({"notes": "many tools"})


def entry(good: Good, **members: Any) -> str:
    """Write the good entry with changed members, and with a good token."""
    token = good.answer()["verify_token"]
    return write_entry({**good.sent.form, **members}, token)


def by(good: Good, key: Any, header: dict[str, Any]) -> dict[str, Any]:
    answer = good.answer()
    payload = jcs.canonical(make.payload_of(good.sent, **good.terms))
    token = make.signed(header, payload, key)
    return {**answer, "verify_token": token, "kid": header["kid"], "entry": good.sent.entry(token)}


STRANGER_S = make.statement_header("eval-verify+jwt", make.STRANGER)
DAY = 86_400
LIES: dict[str, tuple[Lie, str]] = {
    "another score, signed": (lambda good: good.answer(OTHER), "not the submitted result: claims_digest"),
    "another score in the entry": (lambda good: good.answer(entry=entry(good, metrics=[{"metric_id": "accuracy", "value": 0.01}])), "not the submitted result"),

    "other notes, signed": (lambda good: good.answer(PROMPTED), "not the submitted result: content_digest"),
    "other notes in the entry": (lambda good: good.answer(entry=entry(good, notes="x")), "not the submitted result: content_digest"),
    "a member more in the entry": (lambda good: good.answer(entry=entry(good, rank=1)), "not the submitted result: content_digest"),
    "a value beside the metrics": (lambda good: good.answer(entry=entry(good, value=99.9)), "has a `value`, which was not sent"),
    "another model, signed": (lambda good: good.answer(make.submission({"notes": "no tools"}, model_repo="acme/other")), "for another model repository"),
    "no token": (lambda good: {**good.answer(), "verify_token": "", "entry": write_entry(good.sent.form)}, "its token cannot be read"),
    "no token in the entry": (lambda good: good.answer(entry=write_entry(good.sent.form)), "its entry has no token"),

    "another token in the entry": (lambda good: good.answer(entry=good.sent.entry(good.answer(exp=good.terms["exp"] - 1)["verify_token"])), "another token than"),
    "no entry": (lambda good: good.answer(entry="[]\n"), "0 entries"),
    "two entries": (lambda good: good.answer(entry=good.answer()["entry"] * 2), "2 entries"),
    "a broken entry": (lambda good: good.answer(entry="- ["), "its entry cannot be read"),
    "a lone surrogate": (lambda good: good.answer(entry="- \ud800"), "did not come from an issuer"),
    "a stranger's key under our kid": (lambda good: by(good, make.STRANGER, make.HEADER), "check 3"),
    "a stranger's key": (lambda good: by(good, make.STRANGER, STRANGER_S), "no key with the kid"),
    "another type": (lambda good: by(good, make.KEY, {**make.HEADER, "typ": "JWT"}), "check 1"),
    "another issuer's": (lambda good: good.answer(iss="https://other.example"), "check 2"),
    "another relying party": (lambda good: good.answer(aud="https://other.example"), "for another audience: https://other"),
    "another integration": (lambda good: good.answer(sub="other"), "for another integration: other"),
    "expired": (lambda good: good.answer(**dict.fromkeys(("iat", "nbf"), good.terms["iat"] - DAY), exp=good.terms["iat"] - DAY + 60), "check 5"),
    "from the future": (lambda good: good.answer(**dict.fromkeys(("iat", "nbf"), good.terms["iat"] + 600)), "check 5"),
    "for two days": (lambda good: good.answer(exp=good.terms["iat"] + 2 * DAY), "its token cannot be read"),
    "a member more in the token": (lambda good: good.answer(admin=True), "its token cannot be read"),
    "another version": (lambda good: good.answer(ver=2), "its token cannot be read"),
    **{
        f"another {name} beside the token": (lambda good, name=name, value=value: {**good.answer(), name: value}, f"`{name}` of the answer is not the token's")  # type: ignore[misc]
        for name, value in {
            "token_type": "JWT", "kid": "k", "jti": make.JTI[::-1], "issued_at": 1, "expires_at": 2**40, "policy": "sha256:" + "1" * 64,
            "claims_digest": "sha256:" + "1" * 64, "content_digest": "sha256:" + "1" * 64, "integration": "other",
            "log": {"origin": "log.example", "index": 1, "proof": ""},
        }.items()
    },
}  # fmt: skip


def logged(good: Good, *, log: TestLog | None = None, **place: Any) -> dict[str, Any]:
    """Answer a token that is in a log, with a place there of which members are changed."""
    answer = good.answer(log=ORIGIN)
    token = answer["verify_token"]
    proof = (log or TestLog(token)).proof(token).decode()
    return {**answer, "log": {"origin": ORIGIN, "index": 5, "proof": proof, **place}}


def in_another_log(good: Good) -> dict[str, Any]:
    token = good.answer(log=ORIGIN)["verify_token"]
    return logged(good, proof=TestLog(token, origin=SPARE).proof(token).decode())


def of_another_token(good: Good) -> dict[str, Any]:
    other = good.answer(OTHER, log=ORIGIN)["verify_token"]
    return logged(good, proof=TestLog(other).proof(other).decode())


LIES |= {
    "a place in no log": (lambda good: good.answer(log=ORIGIN), "`log` of the answer is not the token's: None, not"),
    "another log": (lambda good: logged(good, origin=SPARE), "`log` of the answer is not the token's"),
    "another place": (lambda good: logged(good, index=4), "it is of leaf 5, not of 4"),
    "no proof": (lambda good: logged(good, proof=""), "does not show the token in the log: a proof must have"),
    "a proof in another log": (in_another_log, f"its checkpoint is of the log {SPARE}"),
    "another token's proof": (of_another_token, "do not lead from this token's leaf"),
    "claims that no leaf has": (lambda good: logged(good) | good.answer(log=ORIGIN, sub="two words"), "does not show the token in the log"),
}  # fmt: skip


def test_an_answer_for_another_request_or_one_that_may_not_be_signed_is_refused() -> None:
    for name, (lie, reason) in LIES.items():
        with HostileIssuer(lie) as server, pytest.raises((VerificationError, Undecided)) as refused:
            request_token(server.url, CREDENTIAL, BODY)
        assert len(server.posted) == 1, "the same lie would come again: it is not requested again"
        assert isinstance(refused.value, VerificationError) or name == "a lone surrogate", name
        texts = " ".join([str(refused.value), *(fault.detail for fault in refused.value.faults)])
        assert reason in texts, name
    signed = reply(201, Good("https://x.example", BODY).answer())
    with HostileIssuer(answers=[signed]) as server, pytest.raises(VerificationError, match="must not sign") as refused:
        request_token(server.url, CREDENTIAL, {**BODY, "claims": make.claims(model_revision="main")})
    assert refused.value.code is Code.ANSWER_UNVERIFIED


def test_a_good_answer_is_taken_and_its_entry_is_written_again() -> None:
    drawn = "# \u202e verified by everybody\n"
    with HostileIssuer(
        lambda good: {**logged(good), "entry": drawn + good.answer(log=ORIGIN)["entry"], "new": 1}
    ) as server:
        issued = request_token(server.url, CREDENTIAL, BODY)
    (read,) = read_entries(issued.entry.encode(), "")
    assert read.token == issued.verify_token
    assert issued.entry.startswith("- dataset:"), "the issuer must not add what no digest binds"
    assert issued.log is not UNSET
    assert (issued.log.origin, issued.log.index) == (ORIGIN, 5)
    with HostileIssuer(lambda good: good.answer(sub="other", aud="https://other.example")) as server:
        issued = request_token(server.url, CREDENTIAL, {"claims": BODY["claims"]})
    assert issued.integration == "other", "none was given"


def endless(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def endless_head(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in itertools.count():
            connection.sendall(b"X-%d: x\r\n" % number)


BODIES: dict[str, Action] = {
    "huge": reply(200, b" " * (5 * 1024 * 1024)),
    "endless": endless,
    "an endless head": endless_head,
    "slow": drip,
    "redirected": reply(307, b"", Location="http://127.0.0.1:1/elsewhere"),
    "compressed": reply(200, gzip.compress(msgspec.json.encode({})), Content_Encoding="gzip"),
    "a bomb": reply(200, gzip.compress(b" " * (64 * 1024 * 1024)), Content_Encoding="gzip"),
    "empty": reply(200),
    "no content": reply(204),
    "lost": hang_up,
}


@pytest.mark.parametrize("where", ["tokens", "keys"])
def test_a_broken_answer_is_undecided_in_time(where: str) -> None:
    for name, body in BODIES.items():
        with HostileIssuer(answers=[body]) if where == "tokens" else HostileIssuer(keys=[body]) as server:
            with pytest.raises(Undecided) as undecided:
                request_token(server.url, CREDENTIAL, BODY, patience_s=1)
            assert (len(server.posted) > 0) == (where == "tokens"), "without keys no use of the identity is spent"
        if where == "keys":
            assert undecided.value.code is Code.DEPENDENCY_KEY_SET, name


def test_a_changed_key_is_fetched_or_the_same_request_gets_the_same_token_later() -> None:
    other, good = reply(200, make.jwks(make.STRANGER)), reply(200, make.jwks())
    with HostileIssuer(keys=[other, good]) as server:
        assert request_token(server.url, CREDENTIAL, BODY).kid == make.KID
        assert (server.asked_for_keys, len(server.posted)) == (2, 1)
    with HostileIssuer(keys=[other, hang_up, good]) as server:
        with pytest.raises(Undecided) as undecided:
            request_token(server.url, CREDENTIAL, BODY, patience_s=0.5)
        assert undecided.value.code is Code.DEPENDENCY_KEY_SET
        assert request_token(server.url, CREDENTIAL, BODY).kid == make.KID
        first, second = server.posted
        assert first.raw == second.raw


ITEMS = [{"claims": make.claims(task_id=f"task{number}")} for number in range(3)]
BATCH = {"results": ITEMS, "audience": make.AUDIENCE}


def test_a_batch_is_taken_whole_and_in_order_or_not_at_all() -> None:
    with HostileIssuer() as server:
        issued = request_batch(server.url, CREDENTIAL, BATCH)
    assert [read_entries(one.entry.encode(), "")[0].dataset.task_id for one in issued] == ["task0", "task1", "task2"]
    cases: list[tuple[Spoil, str]] = [
        (lambda tokens: tokens[::-1], "(of /results/0)"),
        (lambda tokens: tokens[:2], "2 tokens for 3 results"),
        (lambda tokens: [*tokens, tokens[0]], "4 tokens for 3 results"),
        (lambda tokens: [*tokens[:2], {**tokens[2], "jti": tokens[1]["jti"]}], "two of the tokens have the same jti"),
        (lambda tokens: [*tokens[:2], {**tokens[2], "entry": tokens[1]["entry"]}], "(of /results/2)"),
    ]
    for spoil, reason in cases:
        with HostileIssuer(spoil=spoil) as server, pytest.raises(VerificationError) as refused:
            request_batch(server.url, CREDENTIAL, BATCH)
        assert reason in str(refused.value)


def test_a_reusable_credential_gets_a_nonce_unless_the_request_has_one() -> None:
    reusable, given = Credential("an-access-token", reusable=True), "n" * 22
    with HostileIssuer() as server:
        request_token(server.url, reusable, BODY)
        request_token(server.url, reusable, {**BODY, "nonce": given})
        request_batch(server.url, reusable, BATCH)
    first, second, third = (json.loads(seen.body)["nonce"] for seen in server.posted)
    assert (is_nonce(first), second, is_nonce(third)) == (True, given, True)
