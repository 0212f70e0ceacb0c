"""`issuer policy explain` with real tokens of a real provider: what it shows, hides and never prints."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import write_policies
from tests.support.command import issuer
from tests.support.policies import changed
from tests.support.running import BODY, body

URL = "https://issuer.example.org"


@pytest.fixture(scope="module")
def provider() -> Iterator[LocalProvider]:
    with LocalProvider() as live:
        yield live


@pytest.fixture
def folder(tmp_path: Path, provider: LocalProvider) -> Path:
    write_policies(tmp_path / "policies", provider.issuer)
    return tmp_path


def explain(folder: Path, token: str, *more: object, run: Any = BODY) -> CompletedProcess[str]:
    (folder / "token").write_text(token + "\n")
    (folder / "run.json").write_text(json.dumps(run))
    arguments = [
        "--identity-token-file",
        folder / "token",
        "--claims",
        folder / "run.json",
        "--url",
        URL,
        "--development",
    ]
    done = issuer("policy", "explain", folder / "policies", *arguments, *more)
    assert "Traceback" not in done.stderr
    for part in token.split("."):
        assert len(part) < 8 or part not in done.stdout + done.stderr, "no part of a token is ever printed"
    return done


def failed(done: CompletedProcess[str]) -> list[str]:
    return re.findall(r"^FAIL  (\S+)", done.stdout, re.M)


def test_a_grant_shows_every_check_in_the_order_of_the_service(folder: Path, provider: LocalProvider) -> None:
    done = explain(folder, provider.token(URL))
    assert (done.returncode, failed(done)) == (0, []), done.stdout
    names = re.findall(r"^ok    (.{24})", explain(folder, provider.token(URL), "--verbose").stdout, re.M)
    rows = [name.partition("  ")[0].strip() for name in names]
    assert rows[:5] == ["provider", "algorithm", "times", "audience of the token", "form of the token"]
    assert rows[5:7] == ["mode", "integration"]
    assert rows.index("audience") < rows.index("framework") < rows.index("metric")
    told = " ".join(done.stdout.split())
    assert f"ok {len(rows)} checks: {', '.join(rows)} granted" in told, "the same in one line"
    assert "granted, as inspect-ai/evaluate-main" in done.stdout
    assert "signature not checked" in done.stdout
    assert "unknown offline: rate limits, quarantine" in done.stdout


def test_a_signature_is_not_checked_and_the_answer_says_so(folder: Path, provider: LocalProvider) -> None:
    token = provider.token(URL)
    forged = token[: token.rindex(".") + 1] + "A" * (len(token) - token.rindex(".") - 1)
    done = explain(folder, forged)
    assert (done.returncode, "signature not checked" in done.stdout) == (0, True)
    assert json.loads(explain(folder, forged, "--json").stdout)["signature"] == "not checked"


REFUSED = [
    ({"exp": 1_500_000_300, "iat": 1_500_000_000, "nbf": 1_500_000_000}, "identity.expired", "2017-07-14T02:45:00Z"),
    ({"aud": "https://other.example"}, "identity.audience_mismatch", "https://other.example"),
    ({"event_name": "pull_request_target"}, "identity.event_forbidden", "pull_request_target"),
    ({"ref": "refs/heads/dev"}, "identity.claim_mismatch", "refs/heads/dev"),
    ({"iss": "https://evil.example"}, "identity.issuer_unknown", "https://evil.example"),
]


@pytest.mark.parametrize(("claims", "code", "actual"), REFUSED)
def test_a_refusal_names_what_was_wrong_expected_and_to_do(
    folder: Path, provider: LocalProvider, claims: dict[str, Any], code: str, actual: str
) -> None:
    token = provider.token(claims.get("aud", URL), **{name: value for name, value in claims.items() if name != "aud"})
    done = explain(folder, token)
    assert (done.returncode, failed(done)) == (5, [code]), done.stdout
    block = done.stdout.partition("FAIL  ")[2].partition("wanted:")[0]
    assert actual in block
    assert re.search(rf"^refused: {re.escape(code)}", done.stdout, re.M)
    check = next(item for item in json.loads(explain(folder, token, "--json").stdout)["checks"] if not item["passed"])
    assert (check["code"], bool(check["expected"]), bool(check["hint"])) == (code, True, True)


def test_what_is_wrong_with_a_token_hides_nothing_of_what_the_policy_says(
    folder: Path, provider: LocalProvider
) -> None:
    done = explain(
        folder, provider.token("https://other.example", ref="refs/heads/dev"), run=body(benchmark_repo="a/b")
    )
    assert failed(done) == ["identity.audience_mismatch", "identity.claim_mismatch", "policy.benchmark"]


def test_an_unregistered_token_shows_the_registration_that_comes_nearest(folder: Path, provider: LocalProvider) -> None:
    done = explain(folder, provider.token(URL, repository_id="1"))
    assert (done.returncode, failed(done)) == (5, ["integration.unknown", "integration.unknown"])
    assert re.search(
        r"FAIL  integration\.unknown inspect-ai/evaluate-main: [a-z._]*\n"
        r" +yours: +the identity token's repository_id is 1\n +wanted: 7\d+",
        done.stdout,
    )


def test_as_caller_shows_what_the_service_would_and_no_more(folder: Path, provider: LocalProvider) -> None:
    # A bad identity: its code.
    done = explain(folder, provider.token("https://other.example"), "--as-caller")
    assert (done.returncode, done.stdout.split("\n")[0]) == (5, "refused: identity.audience_mismatch")
    assert "inspect-ai" not in done.stdout
    assert (
        json.loads(explain(folder, provider.token("https://o.example"), "--as-caller", "--json").stdout)["integration"]
        is None
    )
    # Nobody's: its own claims.
    done = explain(folder, provider.token(URL, repository_id="1"), "--as-caller")
    assert (done.returncode, "repository_id=1" in done.stdout, "inspect-ai" in done.stdout) == (5, True, False)
    # Registered: every check, but what the policy does not disclose.
    done = explain(folder, provider.token(URL), "--as-caller", run=body(benchmark_repo="a/b"))
    assert failed(done) == ["policy.benchmark"]
    assert "cais/*" not in done.stdout
    assert "cais/*" in explain(folder, provider.token(URL), run=body(benchmark_repo="a/b")).stdout


def test_time_is_as_stated(folder: Path, provider: LocalProvider) -> None:
    token = provider.token(URL, iat=1_500_000_000, nbf=1_500_000_000, exp=1_500_000_300)
    assert explain(folder, token, "--at", "2017-07-14T02:41:00Z").returncode == 0
    assert explain(folder, token, "--at", "1500000001").returncode == 0
    assert failed(explain(folder, token, "--at", "2017-07-14T03:41:00Z")) == ["identity.expired"]
    assert explain(folder, token, "--at", "2017-07-14T03:41:00").returncode == 2


def test_claims_alone_explain_to_an_author_without_a_token(folder: Path, provider: LocalProvider) -> None:
    path = folder / "identity.json"
    path.write_text(json.dumps(provider.claims()))
    arguments = ("policy", "explain", folder / "policies", "--identity-claims-file", path, "--development")
    done = issuer(*arguments)
    assert (done.returncode, "identity.expired" in done.stdout) == (0, False), done.stdout
    path.write_text(json.dumps(provider.claims(ref="refs/heads/dev")))
    assert failed(issuer(*arguments)) == ["identity.claim_mismatch"]
    path.write_text('{"iss": "https://evil.example"}')
    assert failed(issuer(*arguments)) == ["identity.issuer_unknown"]


# -- reusable credentials -----------------------------------------------------------------------------------------------

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


def test_an_access_token_is_explained_as_the_service_judges_it(apps: Path, provider: LocalProvider) -> None:
    done = explain(apps, access_token(provider))
    assert (done.returncode, failed(done)) == (0, []), done.stdout + done.stderr
    assert "granted, as inspect-ai/app" in done.stdout
    bad: list[tuple[dict[str, Any], str]] = [
        ({"typ": "JWT"}, "identity.type_refused"),
        ({"cnf": {"jkt": "x"}}, "identity.type_refused"),
        ({"jti": ""}, "identity.malformed"),
        ({"client_id": None}, "identity.malformed"),
        ({"scope": "openid"}, "identity.claim_mismatch"),
    ]
    for changes, code in bad:
        refused = explain(apps, access_token(provider, **changes))
        assert (refused.returncode, failed(refused)[0]) == (5, code), refused.stdout


@pytest.mark.parametrize(
    ("token", "give"),
    [
        ("evi_pat_x", "--provider robots and its claims account, scope"),
        ("hf_x", "--provider hub and its claims id"),
        ("acme_x", "--provider opaque and its claims client_id, scope"),
        ("jwt of the opaque one", "--provider opaque and its claims client_id, scope"),
    ],
)
def test_a_credential_that_says_nothing_by_itself_is_not_guessed_at(
    apps: Path, provider: LocalProvider, token: str, give: str
) -> None:
    if token.startswith("jwt"):
        token = access_token(provider, iss="https://o.example")
    done = explain(apps, token)
    assert (done.returncode, done.stdout) == (2, "")
    told = " ".join(done.stderr.replace("│", " ").split())
    assert give in told
    assert "--identity-claims-file" in told


def test_a_jwt_that_names_this_service_as_its_issuer_is_nobody_s(apps: Path, provider: LocalProvider) -> None:
    """Its own tokens are opaque, and so the service refuses it without asking anyone."""
    done = explain(apps, access_token(provider, iss=URL))
    assert (done.returncode, failed(done)) == (5, ["identity.issuer_unknown"])


@pytest.mark.parametrize(
    ("provider_id", "claims", "verdict"),
    [
        ("robots", {"account": "nightly", "scope": "tokens:issue"}, "granted, as inspect-ai/robot"),
        ("robots", {"account": "nightly", "scope": "other"}, "refused: identity.claim_mismatch"),
        ("opaque", {"client_id": "ci", "scope": "tokens:issue"}, "granted, as inspect-ai/opaque-app"),
        ("hub", {"id": "63f0", "auth": {"accessToken": {"role": "fineGrained"}}}, "granted, as inspect-ai/account"),
        ("hub", {"id": "63f0", "auth": {"accessToken": {"role": "write"}}}, "refused: identity.claim_mismatch"),
        ("apps", {"client_id": "other", "scope": "tokens:issue"}, "refused: integration.unknown"),
    ],
)
def test_claims_of_a_provider_that_is_named_need_no_iss(
    apps: Path, provider_id: str, claims: dict[str, Any], verdict: str
) -> None:
    path = apps / "identity.json"
    path.write_text(json.dumps(claims))
    arguments = ("policy", "explain", apps / "policies", "--identity-claims-file", path, "--development")
    done = issuer(*arguments, "--provider", provider_id)
    assert verdict in done.stdout, done.stdout + done.stderr
    unsaid = issuer(*arguments)
    assert unsaid.returncode == 2
    assert "the claims have no `iss`: give --provider, one of apps, opaque" in unsaid.stderr
    unknown = issuer(*arguments, "--provider", "nobody")
    assert (unknown.returncode, "which has apps, opaque, robots, hub" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("provider_id", "pin"), [("robots", "account"), ("opaque", "client_id"), ("apps", "client_id")]
)
def test_a_credential_without_the_scope_is_told_to_get_one_with_it(apps: Path, provider_id: str, pin: str) -> None:
    who = {"account": "nightly", "client_id": "ci"}[pin]
    own = {"sub": "ci"} if provider_id == "apps" else {}
    (apps / "identity.json").write_text(json.dumps({pin: who, "scope": "other", **own}))
    arguments = ("--identity-claims-file", apps / "identity.json", "--development", "--provider", provider_id)
    for form in ((), ("--as-caller",)):
        done = issuer("policy", "explain", apps / "policies", *arguments, *form)
        assert failed(done) == ["identity.claim_mismatch"], done.stdout
        assert "Ask for a token with the scope tokens:issue." in done.stdout
        assert "workflow" not in done.stdout


def test_a_token_s_provider_is_not_chosen(folder: Path, provider: LocalProvider) -> None:
    assert explain(folder, provider.token(URL), "--provider", "github-actions").returncode == 2


def test_a_token_may_come_by_standard_input(folder: Path, provider: LocalProvider) -> None:
    arguments = ("policy", "explain", folder / "policies", "--identity-token-file", "-", "--url", URL, "--development")
    assert issuer(*arguments, stdin=provider.token(URL) + "\n").returncode == 0


def test_a_batch_is_explained_as_one_request(folder: Path, provider: LocalProvider) -> None:
    batch = {"results": [{"claims": BODY["claims"]}, {"claims": {**BODY["claims"], "benchmark_repo": "a/b"}}]}
    done = explain(folder, provider.token(URL), run=batch)
    assert failed(done) == ["policy.benchmark"]
    assert "FAIL  policy.benchmark /results/1/claims/benchmark_repo" in done.stdout


def test_run_claims_alone_and_a_request_body_are_both_read(folder: Path, provider: LocalProvider) -> None:
    assert explain(folder, provider.token(URL), run=BODY["claims"]).returncode == 0
    done = explain(folder, provider.token(URL), run={**BODY, "integration": "other"})
    assert failed(done) == ["integration.unknown"]


@pytest.mark.parametrize(
    "token", ["", "x", "a.b.c", "e30.e30.", "\x1b[2J", "\x00", "x" * 70_000, "é.é.é", "eyJhbGciOiJub25lIn0.e30.x"]
)
def test_what_is_no_token_is_refused_without_being_quoted(folder: Path, token: str) -> None:
    done = explain(folder, token)
    assert (done.returncode, failed(done)) == (5, ["identity.malformed"])
    assert "\x1b" not in done.stdout


HOSTILE = "x\x07\r\ngranted\x1b[2J"


@pytest.mark.parametrize("more", [(), ("--as-caller",), ("--json",)])
def test_a_claim_s_value_cannot_write_on_the_terminal(
    folder: Path, provider: LocalProvider, more: tuple[str, ...]
) -> None:
    tokens = [
        provider.token(URL, repository_owner=HOSTILE),  # a warning
        provider.token(URL, repository=HOSTILE, repository_id="1"),  # what a stranger is told
        provider.token(URL, ref=HOSTILE),
    ]
    for code, token in zip((0, 5, 5), tokens, strict=True):
        done = explain(folder, token, *more)
        assert (done.returncode, {"\x1b", "\r", "\x07"} & set(done.stdout)) == (code, set())
        assert not re.search("^granted(?!, as)", done.stdout, re.M)


@pytest.mark.parametrize("run", [[], {"claims": {}}, {"claims": BODY["claims"], "other": 1}, {"model_repo": 1}])
def test_a_run_that_the_service_would_refuse_is_refused_here(folder: Path, provider: LocalProvider, run: Any) -> None:
    done = explain(folder, provider.token(URL), run=run)
    assert done.returncode == (3 if run == [] else 5)
    assert done.stderr.startswith("issuer: ")


def test_usage(folder: Path, provider: LocalProvider) -> None:
    (folder / "token").write_text(provider.token(URL))
    both = ("--identity-token-file", folder / "token", "--identity-claims-file", folder / "token")
    assert issuer("policy", "explain", folder / "policies").returncode == 2
    assert issuer("policy", "explain", folder / "policies", *both).returncode == 2
    without_url = issuer("policy", "explain", folder / "policies", *both[:2])
    assert (without_url.returncode, "--url" in without_url.stderr) == (2, True)
    missing = issuer(
        "policy",
        "explain",
        folder / "policies",
        "--identity-token-file",
        folder / "none",
        "--url",
        URL,
        "--development",
    )
    assert (missing.returncode, "file.unreadable" in missing.stderr) == (3, True)


def test_policies_that_do_not_load_explain_nothing(folder: Path, provider: LocalProvider) -> None:
    path = folder / "policies" / "inspect-ai.yaml"
    path.write_text(changed(path.read_text(), "mode: active", "mode: activ"))
    done = explain(folder, provider.token(URL))
    assert (done.returncode, done.stdout) == (3, "")
    assert "inspect-ai.yaml:" in done.stderr
