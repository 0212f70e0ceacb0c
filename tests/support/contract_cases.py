"""The cases of `tests/vectors/contract/verify.json`: result files with a relying party's trust, clock and evidence.

Each breaks one thing of a good file, and says which.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from issuer.formats import jcs, jose
from issuer.results.entry import write_entry
from issuer.tlog.leaf import token_digest as leaf_digest
from issuer.verify.receipts import RECEIPT_TYPE, token_digest
from issuer.verify.report import NAMES
from tests.support import make
from tests.support.witnessed import ORIGIN, TestLog, policy_text

NOW, EXP, LATER = make.NOW, make.NOW + 3600, make.NOW + make.YEAR
DETAILS: dict[str, Any] = {
    "date": "2026-11-21", "notes": "no tools",
    "run": {"num_samples": 8, "selection": {"accuracy": "match/accuracy"}},
}  # fmt: skip
SAID = make.submission(DETAILS)
TOKEN = make.token_for(SAID)
FILE = make.file_for(SAID)
LOGGED = make.token_for(SAID, log=ORIGIN)
OTHER_LOGGED = make.token_for(make.submission(task_id="other"), log=ORIGIN)
LOG = TestLog(OTHER_LOGGED, LOGGED)
Case = dict[str, Any]


def _trust(issuer: Case | None = None, *, keys: bytes | None = make.jwks(), at: int = NOW + 1, **more: Any) -> Case:
    """Return a trust file and the documents of its URLs: those of `issuer` and of `more` that are bytes, or None."""
    entry: Case = {"issuer": make.ISSUER, "keys": {"url": f"{make.ISSUER}/.well-known/jwks.json"}}
    file: Case = {"version": 1, "audience": make.AUDIENCE, "issuers": [entry]}
    documents = {"/issuers/0/keys": keys}
    for into, parts, above in ((entry, issuer or {}, "/issuers/0"), (file, more, "")):
        for name, value in parts.items():
            if isinstance(value, bytes | None):
                into[name] = {"url": f"{make.ISSUER}/{name}"}
                documents[f"{above}/{name}"] = value
            else:
                into[name] = value
    fetched = {at_: {"text": raw and raw.decode(), "fetched_at": at} for at_, raw in documents.items()}
    return {"file": file, "documents": fetched}


_ARCHIVE = make.jwks(active_from=NOW - 86_400, last_token_exp=NOW + 30 * 86_400)
_REVOKED_KEY = make.jwks(active_from=NOW - 86_400, last_token_exp=NOW + 30 * 86_400, revoked_from=NOW + 600)
_RECEIPTS = make.jwks(make.RECEIPT_KEY)
_LISTS = make.jwks(make.REVOCATION_KEY)
_STRANGER = make.jwks(make.STRANGER)
_COMMIT = SAID.claims.benchmark_revision
_WITNESSED = {"policy": {"inline": policy_text(2)}}

TRUSTS: dict[str, Case] = {
    "plain": _trust(),
    "keys unavailable": _trust(keys=None),
    "other keys": _trust(keys=_STRANGER),
    "other keys, from before the token": _trust(keys=_STRANGER, at=NOW - 1),
    "another audience": _trust(audience="https://other.example"),
    "another framework": _trust({"frameworks": ["lm-eval"]}),
    "this framework": _trust({"frameworks": ["inspect-ai"]}),
    "short lives": _trust(max_token_life_s=3599),
    "at most two attempts": _trust(max_attempt=2),
    "every attempt, if it is said": _trust(max_attempt=64, require=["attempt"]),
    "archive": _trust({"archive": _ARCHIVE}, keys=_STRANGER),
    "archive unavailable": _trust({"archive": None}, keys=_STRANGER),
    "receipts": _trust(receipt_keys=_RECEIPTS),
    "receipts, at most two attempts": _trust(receipt_keys=_RECEIPTS, max_attempt=2),
    "receipts and archive": _trust({"archive": _ARCHIVE}, keys=_STRANGER, receipt_keys=_RECEIPTS),
    "receipts, key revoked": _trust({"archive": _REVOKED_KEY}, keys=_STRANGER, receipt_keys=_RECEIPTS),
    "nothing revoked": _trust({"revocations": make.revocation_list()}, revocation_keys=_LISTS),
    "jti revoked": _trust({"revocations": make.revocation_list(jti=[make.JTI])}, revocation_keys=_LISTS),
    "integration revoked": _trust(
        {"revocations": make.revocation_list(sub=[{"sub": "inspect-ai", "from": NOW - 9, "until": NOW + 9}])},
        revocation_keys=_LISTS,
    ),
    "integration revoked later": _trust(
        {"revocations": make.revocation_list(sub=[{"sub": "inspect-ai", "from": NOW + 1}])}, revocation_keys=_LISTS
    ),
    "list by another key": _trust({"revocations": make.revocation_list(key=make.STRANGER)}, revocation_keys=_LISTS),
    "benchmark": _trust(require=["benchmark"]),
    "the definition pinned": _trust(definitions={make.BENCHMARK: _COMMIT}),
    "definitions listed": _trust(definitions={make.BENCHMARK: ["0" * 40, _COMMIT]}, require=["benchmark"]),
    "another definition pinned": _trust(definitions={make.BENCHMARK.upper(): "0" * 40}),
    "other definitions listed": _trust(definitions={make.BENCHMARK: ["0" * 40, "1" * 64]}, require=["benchmark"]),
    "any definition": _trust(definitions={make.BENCHMARK: "any", "openai/other": "0" * 40}, require=["benchmark"]),
    "log": _trust({"log": _WITNESSED}, require=["log"]),
    "log, not required": _trust({"log": _WITNESSED}),
    "log without witnesses": _trust({"log": {"policy": {"inline": policy_text(0)}}}),
}


def _case(name: str, text: str = FILE, trust: str = "plain", *, at: int | None = NOW + 5, **more: Any) -> Case:
    """Return a case: received at `at`, by the relying party's own clock, or by a reader who cannot know (None)."""
    known = {"now": NOW + 5 if at is None else at, "witnessed": at is not None, "repo": make.REPO, "path": make.PATH}
    return {"name": name, "file": text, "trust": trust, "at": at, **known, **more}


