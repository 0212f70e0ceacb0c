"""`issuer token inspect`: what a token says, that none of it is verified, and that a credential is called one and not shown."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from issuer.formats import jose
from issuer.formats.times import show_time
from issuer.identity import pat
from tests.support import make
from tests.support.in_process import Done, run

ITEM = make.submission()
TOKEN = make.token_for(ITEM)
SAYS = {"iss": "https://token.actions.githubusercontent.com", "aud": "https://issuer.example", "exp": 1792000300,
        "repository_id": "700000001", "run_attempt": 1, "note": "\x1b[2J"}  # fmt: skip
IDENTITY = make.signed({"alg": "EdDSA", "kid": "k", "typ": "JWT"}, json.dumps(SAYS).encode())
PAT = pat.make(random.Random(7).randbytes(pat.RANDOM_BYTES))


def inspect(folder: Path, *arguments: str, stdin: str = "") -> Done:
    return run(["token", "inspect", *arguments], folder, stdin=stdin)


def test_a_verify_token_is_told_in_plain_words_and_as_not_verified(tmp_path: Path) -> None:
    done = inspect(tmp_path, TOKEN)
    assert (done.code, done.err) == (0, "")
    first, *_ = done.out.splitlines()
    assert first == "verify token: NOT VERIFIED"
    claims = ITEM.claims
    for said in (
        f"{claims.model_repo} at {claims.model_revision}", f"task {claims.task_id}", claims.framework.version,
        show_time(make.payload_of(ITEM)["iat"]), "relying party", "Not verified: anybody can write this.",
    ):  # fmt: skip
        assert said in done.out, said
    assert TOKEN not in done.out
    assert "attempt" not in done.out


def test_an_attempt_is_told_where_there_is_one(tmp_path: Path) -> None:
    for number, words in ((3, "3 different"), (64, "64 or more different")):
        token = make.token_for(ITEM, attempt={"number": number, "since": 1792000000})
        assert f"{words} results of this run were signed since 2026-10-14T" in inspect(tmp_path, token).out


def test_every_token_of_a_result_file_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.yaml").write_text(make.file_for(ITEM) + make.file_for(ITEM))
    done = inspect(tmp_path, "gsm8k.yaml", "--json")
    told = json.loads(done.out)
    assert [one["pointer"] for one in told["tokens"]] == ["/0", "/1"]
    assert {(one["kind"], one["verified"], one["credential"]) for one in told["tokens"]} == {
        ("verify_token", False, False)
    }
    assert told["tokens"][0]["payload"] == json.loads(json.dumps(make.payload_of(ITEM)))
    assert told["tokens"][0]["times"]["iat"] == show_time(make.payload_of(ITEM)["iat"])


@pytest.mark.parametrize("how", ["-", "file", "typed"])
def test_an_identity_token_is_called_a_credential_and_its_claims_are_shown(how: str, tmp_path: Path) -> None:
    (tmp_path / "id.txt").write_text(IDENTITY + "\n")
    done = inspect(tmp_path, {"file": "id.txt", "typed": IDENTITY}.get(how, "-"), stdin=IDENTITY)
    assert done.code == 0
    assert done.out.startswith("identity or access token: NOT VERIFIED\n  warning: This is a credential")
    for said in ("repository_id  700000001", "run_attempt    the number 1", "2026-10-14T", r"\x1b[2J"):
        assert said in done.out, said
    assert ("was on the command line" in done.err) == (how == "typed")
    assert not any(part in done.out + done.err for part in IDENTITY.split("."))


def test_of_opaque_credentials_only_what_is_public_is_shown(tmp_path: Path) -> None:
    done = inspect(tmp_path, "-", stdin=PAT)
    assert (done.code, PAT[-49:] in done.out) == (0, False)
    assert f"id  {pat.token_id(PAT)}" in done.out
    for wrong in (PAT[:-1] + "!", PAT[:30]):
        refused = inspect(tmp_path, wrong)
        assert (refused.code, wrong[21:] in refused.err) == (3, False)


PAYLOAD = make.payload_of(ITEM)
BROKEN = {
    "cut": (TOKEN[:-20], "/signature"),
    "two parts": (TOKEN.rpartition(".")[0], "jws.malformed"),
    "other bits": (TOKEN[:-1] + "B", "jws.malformed"),
    "header": (f"{jose.base64url_encode(b'[1]')}{TOKEN[TOKEN.index('.'):]}", "jws.malformed"),
    "a member twice": (make.signed(make.HEADER, b'{"ver":1,"ver":1}'), "/payload"),
    "a time that is text": (make.token_for(ITEM, iat="now"), "/payload/iat"),
    "no object": (make.signed({"alg": "EdDSA", "typ": "JWT"}, b"[]"), "/payload"),
    "nothing": ("", "file.syntax"),
    "no token": (make.file_for(ITEM).partition("  verify_token")[0], "no entry has a token"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_token_is_refused_with_its_place_and_never_shown(name: str, tmp_path: Path) -> None:
    token, said = BROKEN[name]
    for arguments, stdin in ((("-",), token), *([((token,), "")] if "." in token[:200] else [])):
        done = inspect(tmp_path, *arguments, stdin=stdin)
        assert (done.code, done.out) == (3, ""), done
        assert said in done.err
        assert not [part for part in token.split(".") if len(part) > 16 and part in done.err]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = inspect(tmp_path, "tokens.txt")
    assert (done.code, "tokens.txt" in done.err) == (3, True)
