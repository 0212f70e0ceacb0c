"""`issuer token inspect`: it shows a token's claims as not verified, and names a credential without showing it."""

import json
import random
from pathlib import Path

from issuer.formats import jose
from issuer.formats.times import show_time
from issuer.identity import pat
from tests.support import make
from tests.support.in_process import Done, run

ITEM = make.submission()
TOKEN, PAYLOAD = make.token_for(ITEM), make.payload_of(ITEM)
SAYS = {"iss": "https://token.actions.githubusercontent.com", "aud": "https://issuer.example", "exp": 1792000300,
        "repository_id": "700000001", "run_attempt": 1, "note": "\x1b[2J"}  # fmt: skip
IDENTITY = make.signed({"alg": "EdDSA", "kid": "k", "typ": "JWT"}, json.dumps(SAYS).encode())
PAT = pat.make(random.Random(7).randbytes(pat.RANDOM_BYTES))


def inspect(folder: Path, *arguments: str, stdin: str = "") -> Done:
    return run(["token", "inspect", *arguments], folder, stdin=stdin)


def test_a_verify_token_is_explained_as_not_verified(tmp_path: Path) -> None:
    done, claims = inspect(tmp_path, TOKEN), ITEM.claims
    assert (done.code, done.err, done.out.splitlines()[0]) == (0, "", "verify token: NOT VERIFIED")
    for text in (
        f"{claims.model_repo} at {claims.model_revision}", f"task {claims.task_id}", claims.framework.version,
        show_time(PAYLOAD["iat"]), "relying party", "Not verified: anybody can write this.",
    ):  # fmt: skip
        assert text in done.out, text
    assert (TOKEN in done.out, "attempt" in done.out) == (False, False)
    for number, words in ((3, "3 different"), (64, "64 or more different")):
        token = make.token_for(ITEM, attempt={"number": number, "since": 1792000000})
        assert f"{words} results of this run were signed since 2026-10-14T" in inspect(tmp_path, token).out


def test_every_token_of_a_result_file_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.yaml").write_text(make.file_for(ITEM) + make.file_for(ITEM))
    first, second = json.loads(inspect(tmp_path, "gsm8k.yaml", "--json").out)["tokens"]
    assert (first["pointer"], second["pointer"]) == ("/0", "/1")
    assert [first[name] for name in ("kind", "verified", "credential")] == ["verify_token", False, False]
    assert first["payload"] == json.loads(json.dumps(PAYLOAD))
    assert first["times"]["iat"] == show_time(PAYLOAD["iat"])


def test_an_identity_token_is_named_a_credential_and_its_claims_are_shown(tmp_path: Path) -> None:
    (tmp_path / "id.txt").write_text(IDENTITY + "\n")
    for argument in ("-", "id.txt", IDENTITY):
        done = inspect(tmp_path, argument, stdin=IDENTITY)
        assert done.code == 0
        assert done.out.startswith("identity or access token: NOT VERIFIED\n  warning: This is a credential")
        for text in ("repository_id  700000001", "run_attempt    the number 1", "2026-10-14T", r"\x1b[2J"):
            assert text in done.out, text
        assert ("was on the command line" in done.err) == (argument == IDENTITY)
        assert not any(part in done.out + done.err for part in IDENTITY.split("."))


def test_only_the_public_id_of_an_opaque_credential_is_shown(tmp_path: Path) -> None:
    done = inspect(tmp_path, "-", stdin=PAT)
    assert (done.code, PAT[-49:] in done.out) == (0, False)
    assert f"id  {pat.token_id(PAT)}" in done.out
    for wrong in (PAT[:-1] + "!", PAT[:30]):
        refused = inspect(tmp_path, wrong)
        assert (refused.code, wrong[21:] in refused.err) == (3, False)


def test_a_malformed_token_is_refused_with_its_place_and_never_shown(tmp_path: Path) -> None:
    for token, text in {
        TOKEN[:-20]: "/signature",
        TOKEN.rpartition(".")[0]: "jws.malformed",
        TOKEN[:-1] + "B": "jws.malformed",
        f"{jose.base64url_encode(b'[1]')}{TOKEN[TOKEN.index('.') :]}": "jws.malformed",
        make.signed(make.HEADER, b'{"ver":1,"ver":1}'): "/payload",
        make.token_for(ITEM, iat="now"): "/payload/iat",
        make.signed({"alg": "EdDSA", "typ": "JWT"}, b"[]"): "/payload",
        "": "file.syntax",
        make.file_for(ITEM).partition("  verify_token")[0]: "no entry has a token",
    }.items():
        for arguments, stdin in ((("-",), token), *([((token,), "")] if "." in token[:200] else [])):
            done = inspect(tmp_path, *arguments, stdin=stdin)
            assert (done.code, done.out, text in done.err) == (3, "", True), (token, done)
            assert not [part for part in token.split(".") if len(part) > 16 and part in done.err]
    done = inspect(tmp_path, "tokens.txt")
    assert (done.code, "tokens.txt" in done.err) == (3, True)