def _changed(old: str, new: str, text: str = FILE) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def _with_token(token: str) -> str:
    return write_entry(SAID.form, token)


def _good() -> Iterator[Case]:
    yield _case("good")
    yield _case("good, RFC 9864's name of the algorithm", make.file_for(SAID, header={**make.HEADER, "alg": "Ed25519"}))
    yield _case("good, the number in another spelling", _changed("value: 20.9\n", "value: 2.09e+1\n"))
    yield _case("good, the token in the live Hub's spelling", _changed("verify_token", "verifyToken"))
    yield _case("good, plain text in place of quotes", _changed('"no tools"', "no tools"))
    yield _case("good, a null is as good as absent", _changed("  notes:", "  artifacts: null\n  notes:"))
    items: list[Any] = [{"metric_id": "a", "value": 1, "slice": "s"}, {"metric_id": "a", "value": 2}]
    two = make.submission(metrics=items)
    yield _case("good, metrics in another order", write_entry({**two.form, "metrics": items}, make.token_for(two)))
    yield _case("good, for this framework", trust="this framework")
    bare = "".join(line for line in FILE.splitlines(keepends=True) if "verify_token" not in line)
    yield _case("no token", bare)
    yield _case("no token, and a member that says verified", f"{bare}  verified: true\n")
    yield _case("no metrics", f'- dataset: {{id: "{make.BENCHMARK}"}}\n  value: 20.9\n  verify_token: "{TOKEN}"\n')


