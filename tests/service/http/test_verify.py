"""`POST /verify`: the whole report for every question, which is not kept or logged."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE, free_port
from issuer.errors import InputError, Refused, SetupError
from issuer.formats.strict_yaml import load
from issuer.service.http.bounds import QUESTION_MS, REREAD_S
from issuer.service.http.request_limits import Tarpit
from issuer.service.http.verify import OwnTrust, answer_question, verify_routes
from issuer.service.metrics.counts import Board, Counters
from issuer.token.wire import ARCHIVE_PATH, JWKS_PATH
from issuer.verify.report import json_schema
from issuer.verify.revocations import Revocations
from tests.support import make
from tests.support.judging import PATH, ask, write_trust
from tests.support.leaks import assert_nothing_secret
from tests.support.running import Running, running

OWN_KEYS, OWN_ARCHIVE = make.ISSUER + JWKS_PATH, make.ISSUER + ARCHIVE_PATH
OWN = {OWN_KEYS: make.jwks}
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


@pytest.fixture(scope="module")
def judging(tmp_path_factory: pytest.TempPathFactory, provider: LocalProvider) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("judging"), free_port()
    url = f"http://127.0.0.1:{port}"
    trust = write_trust(folder, url)
    trust.write_text(f"{trust.read_text()}  archive: {{url: {url}{ARCHIVE_PATH}}}\n")
    with running(folder, provider, port=port, trust=str(trust)) as live:
        yield live
        live.process.terminate()
        assert live.process.wait(60) == 0
        assert_nothing_secret(live)
        assert "gsm8k" not in live.log_text()


@pytest.fixture(scope="module")
def entry(judging: Running) -> str:
    return str(judging.post(judging.token()).json()["entry"])


def report(answer: httpx.Response) -> Any:
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    VALIDATOR.validate(answer.json())
    (only,) = answer.json()["reports"]
    return only


def assert_problem(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, answer.json()["code"]) == (status, code)


# -- answers --------------------------------------------------------------------------------------------------------------


def question(**members: Any) -> bytes:
    body = msgspec.json.encode({"repo": make.REPO, "path": PATH, **members})
    assert len(body) <= 65_536
    return body


def test_entries_are_answered_by_reports(judging: Running, entry: str) -> None:
    found = report(answer := ask(judging, yaml=entry))
    assert (found["verdict"], found["issuer"], found["at_from"]) == ("verified", judging.url, "unknown")
    assert [check["status"] for check in found["checks"]] == ["pass"] * 9 + ["skip"] * 2
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-request-id"]
    entries: Any = load(entry.encode(), "entry").value
    (as_json,) = entries
    assert report(ask(judging, entry=as_json))["verdict"] == "verified"
    changed = report(ask(judging, yaml=entry.replace("no tools", "tools")))
    assert (changed["verdict"], [c["number"] for c in changed["checks"] if c["status"] == "fail"]) == ("failed", [9])
    assert report(ask(judging, yaml=entry, repo="acme/other"))["verdict"] == "failed"
    assert report(ask(judging, yaml=entry[: entry.index("  verify_token")]))["verdict"] == "unverified"
    late = report(ask(judging, yaml=entry, at=int(time.time()) + 90_000))
    assert (late["verdict"], late["at_from"]) == ("failed", "stated")
    assert "expired" in late["checks"][4]["evidence"]
    alone = f"{entry}  value: {as_json['metrics'][0]['value']}\n"
    assert report(ask(judging, yaml=alone))["verdict"] == "verified", "the only metric is the primary one"
    other = make.BENCHMARK_TEXT.replace("accuracy", "other")
    assert report(ask(judging, yaml=alone, benchmark=other))["verdict"] == "failed", "it is not the primary one"
    several = ask(judging, yaml=entry + entry)
    VALIDATOR.validate(several.json())
    assert [found["pointer"] for found in several.json()["reports"]] == ["/0", "/1"]
    assert ask(judging, yaml="[]").json() == {"version": 1, "reports": []}


def test_an_unknown_key_fails_once_the_own_keys_were_read_again(tmp_path: Path) -> None:
    trust = OwnTrust(write_trust(tmp_path, make.ISSUER), {OWN_KEYS: lambda: make.jwks(make.STRANGER)}, make.NOW)
    body = question(yaml=make.file_for(make.submission(), aud=AUDIENCE))
    for now, verdict in ((make.NOW + 1, "undecided"), (make.NOW + REREAD_S, "failed")):
        (report,) = answer_question(body, trust, now).reports
        assert (report.verdict, report.wants_keys_of == make.ISSUER) == (verdict, verdict == "undecided")


def test_a_token_of_a_retired_key_is_verified_only_by_the_archive_and_a_stated_time(tmp_path: Path) -> None:
    alone = write_trust(tmp_path, make.ISSUER)
    (tmp_path / "whole").mkdir()
    whole = write_trust(tmp_path / "whole", make.ISSUER)
    whole.write_text(f"{whole.read_text()}  archive: {{url: {OWN_ARCHIVE}}}\n")
    kept = make.jwks(make.KEY, active_from=make.NOW - 1, last_token_exp=make.NOW + make.YEAR - 1)
    own = {OWN_KEYS: lambda: make.jwks(make.STRANGER), OWN_ARCHIVE: lambda: kept}
    text, now = make.file_for(make.submission(), aud=AUDIENCE), make.NOW + make.YEAR
    for path, at, verdict in (
        (alone, None, "undecided"), (alone, make.NOW + 5, "undecided"),
        (whole, None, "undecided"), (whole, make.NOW + 5, "verified"),
    ):  # fmt: skip
        stated = {} if at is None else {"at": at}
        (report,) = answer_question(question(yaml=text, **stated), OwnTrust(path, own, now), now).reports
        assert (report.verdict, report.failed) == (verdict, ()), (path, at)


def test_an_older_revocation_list_does_not_count(tmp_path: Path) -> None:
    path = write_trust(tmp_path, make.ISSUER)
    path.write_text(path.read_text() + "  revocations: {file: list.jwt}\nrevocation_keys: {file: rk.json}\n")
    (tmp_path / "rk.json").write_bytes(make.jwks(make.REVOCATION_KEY))
    (tmp_path / "list.jwt").write_bytes(make.revocation_list(number=2, jti=[make.JTI]))
    trust = OwnTrust(path, OWN, make.NOW)
    (tmp_path / "list.jwt").write_bytes(make.revocation_list(number=1))
    for turn in range(3):
        listed = trust(make.NOW + turn * REREAD_S).issuers[make.ISSUER].revocations
        assert isinstance(listed, Revocations)
        assert listed.number == 2


def test_an_attempt_is_reported_and_judged_by_the_service_s_trust_file(tmp_path: Path) -> None:
    path = write_trust(tmp_path, make.ISSUER)
    attempt = {"number": 3, "since": make.NOW - 9}
    text = make.file_for(make.submission(), aud=AUDIENCE, attempt=attempt)
    body = question(yaml=text)
    for line, failed in (("", ()), ("max_attempt: 3\nrequire: [attempt]\n", ()), ("max_attempt: 2\n", (4,))):
        path.write_text(write_trust(tmp_path, make.ISSUER).read_text() + line)
        reports = answer_question(body, OwnTrust(path, {OWN_KEYS: make.jwks}, make.NOW), make.NOW)
        document = msgspec.json.decode(msgspec.json.encode(reports))
        VALIDATOR.validate(document)
        assert (document["reports"][0]["attempt"], reports.reports[0].failed) == (attempt, failed)


# -- refusals -------------------------------------------------------------------------------------------------------------


def test_a_malformed_question_is_a_problem_with_its_place(judging: Running, entry: str) -> None:
    answer = ask(judging, yaml=entry + "- &secret-anchor 1\n")
    assert_problem(answer, 400, "request.malformed")
    (error,) = answer.json()["errors"]
    assert (error["pointer"], "line " in error["detail"], "eyJ" in answer.text) == ("/yaml", True, False)
    assert_problem(ask(judging, yaml=entry, trust="x"), 400, "request.unknown_member")
    assert_problem(judging.post(None, b'{"repo":"a","repo":"b"}', "/verify"), 400, "request.duplicate_member")
    assert_problem(judging.post(None, b"", "/verify"), 400, "request.malformed")
    assert_problem(judging.post(None, b" " * 70_000, "/verify"), 413, "request.too_large")
    assert_problem(judging.post(None, b"{}", "/verify", **{"Content-Type": "text/plain"}), 415, "request.media_type")
    assert_problem(judging.http.get("/verify"), 405, "request.method")


FEW = (
    "- {dataset: {id: a/b}, metrics: [], verify_token: x}\n" * 200,
    "- {dataset: {id: a/b}, x: [" + '"abc\\u0061",' * 1900 + "1]}\n",
    "- {dataset: {id: a/b}, x: [" + "[[[[[[0]]]]]]," * 270 + "1]}\n",
    "- {dataset: {id: a/b}, x: [" + "{a: 1}," * 600 + "1]}\n",
)
MANY = (
    "- {a: b}\n" * 6_000,
    "- {dataset: {id: a/b}, x: [" + "1," * 20_000 + "1]}\n",
    "- {x: [" + "[[[[[[0]]]]]]," * 300 + "1]}\n",
)
TASKS = "name: x\ntasks:\n" + "- {id: a}\n" * 600


def test_a_question_has_a_bounded_number_of_values() -> None:
    """The worst 64 KiB took 240 ms of CPU time without the bound, and take 24 with it; 5 s are for a slow machine."""
    for text in FEW:
        began = time.process_time()
        answer_question(question(yaml=text, benchmark=TASKS), lambda _: make.trust(), make.NOW)
        assert time.process_time() - began < 5
    too_large: list[tuple[str, dict[str, Any]]] = [
        *(("/yaml", {"yaml": text}) for text in MANY),
        ("/benchmark", {"yaml": FEW[0], "benchmark": TASKS + "- {id: a}\n" * 3000}),
        ("", {"entry": {"artifacts": [0] * 3000}}),
    ]
    for pointer, members in too_large:
        with pytest.raises(Refused, match=r"request.malformed: .*more than 2000 values") as caught:
            answer_question(question(**members), lambda _: make.trust(), make.NOW)
        assert caught.value.faults[0].pointer == pointer


def test_openapi_describes_questions_and_reports(judging: Running) -> None:
    document = judging.http.get("/openapi.json").json()
    operation, schemas = document["paths"]["/verify"]["post"], document["components"]["schemas"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/VerifyRequest")
    assert operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith("/Reports")
    assert {"400", "413", "415", "429"} <= operation["responses"].keys()
    assert "security" not in operation
    assert {"VerifyRequest", "Reports", "Report"} <= schemas.keys()


@pytest.mark.long
def test_a_source_with_too_many_questions_still_gets_tokens(tmp_path: Path, provider: LocalProvider) -> None:
    port = free_port()
    trust = write_trust(tmp_path, f"http://127.0.0.1:{port}")
    with running(tmp_path, provider, port=port, trust=str(trust)) as live:
        asked = 1
        while (answer := ask(live, yaml="[]")).status_code == 200 and asked < 10 * QUESTION_MS.burst:
            asked += 1  # one a second is given back meanwhile
        assert asked > QUESTION_MS.burst
        assert_problem(answer, 429, "rate.source")
        assert 1 <= int(answer.headers["retry-after"]) <= 2
        assert live.post(live.token()).status_code == 201


# -- the trust file -------------------------------------------------------------------------------------------------------


def test_a_service_without_a_trust_file_has_no_such_endpoint(service: Running) -> None:
    assert verify_routes("", service.url, {}, Tarpit(service.url), Counters(Board().rows[0])) == []
    assert service.post(service.token()).status_code == 201
    assert_problem(ask(service, yaml="[]"), 404, "request.not_found")
    assert "/verify" not in service.http.get("/openapi.json").json()["paths"]


def test_an_unfit_trust_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="the service fetches none") as caught:
        OwnTrust(write_trust(tmp_path, "https://other.example"), OWN, make.NOW)
    assert caught.value.code is Code.SETTINGS_INVALID
    with pytest.raises(InputError, match=r"file\.unreadable"):
        OwnTrust(tmp_path / "none.yaml", OWN, make.NOW)
    path = write_trust(tmp_path, make.ISSUER)
    path.write_text(path.read_text("utf-8").replace("audience", "audiences"), "utf-8")
    with pytest.raises(InputError, match=r"trust.yaml:\d+:\d+: file.unknown_member"):
        OwnTrust(path, OWN, make.NOW)


def test_files_are_read_again_after_a_minute_and_a_broken_file_is_not_used(tmp_path: Path) -> None:
    path = write_trust(tmp_path, make.ISSUER)
    own = OwnTrust(path, OWN, make.NOW)
    assert own(make.NOW).issuers[make.ISSUER].keys == make.key_set()
    path.write_text(path.read_text("utf-8").replace(AUDIENCE, "https://new.example"), "utf-8")
    assert own(make.NOW + 59).audience == AUDIENCE
    assert own(make.NOW + 60).audience == "https://new.example"
    good = path.read_text("utf-8")
    path.write_text("broken", "utf-8")
    with capture_logs() as events:
        assert [own(make.NOW + 60 * turn).audience for turn in (2, 3, 4)] == ["https://new.example"] * 3
        path.write_text(good.replace("https://new.example", AUDIENCE), "utf-8")
        assert own(make.NOW - 86_400).audience == AUDIENCE, "also after the clock was set back"
    assert [line["event"] for line in events] == ["trust file not read again", "trust file read again"]
    path.write_text(good.replace(f"{{url: {make.ISSUER}/.well-known/jwks.json}}", "{file: keys.json}"), "utf-8")
    (tmp_path / "keys.json").write_bytes(make.jwks(make.STRANGER))
    beside = OwnTrust(path, OWN, make.NOW)(make.NOW).issuers[make.ISSUER].keys
    assert beside == make.key_set(make.STRANGER), "a file beside it"
