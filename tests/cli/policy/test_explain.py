"""`issuer policy explain` with real tokens of a real provider: its output, and that it never prints a token."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import write_policies
from tests.support.in_process import Done, run
from tests.support.policies import changed
from tests.support.running import BODY

URL = "https://issuer.example.org"


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as live:
        yield live


@pytest.fixture
def folder(tmp_path: Path, provider: LocalProvider) -> Path:
    write_policies(tmp_path / "policies", provider.issuer)
    return tmp_path


def issuer(*arguments: object, stdin: str = "") -> Done:
    return run(["policy", "explain", *map(str, arguments)], stdin=stdin)


def explain(folder: Path, token: str, *more: object, body: Any = BODY) -> Done:
    (folder / "token").write_text(token + "\n")
    (folder / "run.json").write_text(json.dumps(body))
    given = ("--identity-token-file", folder / "token", "--claims", folder / "run.json", "--url", URL, "--development")
    done = issuer(folder / "policies", *given, *more)
    for part in token.split("."):
        assert len(part) < 8 or part not in done.out + done.err, "no part of a token is ever printed"
    return done


def failed(done: Done) -> list[str]:
    return re.findall(r"^FAIL  (\S+)", done.out, re.M)


def test_a_grant_shows_every_check_in_the_order_of_the_service(folder: Path, provider: LocalProvider) -> None:
    token = provider.token(URL)
    done = explain(folder, f"{token.rpartition('.')[0]}.{'A' * 342}")  # no key is at hand to check its signature
    assert (done.code, failed(done)) == (0, []), done.out
    names = re.findall(r"^ok    (.{24})", explain(folder, token, "--verbose").out, re.M)
    rows = [name.partition("  ")[0].strip() for name in names]
    assert rows[:5] == ["provider", "algorithm", "times", "audience of the token", "form of the token"]
    assert rows[5:7] == ["mode", "integration"]
    assert rows.index("audience") < rows.index("framework") < rows.index("metric")
    assert f"ok {len(rows)} checks: {', '.join(rows)} granted" in " ".join(done.out.split()), "the same in one line"
    for text in (
        "granted, as inspect-ai/evaluate-main",
        "signature not checked",
        "unknown offline: rate limits, quarantine",
    ):
        assert text in done.out
    assert json.loads(explain(folder, token, "--json").out)["signature"] == "not checked"
    piped = ("--identity-token-file", "-", "--url", URL, "--development")
    assert issuer(folder / "policies", *piped, stdin=token + "\n").code == 0


def test_a_refusal_shows_the_actual_and_the_wanted_value_and_a_hint(folder: Path, provider: LocalProvider) -> None:
    past: dict[str, Any] = {"exp": 1_500_000_300, "iat": 1_500_000_000, "nbf": 1_500_000_000}
    other, dev, evil = "https://other.example", "refs/heads/dev", "https://evil.example"
    for token, code, actual in (
        (provider.token(URL, **past), "identity.expired", "2017-07-14T02:45:00Z"),
        (provider.token(other), "identity.audience_mismatch", other),
        (provider.token(URL, event_name="pull_request_target"), "identity.event_forbidden", "pull_request_target"),
        (provider.token(URL, ref=dev), "identity.claim_mismatch", dev),
        (provider.token(URL, iss=evil), "identity.issuer_unknown", evil),
    ):
        done = explain(folder, token)
        assert (done.code, failed(done)) == (5, [code]), done.out
        assert actual in done.out.partition("FAIL  ")[2].partition("wanted:")[0]
        assert re.search(rf"^refused: {re.escape(code)}", done.out, re.M)
        check = next(item for item in json.loads(explain(folder, token, "--json").out)["checks"] if not item["passed"])
        assert (check["code"], bool(check["expected"]), bool(check["hint"])) == (code, True, True)


def test_every_fault_of_the_token_and_the_run_is_shown_at_once(folder: Path, provider: LocalProvider) -> None:
    token = provider.token("https://other.example", ref="refs/heads/dev")
    wrong = {"claims": {**BODY["claims"], "benchmark_repo": "a/b"}}
    codes = ["identity.audience_mismatch", "identity.claim_mismatch", "policy.benchmark"]
    assert failed(explain(folder, token, body=wrong)) == codes
    batch = explain(folder, provider.token(URL), body={"results": [{"claims": BODY["claims"]}, wrong]})
    assert failed(batch) == ["policy.benchmark"]
    assert "FAIL  policy.benchmark /results/1/claims/benchmark_repo" in batch.out
    assert explain(folder, provider.token(URL), body=BODY["claims"]).code == 0
    other = explain(folder, provider.token(URL), body={**BODY, "integration": "other"})
    assert failed(other) == ["integration.unknown"]
    stranger = explain(folder, provider.token(URL, repository_id="1"))
    assert (stranger.code, failed(stranger)) == (5, ["integration.unknown", "integration.unknown"])
    nearest = r"FAIL  integration\.unknown inspect-ai/evaluate-main: [a-z._]*\n"
    assert re.search(nearest + r" +yours: +the identity token's repository_id is 1\n +wanted: 7\d+", stranger.out)


def test_as_caller_shows_only_the_service_s_answer(folder: Path, provider: LocalProvider) -> None:
    other, wrong = provider.token("https://other.example"), {"claims": {**BODY["claims"], "benchmark_repo": "a/b"}}
    done = explain(folder, other, "--as-caller")
    assert (done.code, done.out.split("\n")[0]) == (5, "refused: identity.audience_mismatch")
    assert "inspect-ai" not in done.out
    assert json.loads(explain(folder, other, "--as-caller", "--json").out)["integration"] is None
    stranger = explain(folder, provider.token(URL, repository_id="1"), "--as-caller")
    assert (stranger.code, "repository_id=1" in stranger.out, "inspect-ai" in stranger.out) == (5, True, False)
    registered = explain(folder, provider.token(URL), "--as-caller", body=wrong)
    assert (failed(registered), "cais/*" in registered.out) == (["policy.benchmark"], False)
    assert "cais/*" in explain(folder, provider.token(URL), body=wrong).out


def test_a_token_is_judged_at_the_stated_time_and_claims_without_a_token(folder: Path, provider: LocalProvider) -> None:
    token = provider.token(URL, iat=1_500_000_000, nbf=1_500_000_000, exp=1_500_000_300)
    for at, code in (("2017-07-14T02:41:00Z", 0), ("1500000001", 0), ("2017-07-14T03:41:00Z", 5), ("2017-07-14", 2)):
        assert explain(folder, token, "--at", at).code == code, at
    path = folder / "identity.json"
    for claims, code, codes in (
        (provider.claims(), 0, []),
        (provider.claims(ref="refs/heads/dev"), 5, ["identity.claim_mismatch"]),
        ({"iss": "https://evil.example"}, 5, ["identity.issuer_unknown"]),
    ):
        path.write_text(json.dumps(claims))
        done = issuer(folder / "policies", "--identity-claims-file", path, "--development")
        assert (done.code, failed(done)) == (code, codes), done.out


APPS = """
version: 1
providers:
  apps: {{profile: oauth, issuer: "{issuer}"}}
  opaque: {{profile: oauth-introspection, issuer: "https://o.example", introspection: {{client_id: x, client_secret_file: /x, token_prefix: acme_}}}}
  robots: {{profile: pat}}
  hub: {{profile: huggingface}}