def _tokens() -> Iterator[Case]:
    head, payload, signature = TOKEN.split(".")
    for name, header in {
        "typ JWT": {**make.HEADER, "typ": "JWT"}, "a receipt's typ": {**make.HEADER, "typ": RECEIPT_TYPE},
        "a member more in the header": {**make.HEADER, "crit": ["exp"]}, "no kid": {"alg": "EdDSA", "typ": "eval-verify+jwt"},
        "alg none": {**make.HEADER, "alg": "none"}, "alg HS256": {**make.HEADER, "alg": "HS256"},
        "alg in lower case": {**make.HEADER, "alg": "eddsa"},
    }.items():  # fmt: skip
        yield _case(f"token: {name}", make.file_for(SAID, header=header))
    payloads: dict[str, dict[str, Any]] = {
        "another version": {"ver": 2}, "no exp": {"exp": ...}, "exp is text": {"exp": str(EXP)}, "an unknown claim": {"extra": 1},
        "two audiences": {"aud": [make.AUDIENCE]}, "a jti of 15 bytes": {"jti": "AAECAwQFBgcICQoLDA0O"}, "nbf before iat": {"nbf": NOW - 1},
        "a life of more than a day": {"exp": NOW + 86_401}, "a branch": {"model_revision": "main"},
    }  # fmt: skip
    for name, members in payloads.items():
        yield _case(f"token: {name}", make.file_for(SAID, **members))
    said = make.payload_of(SAID)
    spaced = jcs.canonical(said).replace(b'":', b'": ', 1)
    yield _case("token: white space in the payload", _with_token(make.signed(make.HEADER, spaced)))
    reordered = b'{"ver":1,' + jcs.canonical({name: each for name, each in said.items() if name != "ver"})[1:]
    yield _case("token: members in another order", _with_token(make.signed(make.HEADER, reordered)))
    twice = jcs.canonical(said)[:-1] + b',"ver":1}'
    yield _case("token: a claim twice", _with_token(make.signed(make.HEADER, twice)))
    for name, token in {
        "padded": f"{TOKEN}=", "with a space": f" {TOKEN}", "two parts": f"{head}.{payload}", "an empty signature": f"{head}.{payload}.",
        "standard base64": f"{head}.{payload}.{signature[:-1]}+", "no base64": "eyJ.???.x", "too long": f"{TOKEN}{'A' * 16_384}",
    }.items():  # fmt: skip
        yield _case(f"token: {name}", _with_token(token))


def _keys() -> Iterator[Case]:
    head, payload, signature = TOKEN.split(".")
    yield _case("an issuer that is not trusted", make.file_for(SAID, iss="https://evil.example"))
    yield _case("an issuer with a slash more", make.file_for(SAID, iss=f"{make.ISSUER}/"))
    yield _case("a kid that the issuer does not publish", trust="other keys")
    yield _case("a kid that an old copy of the keys lacks", trust="other keys, from before the token")
    yield _case("a kid that is misspelt", make.file_for(SAID, header={**make.HEADER, "kid": make.KID.swapcase()}))
    yield _case("no keys at hand", trust="keys unavailable")
    yield _case("no keys at hand, and another file name", trust="keys unavailable", path=".eval_results/other.yaml")
    yield _case("a retired key, in its window", trust="archive")
    yield _case("a key that may have retired", trust="archive unavailable")
    zeros = jose.base64url_encode(bytes(64))
    yield _case("a signature of zeros", _with_token(f"{head}.{payload}.{zeros}"))
    raw = jose.base64url_decode(signature)
    spoilt = jose.base64url_encode(bytes([raw[0] ^ 1]) + raw[1:])
    yield _case("a signature with one bit changed", _with_token(f"{head}.{payload}.{spoilt}"))
    by_stranger = make.signed(make.HEADER, jcs.canonical(make.payload_of(SAID)), make.STRANGER)
    yield _case("a signature by another key", _with_token(by_stranger))
    order = 2**252 + 27742317777372353535851937790883648493
    large = int.from_bytes(raw[32:], "little") + order
    unreduced = jose.base64url_encode(raw[:32] + large.to_bytes(32, "little"))
    yield _case("a signature with S beyond the group's order", _with_token(f"{head}.{payload}.{unreduced}"))
    yield _case("another relying party", trust="another audience")
    yield _case("an audience with a slash more", make.file_for(SAID, aud=f"{make.AUDIENCE}/"))
    yield _case("another framework than the issuer may speak for", trust="another framework")


def _attempts() -> Iterator[Case]:
    def attempt(number: Any = 2, **more: Any) -> str:
        return make.file_for(SAID, attempt=make.without_dots({"number": number, "since": NOW - 86_400, **more}))

    limited, required = "at most two attempts", "every attempt, if it is said"
    for name, text, trust in (
        ("without a limit", attempt(64), "plain"), ("the highest that is trusted", attempt(), limited),
        ("above the highest that is trusted", attempt(3), limited), ("64 or more, where two are trusted", attempt(64), limited),
        ("64 or more, where every one is trusted", attempt(64), required), ("not said, where two are trusted", FILE, limited),
        ("not said, where it is required", FILE, required), ("said, where it is required", attempt(1), required),
        ("zero", attempt(0), limited), ("65", attempt(65), "plain"), ("true", attempt(True), "plain"), ("a fraction", attempt(1.5), "plain"),
        ("text", attempt("2"), "plain"), ("without since", attempt(since=...), "plain"), ("with a member more", attempt(of=5), "plain"),
        ("a minute after the issue", attempt(since=NOW + 60), "plain"), ("more than a minute after the issue", attempt(since=NOW + 61), "plain"),
        ("since before 1970", attempt(since=-1), "plain"),
    ):  # fmt: skip
        yield _case(f"attempt: {name}", text, trust)
    yield _case("attempt: null", make.file_for(SAID, attempt=None))
    spelled = jcs.canonical(make.payload_of(SAID, attempt={"number": 2, "since": NOW})).replace(
        b'"number":2,', b'"number":2.0,'
    )
    yield _case("attempt: in another spelling", _with_token(make.signed(make.HEADER, spelled)))
    third = make.token_for(SAID, attempt={"number": 3, "since": NOW})
    for trust in ("receipts", "receipts, at most two attempts"):
        name = f"attempt: three, read a year later by {trust}"
        yield _case(name, _with_token(third), trust, at=None, now=LATER, receipts=_receipt(third))


