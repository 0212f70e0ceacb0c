"""Makes `tests/vectors/contract/`: the required answers of any verifier, as JSON. `python -m tests.support.contract_vectors`.

The inputs are here, made by real keys and the issuer's writers. The outputs are the answers of `issuer.verify` and the readers
below it, which have their own tests. `tests/verify/test_contract_vectors.py` makes the files again, and judges by their
content alone.
"""

import base64
import json
from typing import Any

from issuer.errors import FormatError, InputError, Refused
from issuer.formats import jcs
from issuer.formats.strict_json import loads
from issuer.results.claims import read_claims
from issuer.results.entry import read_entries
from tests.support import make
from tests.support.contract_cases import TRUSTS, cases
from tests.support.judging_vectors import MAX_JSON_BYTES, MAX_JSON_DEPTH, judge_case
from tests.support.shared import VECTORS

VERSION = 1
FOLDER = VECTORS / "contract"
FILES = ("json.json", "claims.json", "entries.json", "verify.json")
Case = dict[str, Any]


# With their canonical bytes (RFC 8785), or the code of their refusal.
JSON_TEXTS: dict[str, bytes] = {
    "an object": b'{"b": 1, "a": [true, null, "x"]}',
    "members in order of UTF-16 code units": '{"\U0001f600": 1, "\ufb33": 2, "\u20ac": 3, "a": 4}'.encode(),
    "escapes that mean plain letters": b'{"\\u0061": "\\u20ac\\n\\/"}',
    "minus zero": b"[-0, -0.0, 0e1]",
    "a fraction that is written in two ways": b"[20.90, 2.09e1, 20.9]",
    "the largest whole number": b"[9007199254740991, -9007199254740991]",
    "small and large exponents": b"[1e-6, 1e-7, 1.5e300, 5e-324]",
    "seventeen digits": b"[0.10000000000000001, 1.2345678901234567]",
    "a whole number too large": b"[9007199254740992]",
    "a whole number too large, as an exponent": b"[1e16]",
    "eighteen digits": b"[0.123456789012345678]",
    "eighteen digits, of which the last are zeros": b"[1.00000000000000000]",
    "not finite": b"[1e400]",
    "too small for a double": b"[1e-400]",
    "NaN": b"[NaN]",
    "Infinity": b"[-Infinity]",
    "a number with a plus": b"[+1]",
    "a number with a leading zero": b"[01]",
    "a member twice": b'{"a": 1, "a": 1}',
    "a member twice, once in escapes": b'{"a": 1, "\\u0061": 2}',
    "a lone surrogate": b'["\\ud800"]',
    "a NUL": b'["\\u0000"]',
    "a control character": b'["a\x01"]',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "not UTF-8": b'["\xff"]',
    "a comment": b"[1] // one",
    "a comma at the end": b"[1,]",
    "single quotes": b"['a']",
    "two documents": b"{}{}",
    "nothing": b"",
    "cut off": b'{"a": [1, 2',
    "nested too deep": b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1),
    "nested as deep as allowed": b"[" * MAX_JSON_DEPTH + b"]" * MAX_JSON_DEPTH,
}


def _canonical(raw: bytes) -> Case:
    given = {"base64": base64.b64encode(raw).decode()}
    try:
        value = loads(raw, max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH)
    except FormatError as error:
        return {**given, "refused": str(error.code)}
    return {**given, "canonical": jcs.canonical(value).decode()}


