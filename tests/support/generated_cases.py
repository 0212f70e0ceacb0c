"""Any number of cases of the form of `tests/vectors/contract/verify.json`, from a seed: good ones, and ones that are
tampered with or misspelt in one to three places of their text, their token or what is known beside them."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from issuer.formats import jcs, jose
from issuer.results.entry import Submission, write_entry
from issuer.token.verify_token import MAX_TTL_S
from tests.support import make
from tests.support.contract_cases import TRUSTS, cases
from tests.support.witnessed import ORIGIN

Case = dict[str, Any]
_AT = random.Random

# -- good ones -----------------------------------------------------------------------------------------------------------

_COMMANDS = ["inspect eval gsm8k", "run --name=\u00e9\U0001f600", "a\\b \"c\" 'd' # e", "x" * 4096, ...]
_NOTES = ["no tools", "été, 5-shot", "12:30", "no", "", "a: b # c", "line\nline", "\u2028", "😀" * 40, "1.10"]
_NUMBERS = [0, 1, -1, 20.9, 2 / 3, 1e-7, 100.0, 2**53 - 1, -2.5, 1e15, 123456.789, 1.5e-300, 5e-324, 0.1 + 0.2]
_CALLERS: list[dict[str, Any]] = [
    {"provider": "github", "repository_id": "1"},
    {
        "provider": "github", "issuer": "https://token.actions.githubusercontent.com", "run_id": "7", "run_attempt": "2",
        "job_workflow_ref": "acme/evals/.github/workflows/eval.yml@refs/heads/main", "job_workflow_sha": "a" * 40,
        "workflow_sha": "a" * 40, "repository_owner_id": "9",
    },
    {
        "provider": "gitlab", "issuer": "https://gitlab.example/sub", "ci_config_ref_uri": "gitlab.example/sub/acme/evals//.gitlab-ci.yml@main",
        "ci_config_sha": "b" * 40, "sha": "b" * 40, "job_id": "12", "namespace_id": 4, "protected": True,
    },
    {},
]  # fmt: skip


def _metric(at: _AT, number: int) -> dict[str, Any]:
    name = at.choice(["accuracy", "f1", "pass@1", "a/b~c"]) + str(number)
    metric: dict[str, Any] = {"metric_id": name, "value": at.choice(_NUMBERS)}
    if at.random() < 0.3:
        metric["slice"] = at.choice(["easy", "hard", "~", "a_b"])
    if at.random() < 0.2:
        metric["value_type"] = "rank" if float(metric["value"]).is_integer() else "percentage"
    if at.random() < 0.2:
        metric["sample_size"] = at.choice([1, 1319, 2**53 - 1])
    return metric


_ARGUMENTS: list[dict[str, Any]] = [
    {"num_fewshot": 5}, {"num_fewshot": 5.0}, {"generation.do_sample": True}, {"a.0": "é\n", "b": 1e-7}, {"all": "sha256:" + "0" * 64},
]  # fmt: skip


def _details(at: _AT) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if at.random() < 0.6:
        details["date"] = at.choice(["2026-11-21", "2026-11-21T09:00:00Z"])
    if at.random() < 0.6:
        details["notes"] = at.choice(_NOTES)
    if at.random() < 0.5:
        seed, selection = at.choice([1, 2.5, None, True, "1"]), {"accuracy0": "match/accuracy"}
        details["run"] = {"num_samples": 8, "seed": seed, "selection": selection}
    if at.random() < 0.3:
        details.setdefault("run", {})["arguments"] = at.choice(_ARGUMENTS)
    if at.random() < 0.2:
        details["artifacts"] = at.choice([{}, [], [{"a": 1e-7}], {"é": {"b": [1, "2"]}}])
    if at.random() < 0.2:
        details["normalization"] = {"scale": at.choice([100, 100.0, 0.01]), "__proto__": "x"}
    if at.random() < 0.1:
        details["benchmark_subset"] = "main"
    return details


def _submission(at: _AT, **details: Any) -> Submission:
    framework = {"name": at.choice(["inspect-ai", "lm-eval"]), "version": "0.3.285", "command": at.choice(_COMMANDS)}
    metrics = [_metric(at, number) for number in range(at.choice([1, 1, 2, 5]))]
    return make.submission({**_details(at), **details}, metrics=metrics, framework=make.without_dots(framework))


def _terms(at: _AT) -> dict[str, Any]:
    life, iat = at.choice([3600, 600, MAX_TTL_S]), make.NOW + at.choice([0, 0, 0, -7200, 30, 90])
    nbf = iat + at.choice([0, 0, 120])
    terms: dict[str, Any] = {"iat": iat, "nbf": nbf, "exp": iat + life, "caller": at.choice(_CALLERS)}
    terms["jti"] = jose.base64url_encode(at.randbytes(16)) if at.random() < 0.9 else make.JTI
    terms["sub"] = at.choice(["inspect-ai", "another"])
    if at.random() < 0.3:
        terms["attempt"] = {"number": at.choice([1, 2, 3, 64]), "since": iat - 60}
    if at.random() < 0.3:
        terms["log"] = at.choice([ORIGIN, "elsewhere.example/log"])
    return terms


_DEFINITION = {"repo": make.BENCHMARK, "revision": make.claims()["benchmark_revision"], "yaml": make.BENCHMARK_TEXT}


def _beside(at: _AT) -> Case:
    """Return what is known beside a file: the trust, the time, the place."""
    if at.random() < 0.5:  # a good file is verified
        trust, now = (
            at.choice(["plain", "nothing revoked", "log, not required", "the definition pinned"]),
            make.NOW + 130,
        )
        near = {"trust": trust, "now": now, "at": at.choice([None, now])}
        return {**near, "witnessed": True, "repo": make.REPO, "path": make.PATH, "benchmarks": [_DEFINITION]}
    now = make.NOW + at.choice([0, 5, 5, 5, 4000, 90_000, make.YEAR])
    received = at.choice([None, now, now, now - 60, now - 5000])
    return {
        "trust": at.choice([*TRUSTS]), "now": now, "at": received, "witnessed": at.random() < 0.7,
        "repo": make.REPO if at.random() < 0.95 else "acme/other", "path": make.PATH if at.random() < 0.95 else ".eval_results/x.yaml",
        "benchmarks": [_DEFINITION] if at.random() < 0.3 else [],
    }  # fmt: skip


def _entry(at: _AT, token: str, said: Submission) -> str:
    if at.random() < 0.2:
        metrics = [metric for metric in said.claims.metrics if not metric.slice]
        if metrics:
            return write_entry(said.form, token, profile="both", primary=metrics[0].metric_id)
    return write_entry(said.form, token)


def _good(at: _AT) -> Case:
    first = _submission(at)
    items, reproduces = [first], {"reproduces": first.content_digest}
    if at.random() < 0.2:
        items.append(_submission(at, **({"run": reproduces} if at.random() < 0.5 else {})))
    if at.random() < 0.1:  # the same numbers again, with the name of the first
        again: dict[str, Any] = {**first.details, "run": {**reproduces, "arguments": at.choice(_ARGUMENTS)}}
        items.append(
            make.submission(
                again, metrics=first.claims.to_json()["metrics"], framework=first.claims.to_json()["framework"]
            )
        )
    return {"file": "".join(_entry(at, make.token_for(each, **_terms(at)), each) for each in items), **_beside(at)}


# -- tampered with -------------------------------------------------------------------------------------------------------


def _one_of(values: list[Any]) -> Callable[[_AT], Any]:
    return lambda at: at.choice(values)


_PAYLOADS: dict[str, Callable[[_AT], Any]] = {
    "ver": _one_of([2, "1", True, 1.5, None]), "iss": _one_of(["https://evil.example", "", 1, [make.ISSUER]]),
    "sub": _one_of(["", "é", 7]), "aud": _one_of([[make.AUDIENCE], "x", f"{make.AUDIENCE}/"]),
    "iat": _one_of([-1, 0, 2**33 + 1, make.NOW * 1000, str(make.NOW), 1.5]), "nbf": _one_of([make.NOW - 1, 2**40, None]),
    "exp": _one_of([make.NOW - 1, make.NOW + MAX_TTL_S + 1, 2**53 - 1, "x"]), "jti": _one_of(["", "A" * 22, "B" * 22, "A" * 21, 3]),
    "model_repo": _one_of(["x", "a/b.git", "a/b--c", "é/a", "a/b/c", "-a/b", "a/" + "b" * 97]), "model_revision": _one_of(["main", "A" * 40, "0" * 39, "0" * 64]),
    "benchmark_repo": _one_of(["openai", "openai/hle"]), "task_id": _one_of(["", "a b", "x" * 129, 5]),
    "metrics": _one_of([
        [], {}, [{}], [{"metric_id": "a", "value": "1"}], [{"metric_id": "a", "value": True}], [{"metric_id": "a", "value": 1, "x": 1}],
        [{"metric_id": "b", "value": 1}, {"metric_id": "a", "value": 1}], [{"metric_id": "a", "value": 1}, {"metric_id": "a", "value": 1}],
        [{"metric_id": "a", "value": 1.5, "value_type": "int"}], [{"metric_id": "a", "value": 1, "value_type": "score"}],
        [{"metric_id": "a", "value": 1, "slice": ""}], [{"metric_id": "a", "value": 1, "sample_size": 0}], [7], [{"metric_id": "a", "value": 1}] * 257,
    ]),
    "framework": _one_of([{}, {"name": "", "version": "1"}, {"name": "a", "version": "é"}, {"name": "a", "version": "1", "command": "a\tb"},
        {"name": "a", "version": "1", "command": "e\u0301"}, {"name": "a", "version": "1", "command": "x" * 4097}, {"name": "a", "version": "1", "x": 1}, "a"]),
    "claims_digest": _one_of(["", "sha256:0", "sha256:" + "0" * 64, "SHA256:" + "0" * 64]), "content_digest": _one_of(["sha256:" + "A" * 64, "sha256:" + "0" * 64, 5]),
    "policy": _one_of(["", None, "sha256:" + "f" * 63]), "caller": _one_of([[], {"a": None}, {"a": 1.5}, {"a": {}}, {"é": "é"}, "github", {"a": 2**53 - 1}]),
    "log": _one_of(["", ORIGIN, 1, None]), "extra": _one_of([1, None]), "__proto__": _one_of([{}, 1]),
    "attempt": _one_of([{}, {"number": 0, "since": 1}, {"number": 65, "since": 1}, {"number": 2, "since": make.NOW + 99}, {"number": 2, "since": 1, "x": 1}, 3, None]),
}  # fmt: skip
_HEADERS: list[dict[str, Any]] = [
    {"typ": "JWT"}, {"typ": "EVAL-VERIFY+JWT"}, {"alg": "Ed25519"}, {"alg": "none"}, {"alg": "ES256"}, {"alg": 1}, {"kid": ""}, {"kid": 3},
    {"kid": "constructor"}, {"crit": []}, {"kid": ...}, {"jwk": {}}, {"kid": make.KID.swapcase()},
]  # fmt: skip


def _signed_otherwise(at: _AT) -> Case:
    """A token that no issuer signs, by its key: another header, a changed payload, another spelling of it."""
    said = _submission(at)
    payload: dict[str, Any] = make.payload_of(said, **_terms(at))
    for name in at.sample(sorted(_PAYLOADS), at.choice([0, 1, 1, 2])):
        if at.random() < 0.8:
            payload[name] = _PAYLOADS[name](at)
        else:
            payload.pop(name, None)
    raw = jcs.canonical(payload)
    if at.random() < 0.3:
        raw = _respelled(at, raw)
    header = make.without_dots({**make.HEADER, **(at.choice(_HEADERS) if at.random() < 0.3 else {})})
    signing_input = jose.signing_input(header, raw)
    if at.random() < 0.1:
        head = _respelled(at, jcs.canonical(header))
        signing_input = jose.signing_input_of(jose.segment(head), raw)
    key = make.KEY if at.random() < 0.95 else make.STRANGER
    token = jose.compact(signing_input, jose.sign(key, signing_input))
    return {"file": write_entry(said.form, token), **_beside(at)}


def _respelled(at: _AT, raw: bytes) -> bytes:
    old, new = at.choice([
        (b":", b": "), (b",", b",\n"), (b"1", b"1.0"), (b"1", b"1e0"), (b"0", b"-0"), (b'"a', b'"\\u0061'), (b"/", b"\\/"), (b"{", b"{ "), (b"}", b',"ver":1}'),
        (b"}", b',"ver":NaN}'), (b"2", b"20000000000000000000"), (b":1", b":1e400"), (b":1", b":01"), (b'"g', b'"\\ud800'), (b'"g', b'"\\u0000'), (b'"', b"\xef\xbb\xbf\""),
        (b"a", b"\xff"), (b"e", "e\u0301".encode()), (b"{", b'{"__proto__":1,'), (b"[", b"[[[[[[[[["), (b"}", b""), (b'"', b"'"),
    ])  # fmt: skip
    return raw.replace(old, new, at.choice([1, -1]))


def _token_of(text: str) -> tuple[int, int]:
    start = text.find('oken: "') + 7
    return start, text.find('"', start)


def _cut(at: _AT) -> Case:
    """A good file whose token has some characters changed."""
    case = _good(at)
    start, end = _token_of(case["file"])
    token = case["file"][start:end]
    head, payload, signature = token.split(".")
    place = at.randrange(len(token))
    changed = at.choice([
        token[:place] + at.choice("AZaz09-_+/=. é\\u") + token[place + 1 :], token[:place], f"{head}.{payload}.{signature[:-1]}{at.choice('AQgwBC')}",
        f"{head}.{payload}.{jose.base64url_encode(at.randbytes(at.choice([0, 32, 63, 64, 65])))}", f"{payload}.{head}.{signature}", token + token, token.swapcase(), "",
    ])  # fmt: skip
    return {**case, "file": case["file"][:start] + changed + case["file"][end:]}


# -- misspelt ------------------------------------------------------------------------------------------------------------

_PIECES = [
    " ", "  ", "\n", "\t", "\r\n", "#", " # c", ":", ": ", "- ", "-", "?", "? ", ",", "[", "]", "{", "}", "&a ", "*a", "!x ", "!!str ", "|", ">", "|\n", "'", '"', "%", "@", "`",
    "\\", "\\x41", "\\u00e9", "\\ud800", "\0", "\x07", "\x85", "\u2028", "\ufeff", "é", "e\u0301", "😀", "null", "~", "true", "yes", "on", "0", "1", "9", ".", "e", "E", "+", "_", "0x1F",
    "017", "1e3", "12:30", "2026-11-21", ".inf", ".nan", "<<: ", "---\n", "...\n", "- {}\n", "  x: 1\n", "  notes: 1\n", "  value: 20.9\n", "  verifyToken: \"x\"\n", "\n\n", " \n",
]  # fmt: skip
_SPELLINGS = [
    ("20.9", "20.90"), ("20.9", "2.09e+1"), ("20.9", "2.09e1"), ("20.9", "+20.9"), ("20.9", "020.9"), ("20.9", "20.900000000000002"), ("20.9", "20.9000000000000000001"),
    ("20.9", "20,9"), ("20.9", "'20.9'"), ("value: 1\n", "value: 1.0\n"), ("value: 1\n", "value: true\n"), ("value: 0\n", "value: -0\n"), ("value: 0\n", "value: -0.0\n"),
    ("value: 0\n", "value: 1e400\n"), ("value: 1\n", "value: 9007199254740993\n"), ("value: 1\n", "value: ~\n"), ('"no tools"', "no tools"), ('"no tools"', "'no tools'"),
    ('"no tools"', "|\n    no tools"), ('"no tools"', "null"), ('"2026-11-21"', "2026-11-21"), ('"gsm8k"', "gsm8k"), ('"openai/gsm8k"', "openai/gsm8k"), ("\n", "\r\n"),
    ("verify_token", "verifyToken"), ("verify_token", "Verify_token"), ("num_samples: 8", "num_samples: 8.0"), ("num_samples: 8", "num_samples: 0o10"), ("  run:", "  run: # c"),
    ("seed: 1\n", "seed: null\n"), ("seed: 1\n", 'seed: "1"\n'), ("- dataset:", "-\n  dataset:"), ("- dataset:", "- {}\n- dataset:"), ("  framework:", "  extra: [a, b]\n  framework:"),
    ("  framework:", "  model_revision: x\n  framework:"), ("  metrics:", "  artifacts: [null]\n  metrics:"), ("  metrics:", "  artifacts: {a: {b: null}}\n  metrics:"),
]  # fmt: skip


def _misspelt(at: _AT) -> Case:
    """A good file with its text changed: in a way that a person or another writer might, or at random."""
    case = _good(at) if at.random() < 0.7 else {**at.choice(_CONTRACT)}
    text: str = case["file"]
    for _ in range(at.choice([1, 1, 2, 3])):
        if at.random() < 0.5:
            old, new = at.choice(_SPELLINGS)
            text = text.replace(old, new, at.choice([1, -1]))
        else:
            place, width = at.randrange(len(text) + 1), at.choice([0, 0, 1, 1, 2, 9])
            text = text[:place] + at.choice([*_PIECES, ""]) + text[place + width :]
    return {**case, "file": text}


_CONTRACT = [case for case in cases() if "proofs" not in case]


def generated(seed: int, count: int) -> Iterator[Case]:
    """Yield so many cases, the same ones for a seed. Their trust is one of the contract's vectors."""
    at = random.Random(seed)
    for _ in range(count):
        yield at.choices([_good, _signed_otherwise, _cut, _misspelt], [3, 3, 1, 3])[0](at)