def _times() -> Iterator[Case]:
    for name, at in {
        "a minute before its time": NOW - 60, "more than a minute before its time": NOW - 61, "in its last second": EXP,
        "a second after its end": EXP + 1, "a year after its end": LATER,
    }.items():  # fmt: skip
        yield _case(f"received {name}", at=at)
    yield _case("received a year after its end, as is stated", at=LATER, witnessed=False)
    yield _case("read before its end", at=None)
    yield _case("read a second after its end", at=None, now=EXP + 1)
    yield _case("read a year after its end, where receipts are kept", trust="receipts", at=None, now=LATER)
    yield _case("read a year after its end, changed", _changed("20.9", "21.9"), at=None, now=LATER)
    yield _case("not before ten minutes from its issue", make.file_for(SAID, nbf=NOW + 600))
    yield _case("a longer life than is trusted", trust="short lives")


def _receipt(token: str = TOKEN, **members: Any) -> dict[str, str]:
    """Return a receipt for a token of the good file by its digest, with changed members."""
    checks = {str(number): "pass" if number < 10 else "skip" for number in NAMES}
    says: Case = {
        "ver": 1, "repo": make.REPO, "path": make.PATH, "token": token_digest(token), "jti": make.JTI,
        "content_digest": SAID.content_digest, "at": NOW + 5, "kid": make.KID, "trust": f"sha256:{'7' * 64}",
        "checks": checks, "iat": NOW + 5,
    }  # fmt: skip
    header = make.statement_header(RECEIPT_TYPE, make.RECEIPT_KEY)
    return {token_digest(token): make.signed(header, jcs.canonical({**says, **members}), make.RECEIPT_KEY)}


def _receipts() -> Iterator[Case]:
    for name, receipts, trust in (
        ("a receipt", _receipt(), "receipts"),
        ("a receipt, the key retired", _receipt(), "receipts and archive"),
        ("no receipt, the key retired", {}, "receipts and archive"),
        ("a receipt from before the key was revoked", _receipt(), "receipts, key revoked"),
        ("a receipt from after the key was revoked", _receipt(iat=NOW + 600), "receipts, key revoked"),
        ("a receipt for another repository", _receipt(repo="acme/other"), "receipts"),
        ("a receipt for another entry", _receipt(content_digest=f"sha256:{'0' * 64}"), "receipts"),
        ("a receipt without a verification", _receipt(checks={str(n): "skip" for n in NAMES}), "receipts"),
        ("a receipt from the future", _receipt(iat=LATER + 61), "receipts"),
        ("a receipt of a time after its own", _receipt(at=NOW + 66), "receipts"),
        ("a receipt by keys that are not listed", _receipt(), "plain"),
    ):
        yield _case(f"{name}, read a year later", trust=trust, at=None, now=LATER, receipts=receipts)
    late = _receipt()
    yield _case("a receipt, received again a year later", trust="receipts", at=LATER, receipts=late)
    changed = _changed("no tools", "tools")
    yield _case("a receipt, the entry changed", changed, "receipts", at=None, now=LATER, receipts=late)


def _revocations() -> Iterator[Case]:
    yield _case("a list that revokes nothing", trust="nothing revoked")
    yield _case("a list that is past its next update", trust="nothing revoked", at=None, now=NOW + 86_401)
    yield _case("a list that is past its next update, in time", trust="nothing revoked", at=NOW + 5, now=NOW + 86_401)
    yield _case("a list that names the jti", trust="jti revoked")
    yield _case("a list that names the jti, past its next update", trust="jti revoked", now=NOW + 86_401)
    yield _case("a list that names the integration", trust="integration revoked")
    yield _case("a list that names the integration, later", trust="integration revoked later")
    yield _case("a list by another key", trust="list by another key")
    yield _case("a key that is revoked, received in time", trust="receipts, key revoked")
    yield _case("a key that is revoked, as is stated", trust="receipts, key revoked", witnessed=False)