# With canonical bytes and digest, or code and pointer of each fault.
CLAIMS: dict[str, dict[str, Any]] = {
    "one metric": {},
    "a metric with all that it may have": {
        "metrics": [{"metric_id": "acc", "value": 3, "slice": "hard", "value_type": "int", "sample_size": 100}]
    },
    "metrics are sorted by id and slice": {
        "metrics": [{"metric_id": "b", "value": 1}, {"metric_id": "a", "value": 2, "slice": "s"}, {"metric_id": "a", "value": 3}]
    },
    "minus zero is zero": {"metrics": [{"metric_id": "a", "value": -0.0}]},
    "a whole double is written without a fraction": {"metrics": [{"metric_id": "a", "value": 20.0}]},
    "a small value": {"metrics": [{"metric_id": "a", "value": 1e-7}]},
    "no command": {"framework": {"name": "inspect-ai", "version": "1"}},
    "a command beyond ASCII": {"framework": {"name": "x", "version": "1", "command": "run --name=\u00e9\U0001f600"}},
    "a commit of 64 digits": {"model_revision": "0" * 64},
    "the branch in place of a commit": {"model_revision": "main"},
    "a short commit": {"model_revision": "9f3c2c9"},
    "a commit in capitals": {"model_revision": "A" * 40},
    "a repository without an owner": {"model_repo": "open-model"},
    "a repository with two slashes": {"benchmark_repo": "a/b/c"},
    "a task with a space": {"task_id": "g s m"},
    "no metric": {"metrics": []},
    "the same metric twice": {"metrics": [{"metric_id": "a", "value": 1}, {"metric_id": "a", "value": 1}]},
    "a value that is text": {"metrics": [{"metric_id": "a", "value": "20.9"}]},
    "a value that is true": {"metrics": [{"metric_id": "a", "value": True}]},
    "a value that is null": {"metrics": [{"metric_id": "a", "value": None}]},
    "a rank that is not whole": {"metrics": [{"metric_id": "a", "value": 1.5, "value_type": "rank"}]},
    "an empty slice": {"metrics": [{"metric_id": "a", "value": 1, "slice": ""}]},
    "no samples": {"metrics": [{"metric_id": "a", "value": 1, "sample_size": 0}]},
    "an unknown member": {"extra": 1},
    "no task": {"task_id": ...},
    "no framework version": {"framework": {"name": "x"}},
    "a command with a line break": {"framework": {"name": "x", "version": "1", "command": "a\nb"}},
    "a command that is not NFC, which only the issuer refuses": {"framework": {"name": "x", "version": "1", "command": "e\u0301"}},
}  # fmt: skip


def _digested(members: dict[str, Any]) -> Case:
    text = json.dumps(make.claims(**members), ensure_ascii=False)
    try:
        claims = read_claims(loads(text.encode(), max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH), signed=True)
    except Refused as error:
        refused = [{"code": str(fault.code), "pointer": fault.pointer} for fault in error.faults]
        return {"json": text, "refused": refused}
    return {"json": text, "canonical": claims.canonical.decode(), "claims_digest": claims.digest}


_SAID = make.submission({"date": "2026-11-21", "notes": "no tools", "run": {"seed": 1}})
_GOOD = "".join(line for line in make.file_for(_SAID).splitlines(keepends=True) if "verify_token" not in line)
_LEAST = '- dataset: {id: "a/b"}\n  metrics: [{metric_id: "m", value: 1}]\n'

