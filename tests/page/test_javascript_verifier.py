"""The verifier in JavaScript answers as the one in Python does: checks, verdict, and texts."""

import base64
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from issuer.errors import InputError
from issuer.results.entry import write_entry
from issuer.token.verify_token import unverified_leaf
from issuer.verify.provenance import run_url
from tests.support import make
from tests.support.contract_cases import LOG, LOGGED, SAID, TRUSTS
from tests.support.contract_vectors import FOLDER
from tests.support.generated_cases import generated
from tests.support.javascript import VERIFIER, Calls, Engine, Failed, Line, mapping
from tests.support.javascript.judging import add_cases, judge_in_javascript
from tests.support.judging_vectors import MAX_JSON_BYTES, MAX_JSON_DEPTH, reports_of
from tests.support.pages.blocks import blocks_of
from tests.support.samples import SAMPLES
from tests.support.witnessed import policy_text

pytestmark = pytest.mark.needs_tool("node")


def vectors(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_bytes())


LIMITS = {"maxBytes": MAX_JSON_BYTES, "maxDepth": MAX_JSON_DEPTH}


# -- the vectors of the contract -----------------------------------------------------------------------------------------


def status_of(report: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a report that the vectors have."""
    names = ("pointer", "verdict", "at", "at_from", "token_digest", "content_digest", "tier")
    checks = {str(made["number"]): made["status"] for made in report["checks"]}
    return {**{name: report[name] for name in names}, "checks": checks}


class Answers(Struct, frozen=True):
    """The answers of one process to all vectors: the reports of each case, and each text with its wanted answer."""

    reports: list[Any]
    texts: list[tuple[str, Any, Any]]


@pytest.fixture(scope="module")
def contract(engine: Engine) -> Answers:
    calls, given = Calls(), vectors("verify")
    cases = add_cases(calls, given["cases"], given["trusts"])
    texts = list(texts_of_the_contract(calls))
    answers = calls.run(engine)
    read = [(name, answers[line.number], wanted) for name, line, wanted in texts]
    return Answers([answers[line.number] for line in cases], read)


def texts_of_the_contract(calls: Calls) -> Iterator[tuple[str, Line, Any]]:
    """Have each text read; yield its name, the place of its answer, and the wanted answer, None for a refusal."""
    for case in vectors("json")["cases"]:
        read = calls.add("json.js", "readJson", base64.b64decode(case["base64"]), LIMITS)
        yield case["name"], calls.add("canonical.js", "canonical", read), case.get("canonical")
    for case in vectors("claims")["cases"]:
        read = calls.add("json.js", "readJson", case["json"].encode(), LIMITS)
        claims = calls.add("claims.js", "readClaims", read)
        yield case["name"], calls.add("canonical.js", "canonical", claims), case.get("canonical")
        yield case["name"], calls.add("claims.js", "claimsDigest", claims), case.get("claims_digest")
    for case in vectors("entries")["cases"]:
        raw = case["yaml"].encode() if "yaml" in case else base64.b64decode(case["base64"])
        yield case["name"], calls.add("entry.js", "readEntries", raw), case.get("entries")


def test_every_case_of_the_contract_has_its_checks(contract: Answers) -> None:
    for case, answer in zip(vectors("verify")["cases"], contract.reports, strict=True):
        assert not isinstance(answer, Failed), (case["name"], answer)
        assert [status_of(report) for report in answer] == case["reports"], case["name"]


def test_texts_claims_and_entries_of_the_contract_are_read_or_refused(contract: Answers) -> None:
    for name, answer, wanted in contract.texts:
        assert isinstance(answer, Failed) == (wanted is None), (name, answer)
        if isinstance(wanted, list):  # their digests are those of check 9
            assert [entry["form"] for entry in answer] == [json.loads(entry["canonical"]) for entry in wanted], name
        elif wanted is not None:
            assert answer == wanted, name
    assert Counter(wanted is None for _, _, wanted in contract.texts) > Counter({True: 50, False: 40})


def test_the_example_of_its_page_verifies_a_file_under_the_name_of_the_package(tmp_path: Path) -> None:
    (example,) = (block for block in blocks_of(VERIFIER / "README.md") if block.language == "js")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/eval-token-verifier").symlink_to(VERIFIER)
    (tmp_path / make.PATH).parent.mkdir()
    item = make.submission()
    now = int(time.time())
    (tmp_path / make.PATH).write_text(make.file_for(item, iat=now, nbf=now, exp=now + 600))
    (tmp_path / "keys.json").write_bytes(make.jwks())
    issuers = [{"issuer": make.ISSUER, "keys": {"file": "keys.json"}}]
    trust = {"version": 1, "audience": make.AUDIENCE, "issuers": issuers}
    (tmp_path / "trust.yaml").write_text(json.dumps(trust))
    (tmp_path / "example.mjs").write_text(example.text)
    done = subprocess.run(["node", "example.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("verified\n1 well-formed token pass "), done.stderr


@pytest.mark.long
def test_every_module_is_named_in_its_page_and_loads_alone() -> None:
    page, modules = (VERIFIER / "README.md").read_text("utf-8"), sorted(VERIFIER.rglob("*.js"))
    names = [path.relative_to(VERIFIER) for path in modules]
    folders = {f"`{name.parts[0]}/`" for name in names if len(name.parts) > 1} | {"`yaml/`"}
    assert not [name for name in names if len(name.parts) == 1 and f"`{name}`" not in page]
    assert not [folder for folder in folders if folder not in page]
    program = "for (const path of process.argv.slice(1)) await import(path)"
    subprocess.run(["node", "--input-type=module", "-e", program, *map(str, modules)], check=True)
    for path in VERIFIER.parents[1].rglob("*.js"):
        if VERIFIER not in path.parents:
            subprocess.run(["node", "--check", str(path)], check=True)


# -- the texts of both ---------------------------------------------------------------------------------------------------


def in_python(case: dict[str, Any], trusts: dict[str, Any]) -> Any:
    """Return the reports of a case as `issuer verify --json` writes them, or the code of why its file is not read."""
    try:
        return json.loads(msgspec.json.encode(reports_of(case, trusts)))
    except InputError as error:
        return str(error.code)


@pytest.mark.long
def test_every_case_of_the_contract_has_the_texts_of_python(contract: Answers) -> None:
    given = vectors("verify")
    for case, answer in zip(given["cases"], contract.reports, strict=True):
        assert [{**report, "line": 0} for report in answer] == in_python(case, given["trusts"]), case["name"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_entries_have_the_reports_of_python(engine: Engine) -> None:
    """Good, changed and misspelt entries. It reports the entries that it leaves open; Python can read few of them."""
    given = list(generated(22, 10_000))
    outcomes = Counter[str]()
    for case, answer in zip(given, judge_in_javascript(given, TRUSTS, engine), strict=True):
        wanted = in_python(case, TRUSTS)
        outcomes[compared(case, answer, wanted)] += 1
    words = ("verified", "failed", "undecided", "good_when_issued", "unverified", "refused")
    assert min(outcomes[word] for word in words) > 50
    assert outcomes["left open, and read"] < 30


def spoken(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without its line, which only files have, and without a parser's message about a malformed token."""
    first, *others = report["checks"]
    if first["status"] == "pass" or report["verdict"] == "unverified":
        return {**report, "line": 0}
    return {**report, "line": 0, "tier_reason": "", "checks": [{**first, "evidence": ""}, *others]}


def compared(case: dict[str, Any], answer: Any, wanted: Any) -> str:
    """Hold an answer to Python's, and return what it comes to."""
    if isinstance(answer, Failed):
        assert answer.name == "Beyond" or answer.code == wanted, (case["file"], answer, wanted)
        if answer.name == "Beyond":
            return "left open" if isinstance(wanted, str) else "left open, and read"
        return "refused"
    assert not isinstance(wanted, str), (case["file"], wanted)
    for found, report in zip(answer, wanted, strict=True):
        assert spoken(found) == spoken(report), case["file"]
    return str(answer[0]["verdict"]) if answer else "no entry"


def test_a_run_has_the_same_page_to_both() -> None:
    """Characters that only one of the languages takes for a line end are among those in the claims."""
    signs = ["", "\n", "\r", "\u2028", "\u2029", "\x85", "@", "é", "😀", " ", "..", "/"]
    known = [{"issuer": one.issuer, **one.public} for one in SAMPLES if one.name in {"github-actions", "gitlab-ci"}]
    callers = [
        {**caller, member: text[:place] + sign + text[place:]}
        for caller in known
        for member, text in caller.items()
        for place in {0, text.find("@") + 2, len(text) // 2, len(text)}
        for sign in signs
    ]
    calls = Calls()
    for caller in callers:
        calls.add("provenance.js", "runUrl", caller)
    urls = [run_url(caller) for caller in callers]
    assert calls.run() == urls
    assert len(set(urls)) > 2


# -- the questions to a log -------------------------------------------------------------------------------------------------

_LOG = "https://log.example/log"


def asked_of(
    token: str, now: int, *, url: str = _LOG, require: Any = (), proof: bytes = b"", key: Any = make.KEY
) -> Any:
    """Return the questions about a file with this token, and the checks of its report if the log denies it."""
    calls, leaf = Calls(), unverified_leaf(token).to_bytes().decode()
    log = {"policy": {"inline": policy_text(2)}, **({"url": url} if url else {})}
    entry = {"issuer": make.ISSUER, "keys": {"inline": json.loads(make.jwks(key))}, "log": log}
    trust = {"version": 1, "audience": make.AUDIENCE, "issuers": [entry], "require": list(require)}
    read = calls.add("trust.js", "readTrustFile", json.dumps(trust).encode())
    resolved = calls.add("trust.js", "resolve", read, mapping({}))
    entries = calls.add("entry.js", "readEntries", write_entry(SAID.form, token).encode() * 2)
    proofs = {leaf: {"proof": proof}} if proof else {}
    calls.add("questions.js", "questions", entries, resolved, {"now": now, "proofs": mapping(proofs)})
    denied = {"now": now, "asked": mapping({leaf: {"denied": True}})}
    calls.add("verify.js", "verifyEntries", entries, make.REPO, make.PATH, resolved, None, denied)
    *_, questions, reports = calls.run()
    return questions, {made["number"]: made["status"] for made in reports[0]["checks"]}


@pytest.mark.long
def test_a_log_is_asked_once_of_a_token_where_that_may_decide_something() -> None:
    leaf = unverified_leaf(LOGGED)
    asked = [{"leaf": leaf.to_bytes().decode(), "url": f"{_LOG}/proof?iat={leaf.iat}&token={leaf.token.hex()}"}]
    over, log = leaf.exp + 1, ("log",)
    assert asked_of(LOGGED, over)[0] == asked
    denied = {**dict.fromkeys(range(1, 10), "pass"), 10: "skip", 11: "fail"}
    assert asked_of(LOGGED, make.NOW + 5, require=log) == (asked, denied)
    assert asked_of(LOGGED, make.NOW + 5)[0] == []
    assert asked_of(LOGGED, over, url="")[0] == []
    assert asked_of(LOGGED, over, key=make.STRANGER)[0] == []
    assert asked_of(LOGGED, over, proof=LOG.proof(LOGGED, make.NOW + 1, make.NOW + 2))[0] == []
    assert asked_of(LOGGED, over, proof=b"?")[0] == asked
    assert asked_of(make.token_for(SAID), over)[0] == []


@pytest.mark.long
def test_a_token_alone_is_judged_and_never_verified() -> None:
    calls = Calls()
    trust = TRUSTS["plain"]
    read = calls.add("trust.js", "readTrustFile", json.dumps(trust["file"]).encode())
    found = {pointer: each["text"].encode() for pointer, each in trust["documents"].items()}
    resolved = calls.add("trust.js", "resolve", read, mapping(found))
    for token in (LOGGED, "x", LOGGED[:-4] + "AAAA"):
        calls.add("verify.js", "inspectToken", token, resolved, make.NOW + 5, {"now": make.NOW + 5, "witnessed": True})
    good, none, spoilt = calls.run()[-3:]
    verdicts = [(each["verdict"], each["integration"]) for each in (good, none, spoilt)]
    assert verdicts == [("undecided", "inspect-ai"), ("failed", ""), ("failed", "")]
    assert [made["status"] for made in good["checks"]] == ["pass"] * 5 + ["skip"] * 6
    assert {made["evidence"] for made in good["checks"][5:10]} == {"there is no file to compare with"}