def _places() -> Iterator[Case]:
    for repo in ("acme/other", "Acme/open-model"):
        yield _case(f"in the repository {repo}", repo=repo)
    yield _case("in another repository, the notes changed", _changed("no tools", "tools"), repo="acme/other")
    for path in ("gsm8k.yaml", "docs/gsm8k.yaml", ".eval_results/GSM8K.yaml", ".eval_results/hle.yaml", ".eval_results/gsm8k.yml"):  # fmt: skip
        yield _case(f"at {path}", path=path)


def _reproductions() -> Iterator[Case]:
    """Two signed entries, of which the second names the first. Their callers have one owner, two, or nobody knows."""
    one = {"provider": "a", "issuer": "https://a.example", "repository_owner_id": "1"}
    elsewhere = {"provider": "b", "issuer": "https://b.example"}
    again = make.submission({**DETAILS, "run": {**DETAILS["run"], "reproduces": SAID.content_digest}})
    terms: Case = {"sub": "lm-eval", "jti": "AAECAwQFBgcICQoLDA0OEA", "iat": NOW + 60, "nbf": NOW + 60}
    for name, caller in {
        "one owner": one, "two owners of one provider": {**one, "repository_owner_id": "2"},
        "two providers, an owner each": {**elsewhere, "organization_id": "1"}, "two providers, one owner unknown": elsewhere,
        "a personal access token": {**elsewhere, "account": "robot", "token_id": "x"},
        "a token of Hugging Face": {**elsewhere, "issuer": "https://huggingface.co", "id": "2"},
    }.items():  # fmt: skip
        text = make.file_for(SAID, caller=one) + make.file_for(again, caller=caller, **terms)
        yield _case(f"a reproduction: {name}", text, at=NOW + 90)


def _fields() -> Iterator[Case]:
    zeros, command = "0" * 40, '    command: "inspect eval gsm8k"\n'
    for name, old, new in (
        ("the task changed", '    task_id: "gsm8k"\n', '    task_id: "gsm8k_hard"\n'),
        ("the task left out", '    task_id: "gsm8k"\n', ""),
        ("the benchmark's commit changed", "5503434ddd753f426f4b38109466949a1217c2bb", zeros),
        ("the benchmark's owner changed", '"openai/gsm8k"', '"other/gsm8k"'),
        ("the model's commit changed", "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321", zeros),
        ("the framework's name changed", '    name: "inspect-ai"\n', '    name: "Inspect-AI"\n'),
        ("the framework's version changed", '"0.3.285"', '"0.3.286"'),
        ("the command left out", command, ""),
        ("the value changed", "value: 20.9\n", "value: 21.9\n"),
        ("the value one double up", "value: 20.9\n", "value: 20.900000000000002\n"),
        ("the metric renamed", '"accuracy"\n      value', '"f1"\n      value'),
        ("a metric more", "      value: 20.9\n", '      value: 20.9\n    - metric_id: "f1"\n      value: 1\n'),
        ("a slice more", "      value: 20.9\n", '      value: 20.9\n      slice: "easy"\n'),
        ("the notes changed", "no tools", "tools"),
        ("the notes left out", '  notes: "no tools"\n', ""),
        ("the selection changed", "match/accuracy", "match/mean"),
        ("the number of samples changed", "num_samples: 8", "num_samples: 9"),
        ("an unknown member more", "  notes:", '  reviewer: "nobody"\n  notes:'),
        ("an empty map more", "  notes:", "  artifacts: {}\n  notes:"),
    ):
        yield _case(name, _changed(old, new))
    no_metric = _changed('    - metric_id: "accuracy"\n      value: 20.9\n', "").replace("metrics:", "metrics: []")
    yield _case("no metric left", no_metric)