# With canonical target form and content digest of each entry, or code and line of the refusal.
ENTRIES: dict[str, str | bytes] = {
    "as the issuer writes it": _GOOD,
    "numbers in another spelling": _GOOD.replace("20.9\n", "20.90\n"),
    "plain text without quotes": _GOOD.replace('"no tools"', "no tools"),
    "a bare date": _GOOD.replace('"2026-11-21"', "2026-11-21"),
    "flow style and a comment": _GOOD.replace("  run:\n    seed: 1\n", "  run: {seed: 1.0}  # a comment\n"),
    "nulls are dropped, with the map that they leave empty": _GOOD + "  artifacts: {a: {b: null}}\n",
    "an empty map stays": _GOOD + "  artifacts: {}\n",
    "token members are left out": _GOOD + '  verify_token: "x.y.z"\n  verifyToken: "x.y.z"\n',
    "a value is left out": _GOOD + "  value: 20.9\n",
    "an unknown member counts": _GOOD + '  reviewer: "nobody"\n',
    "two entries": _LEAST + _LEAST.replace('"m"', '"n"'),
    "metrics are sorted": '- dataset: {id: "a/b"}\n  metrics: [{metric_id: "z", value: 1}, {metric_id: "a", value: 2, slice: "s"}, {metric_id: "a", value: 3}]\n',
    "no entries": "[]\n",
    "no list": 'dataset: {id: "a/b"}\n',
    "an entry without a dataset": "- metrics: []\n",
    "a member of the Hub's answers": _LEAST + "  error: null\n",
    "another member of the Hub's answers": _LEAST + "  data: {a: null}\n",
    "a source without a URL": _LEAST + "  source: {name: x}\n",
    "a null in a list": _LEAST + "  artifacts: [null]\n",
    "two tokens that differ": _LEAST + '  verify_token: "a"\n  verifyToken: "b"\n',
    "a key twice": _LEAST + '  notes: "a"\n  notes: "b"\n',
    "a key twice, in a map": _LEAST + "  run: {a: 1, a: 2}\n",
    "an anchor": _LEAST + "  run: &a {x: 1}\n",
    "an alias": _LEAST + "  run: &a {x: 1}\n  artifacts: *a\n",
    "a merge key": _LEAST + "  run: {<<: {x: 1}}\n",
    "a tag": _LEAST + "  notes: !!str 1\n",
    "a key that is a number": _LEAST + "  run: {1: 2}\n",
    "two documents": f"{_LEAST}---\n{_LEAST}",
    "a directive": f"%YAML 1.2\n---\n{_LEAST}",
    "a byte order mark": "\ufeff" + _LEAST,
    "not UTF-8": _LEAST.encode() + b'  notes: "\xff"\n',
    "UTF-16": _LEAST.encode("utf-16"),
    "a tab before a comment": _LEAST + '  notes: "x"\t# c\n',
    "a tab in plain text": _LEAST + "  notes: a\tb\n",
    "a question mark in plain text between brackets": _LEAST + "  run: {a: b?c}\n",
    "a tab in an indent": _LEAST + '\tnotes: "x"\n',
    "a control character": _LEAST + '  notes: "a\x07"\n',
    "an escape of a surrogate": _LEAST + '  notes: "\\ud800"\n',
    "cut off in a text": _LEAST + '  notes: "ab',
    "an exponent without a fraction": _LEAST.replace("value: 1", "value: 1e3"),
    "an octal number": _LEAST.replace("value: 1", "value: 017"),
    "a hexadecimal number": _LEAST.replace("value: 1", "value: 0x1F"),
    "underscores in a number": _LEAST.replace("value: 1", "value: 1_000"),
    "a sexagesimal number": _LEAST.replace("value: 1", "value: 12:30"),
    "a number that is not finite": _LEAST.replace("value: 1", "value: .inf"),
    "a number too large": _LEAST.replace("value: 1", "value: 9007199254740993"),
    "a commit of digits alone, without quotes": _LEAST + f"  model_revision: {'1' * 40}\n",
    "a version without quotes": _LEAST + "  framework: {name: x, version: 1.10}\n",
    "a word that some readers read as true": _LEAST + "  notes: on\n",
    "true in a free member": _LEAST + "  run: {cached: true}\n",
    "true in another spelling": _LEAST + "  run: {cached: True}\n",
    "arguments of the run": _LEAST + '  run: {arguments: {num_fewshot: 5, "generation.until.0": "\\n", "generation.temperature": 0.0}}\n',
}  # fmt: skip


def _entries(text: str | bytes) -> Case:
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        given = {"yaml": raw.decode()}
    except UnicodeDecodeError:
        given = {"base64": base64.b64encode(raw).decode()}
    try:
        entries = read_entries(raw, "file.yaml")
    except InputError as error:
        return {**given, "refused": {"code": str(error.code), "line": error.place.line}}
    forms = [jcs.canonical(entry.form) for entry in entries]
    return {
        **given,
        "entries": [{"canonical": form.decode(), "content_digest": jcs.digest_of_bytes(form)} for form in forms],
    }


def make_files() -> dict[str, str]:
    """Return the text of each file by its name: inputs, and the answers of a verifier."""
    made: dict[str, Any] = {
        "json.json": {"cases": [{"name": name, **_canonical(raw)} for name, raw in JSON_TEXTS.items()]},
        "claims.json": {"cases": [{"name": name, **_digested(members)} for name, members in CLAIMS.items()]},
        "entries.json": {"cases": [{"name": name, **_entries(text)} for name, text in ENTRIES.items()]},
        "verify.json": {"trusts": TRUSTS, "cases": [{**case, "reports": judge_case(case, TRUSTS)} for case in cases()]},
    }
    return {
        name: json.dumps({"version": VERSION, **document}, indent=1, ensure_ascii=True) + "\n"
        for name, document in made.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, content in make_files().items():
        (FOLDER / file).write_text(content, "ascii")