"""


@pytest.fixture
def apps(folder: Path, provider: LocalProvider) -> Path:
    """Policies whose identities are an OAuth client, of two servers, a robot and an account of the Hub."""
    (folder / "policies" / "lm-eval.yaml").unlink()
    (folder / "policies" / "providers.yaml").write_text(APPS.format(issuer=provider.issuer))
    path = folder / "policies" / "inspect-ai.yaml"
    head, _, rest = path.read_text().partition("identities:")
    identities = """identities:
  - {id: app, provider: apps, pins: {client_id: "ci"}, require: {sub: "ci"}}
  - {id: opaque-app, provider: opaque, pins: {client_id: "ci"}, require: {sub: {absent: true}}}
  - {id: robot, provider: robots, pins: {account: "nightly"}}
  - {id: account, provider: hub, pins: {id: "63f0"}, require: {token_role: "fineGrained"}}
"""
    path.write_text(head + identities + rest[rest.index("grants:") :].partition("\ntests:")[0] + "\n")
    return folder


def access_token(provider: LocalProvider, typ: str = "at+jwt", **changes: Any) -> str:
    claims = {"iss": provider.issuer, "aud": URL, "sub": "ci", "client_id": "ci", "jti": "one", "scope": "tokens:issue"}
    times = {name: provider.claims()[name] for name in ("iat", "exp")}
    header = {"alg": "RS256", "kid": provider.rs256.kid, "typ": typ}
    return provider.sign(header, {**claims, **times, **changes})


def test_an_access_token_is_judged_by_the_service_s_rules(apps: Path, provider: LocalProvider) -> None:
    done = explain(apps, access_token(provider))
    assert (done.code, failed(done), "granted, as inspect-ai/app" in done.out) == (0, [], True), done
    bad: list[tuple[dict[str, Any], str]] = [
        ({"typ": "JWT"}, "identity.type_refused"),
        ({"cnf": {"jkt": "x"}}, "identity.type_refused"),
        ({"jti": ""}, "identity.malformed"),
        ({"client_id": None}, "identity.malformed"),
        ({"scope": "openid"}, "identity.claim_mismatch"),
        ({"iss": URL}, "identity.issuer_unknown"),  # the service's own tokens are opaque
    ]
    for changes, code in bad:
        refused = explain(apps, access_token(provider, **changes))
        assert (refused.code, failed(refused)[0]) == (5, code), refused.out


def test_an_opaque_credential_needs_its_provider_and_claims(apps: Path, provider: LocalProvider) -> None:
    opaque = "--provider opaque and its claims client_id, scope"
    for token, give in (
        ("evi_pat_x", "--provider robots and its claims account, scope"), ("hf_x", "--provider hub and its claims id"),
        ("acme_x", opaque), (access_token(provider, iss="https://o.example"), opaque),
    ):  # fmt: skip
        done = explain(apps, token)
        text = " ".join(done.err.replace("│", " ").split())
        assert (done.code, done.out, give in text, "--identity-claims-file" in text) == (2, "", True, True)


def test_claims_need_no_iss_if_the_provider_is_named_and_a_lacking_scope_gets_a_hint(apps: Path) -> None:
    path = apps / "identity.json"
    arguments = (apps / "policies", "--identity-claims-file", path, "--development")
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("robots", {"account": "nightly", "scope": "tokens:issue"}, "granted, as inspect-ai/robot"),
        ("robots", {"account": "nightly", "scope": "other"}, "refused: identity.claim_mismatch"),
        ("opaque", {"client_id": "ci", "scope": "tokens:issue"}, "granted, as inspect-ai/opaque-app"),
        ("hub", {"id": "63f0", "auth": {"accessToken": {"role": "fineGrained"}}}, "granted, as inspect-ai/account"),
        ("hub", {"id": "63f0", "auth": {"accessToken": {"role": "write"}}}, "refused: identity.claim_mismatch"),
        ("apps", {"client_id": "other", "scope": "tokens:issue"}, "refused: integration.unknown"),
    ]
    for provider_id, claims, verdict in rows:
        path.write_text(json.dumps(claims))
        done = issuer(*arguments, "--provider", provider_id)
        assert verdict in done.out, done
    for provider_id, claims in (("robots", {"account": "nightly"}), ("apps", {"client_id": "ci", "sub": "ci"})):
        path.write_text(json.dumps({"scope": "other", **claims}))
        for form in ((), ("--as-caller",)):
            done = issuer(*arguments, "--provider", provider_id, *form)
            assert failed(done) == ["identity.claim_mismatch"], done.out
            assert "Ask for a token with the scope tokens:issue." in done.out
            assert "workflow" not in done.out
    without = issuer(*arguments)
    assert (without.code, "have no `iss`: give --provider, one of apps, opaque" in without.err) == (2, True)
    unknown = issuer(*arguments, "--provider", "unknown")
    assert (unknown.code, "which has apps, opaque, robots, hub" in unknown.err) == (2, True)


def test_a_malformed_token_is_not_quoted_and_a_claim_cannot_write_on_the_terminal(
    folder: Path, provider: LocalProvider
) -> None:
    for token in ("", "x", "a.b.c", "e30.e30.", "\x1b[2J", "\x00", "x" * 70_000, "é.é.é", "eyJhbGciOiJub25lIn0.e30.x"):
        done = explain(folder, token)
        assert (done.code, failed(done), "\x1b" in done.out) == (5, ["identity.malformed"], False), token
    drawn = "x\x07\r\ngranted\x1b[2J"
    for code, token in (
        (0, provider.token(URL, repository_owner=drawn)),  # a warning
        (5, provider.token(URL, repository=drawn, repository_id="1")),
        (5, provider.token(URL, ref=drawn)),
    ):
        for more in ((), ("--as-caller",), ("--json",)):
            done = explain(folder, token, *more)
            assert (done.code, {"\x1b", "\r", "\x07"} & set(done.out)) == (code, set())
            assert not re.search("^granted(?!, as)", done.out, re.M)


def test_a_malformed_run_and_wrong_options_explain_no_decision(folder: Path, provider: LocalProvider) -> None:
    token = provider.token(URL)
    malformed: list[Any] = [[], {"claims": {}}, {"claims": BODY["claims"], "other": 1}, {"model_repo": 1}]
    for sent in malformed:
        done = explain(folder, token, body=sent)
        assert (done.code, done.err[:8]) == (3 if sent == [] else 5, "issuer: ")
    assert explain(folder, token, "--provider", "github-actions").code == 2
    by_token = ("--identity-token-file", folder / "token")
    for arguments, code, text in (
        ((), 2, ""),
        ((*by_token, "--identity-claims-file", folder / "token"), 2, ""),
        (by_token, 2, "--url"),
        (("--identity-token-file", folder / "none", "--url", URL, "--development"), 3, "file.unreadable"),
    ):
        done = issuer(folder / "policies", *arguments)
        assert (done.code, text in done.err) == (code, True), arguments
    path = folder / "policies" / "inspect-ai.yaml"
    path.write_text(changed(path.read_text(), "mode: active", "mode: activ"))
    done = explain(folder, token)
    assert (done.code, done.out, "inspect-ai.yaml:" in done.err) == (3, "", True)