def _benchmarks() -> Iterator[Case]:
    def definition(text: str = make.BENCHMARK_TEXT) -> list[Case]:
        return [{"repo": make.BENCHMARK, "revision": SAID.claims.benchmark_revision, "yaml": text}]

    value = _changed("  notes:", "  value: 20.9\n  notes:")
    yield _case("a definition that has task and metric", trust="benchmark", benchmarks=definition())
    yield _case("no definition at hand", trust="benchmark")
    for name, text in (
        ("a definition without the metric", make.BENCHMARK_TEXT.replace("accuracy", "f1")),
        ("a definition without the task", make.BENCHMARK_TEXT.replace('{id: "gsm8k"', '{id: "hard"')),
    ):
        yield _case(name, trust="benchmark", benchmarks=definition(text))
    for trust in ("the definition pinned", "definitions listed", "another definition pinned", "other definitions listed",
                  "any definition"):  # fmt: skip
        yield _case(f"trust: {trust}", trust=trust, benchmarks=definition())
    other_letters = make.file_for(make.submission(DETAILS, benchmark_repo=make.BENCHMARK.upper()))
    yield _case("the benchmark in capitals, another definition pinned", other_letters, "another definition pinned")
    yield _case("no definition at hand, other definitions listed", trust="other definitions listed")
    yield _case("the value changed, another definition pinned", _changed("20.9", "21.9"), "another definition pinned")
    yield _case("the value of the only metric, without a definition", value)
    yield _case("the value of the primary metric", value, benchmarks=definition())
    one: dict[str, Any] = {"metric_id": "accuracy", "value": 20.9}
    several = {"two metrics": [one, {**one, "metric_id": "f1"}], "one slice": [{**one, "slice": "easy"}]}
    for name, metrics in several.items():
        text = make.file_for(make.submission(metrics=metrics)) + "  value: 20.9\n"
        yield _case(f"a value beside {name}, without a definition", text)
    other = value.replace("  value: 20.9\n  notes", "  value: 99.9\n  notes")
    yield _case("a value that is another", other, benchmarks=definition())


def _logs() -> Iterator[Case]:
    text, both = write_entry(SAID.form, LOGGED), (NOW + 1, NOW + 2)
    leaf = leaf_digest(LOGGED.rpartition(".")[0].encode())
    proof = LOG.proof(LOGGED, *both).decode()
    shifted = proof.replace("index 6", "index 5")
    assert shifted != proof
    for name, found in {
        "a proof": proof, "no proof": None, "a proof of another leaf": LOG.proof(OTHER_LOGGED, *both).decode(),
        "a proof with another index": shifted, "a proof with one witness of two": LOG.proof(LOGGED, NOW + 1).decode(),
        "a proof with times of the future": LOG.proof(LOGGED, NOW + 71, NOW + 72).decode(), "a proof that is cut off": proof[:-9],
    }.items():  # fmt: skip
        proofs = {} if found is None else {"/0": found}
        yield _case(name, text, "log", proofs=proofs, leaf=f"sha256:{leaf.hex()}")
    good = {"/0": proof}
    yield _case("a token that names no log", trust="log")
    yield _case("a token of another log", make.file_for(SAID, log="elsewhere.example/log"), "log")
    yield _case("a proof that is not required", text, "log, not required", proofs={"/0": "?"})
    yield _case("read a year later, by the witnesses' time", text, "log, not required", at=None, now=LATER, proofs=good)
    yield _case("received a year later, in spite of the witnesses", text, "log, not required", at=LATER, proofs=good)
    yield _case("read a year later, without a proof of the log", text, "log, not required", at=None, now=LATER)
    yield _case("read a year later, of a log without witnesses", text, "log without witnesses", at=None, now=LATER)
    late = {"/0": LOG.proof(LOGGED, EXP + 1, EXP + 1).decode()}
    yield _case("read a year later, logged too late", text, "log, not required", at=None, now=LATER, proofs=late)


def _several() -> Iterator[Case]:
    other = make.submission({"notes": "other"})
    tokens = make.issued((SAID, other), batch=True)
    both = "".join(write_entry(item.form, token) for item, token in zip((SAID, other), tokens, strict=True))
    yield _case("two entries of a batch", both)
    exchanged = both.replace(tokens[0], "?").replace(tokens[1], tokens[0]).replace("?", tokens[1])
    yield _case("the tokens of two entries exchanged", exchanged)
    yield _case("one entry twice", FILE + FILE)
    yield _case("two tokens with one jti", FILE + make.file_for(other))
    no_good = make.file_for(other, aud="https://other.example")
    yield _case("two tokens with one jti, one of them no good", FILE + no_good)


def cases() -> Iterator[Case]:
    yield from chain(_good(), _tokens(), _keys(), _attempts(), _times(), _receipts())
    yield from chain(_revocations(), _places(), _fields(), _benchmarks(), _logs(), _several(), _reproductions())
