"""`POST /oauth/token` over HTTP: the token of `/tokens` for OAuth clients, and OAuth's errors (RFC 8693, 9396, 6749)."""

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import httpx
import msgspec
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata  # type: ignore[import-untyped]

from issuer.codes import Code
from issuer.dev.sandbox import AUDIENCE
from issuer.service.http.messages import oauth_error
from issuer.service.http.public_documents import well_known
from tests.support.exchanging import ID_TOKEN, JWT, detail, exchange, form, post
from tests.support.request_events import event_of, refusal_event
from tests.support.running import BODY, Running, body, numbered

DESCRIPTION = re.compile(r"[ !#-\[\]-~]+")  # RFC 6749 5.2
PLACE = "/authorization_details/0"


def test_an_exchange_gives_the_token_that_the_same_request_gets_from_tokens(service: Running) -> None:
    identity = service.token()
    answer = exchange(service, identity, requested_token_type=JWT, audience=AUDIENCE)
    issued = answer.json()
    assert answer.status_code == 200
    assert (answer.headers["cache-control"], answer.headers["pragma"]) == ("no-store", "no-cache")
    assert answer.headers["content-type"] == "application/json"
    assert (issued["issued_token_type"], issued["token_type"]) == (JWT, "N_A")
    assert issued["access_token"] == issued["verify_token"]
    assert issued["expires_in"] == issued["expires_at"] - issued["issued_at"] == 3600
    other = service.post(identity)
    assert (other.status_code, other.headers["idempotent-replay"]) == (200, "true")
    of_both = {name: value for name, value in other.json().items() if name != "token_type"}
    assert of_both.items() <= issued.items(), "a repeat through the other endpoint gets the same token"
    again = exchange(service, identity)
    assert again.headers["idempotent-replay"] == "true"
    assert {**again.json(), "expires_in": 3600} == issued
    other_request = exchange(service, identity, authorization_details=detail(numbered(2)))
    assert (other_request.status_code, other_request.json()["code"]) == (400, "identity.replayed")


def test_one_identity_at_both_endpoints_at_once_gets_one_token(service: Running) -> None:
    identity = service.token()
    service.secrets.append(identity)

    def ask(number: int) -> httpx.Response:
        return exchange(service, identity) if number % 2 else service.post(identity)

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert {answer.json()["verify_token"] for answer in answers} == {answers[0].json()["verify_token"]}
    assert sum("idempotent-replay" not in answer.headers for answer in answers) == 1


def test_a_form_may_have_blanks_unknown_parameters_and_a_public_client_id(service: Running) -> None:
    sent = urlencode(form(service.token())) + "&client_id=me&audience=&scope=&x=1&" + urlencode({"resource": AUDIENCE})
    assert post(service, sent).status_code == 200
    spaced = detail(body(framework={"name": "inspect-ai", "version": "0.3.285", "command": "a + b & c = d%20 é"}))
    answer = exchange(service, authorization_details=spaced)
    assert "a + b & c = d%20 é" in answer.json()["entry"], answer.json()


# By OAuth's error, our code and the place: the parameters that cause it, or the whole form with the identity as {}.
REFUSALS: dict[tuple[str, str, str], list[dict[str, str | None] | str]] = {
    ("unsupported_grant_type", "exchange.grant_type", "/grant_type"): [{"grant_type": "client_credentials"}],
    ("invalid_scope", "exchange.scope", "/scope"): [{"scope": "all"}],
    ("invalid_request", "exchange.actor", "/actor_token"): [{"actor_token": "x", "actor_token_type": ID_TOKEN}],
    ("invalid_request", "exchange.parameter", "/grant_type"): [{"grant_type": None}, {"grant_type": ""}],
    ("invalid_request", "exchange.parameter", "/subject_token"): [
        {"subject_token": None}, {"subject_token": "x" * 20_000},
    ],
    ("invalid_request", "exchange.parameter", "/subject_token_type"): [
        {"subject_token_type": None}, {"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"},
    ],
    ("invalid_request", "exchange.parameter", "/requested_token_type"): [{"requested_token_type": ID_TOKEN}],
    ("invalid_request", "exchange.parameter", "/authorization_details"): [
        {"authorization_details": None}, "{}&authorization_details=%zz", "{}&authorization_details=%ff",
    ],
    ("invalid_request", "exchange.parameter", "/x~1y"): ["{}&x/y=1&x%2Fy=2"],
    ("invalid_request", "exchange.parameter", ""): ["{}" + "&a=b" * 33],
    ("invalid_target", "exchange.target", "/audience"): [
        "{}&audience=a&audience=a", "{}&audience=a&resource=b", "{}&resource=b&resource=c",
    ],
    ("invalid_target", "policy.audience", "/audience"): [{"audience": "https://other.example"}],
    ("invalid_authorization_details", "exchange.details", "/authorization_details"): [
        {"authorization_details": text}
        for text in (
            "[]", "{", "{}", "1", detail()[:-1] + "," + detail()[1:], '["eval_result"]', '[{"type": "other"}]',
            "[" + msgspec.json.encode(BODY).decode() + "]", "[" * 30_000, "[[[[]]]]", detail() + "x",
        )
    ],
    ("invalid_authorization_details", "exchange.details", f"{PLACE}/audience"): [
        {"authorization_details": detail({**BODY, "audience": AUDIENCE})},
    ],
    ("invalid_authorization_details", "request.malformed", PLACE): [{"authorization_details": detail({})}],
    ("invalid_authorization_details", "request.unknown_member", f"{PLACE}/notes"): [
        {"authorization_details": detail({**BODY, "notes": "x"})},
    ],
    ("invalid_authorization_details", "request.duplicate_member", f"{PLACE}/claims"): [
        {"authorization_details": detail()[:-2] + ',"cl\\u0061ims":{}}]'},
    ],
    ("invalid_authorization_details", "request.duplicate_member", f"{PLACE}/type"): [
        {"authorization_details": detail()[:-2] + ',"type":"eval_result"}]'},
    ],
    ("invalid_authorization_details", "claims.invalid", f"{PLACE}/claims/task_id"): [
        {"authorization_details": detail(body(task_id="a b"))},
    ],
    ("invalid_authorization_details", "nonce.invalid", f"{PLACE}/nonce"): [
        {"authorization_details": detail({**BODY, "nonce": "A" * 22})},
    ],
    ("invalid_request", "policy.benchmark", f"{PLACE}/claims/benchmark_repo"): [
        {"authorization_details": detail(body(benchmark_repo="not/granted"))},
    ],
    ("invalid_request", "integration.unknown", f"{PLACE}/integration"): [
        {"authorization_details": detail({**BODY, "integration": "lm-eval"})},
    ],
}  # fmt: skip


def test_a_bad_form_is_refused_with_an_oauth_error_our_code_and_the_place(service: Running) -> None:
    for (error, code, place), forms in REFUSALS.items():
        for changes in forms:
            identity = service.token()
            if isinstance(changes, str):
                good = form(identity, authorization_details=None if "authorization_details" in changes else detail())
                answer = post(service, changes.replace("{}", urlencode(good)))
            else:
                answer = exchange(service, identity, **changes)
            problem = answer.json()
            assert answer.status_code == 400, (code, problem)
            assert (problem["error"], problem["code"]) == (error, code), (changes, problem)
            assert problem["errors"][0]["pointer"] == place
            assert DESCRIPTION.fullmatch(problem["error_description"])
            assert problem["error_uri"] == f"{service.url}/errors/{code}"
            assert answer.headers["cache-control"] == "no-store"
            assert "www-authenticate" not in answer.headers
            assert problem["retryable"] is False


def test_client_authentication_is_refused_as_invalid_client(service: Running) -> None:
    good = form(service.token())
    basic, bearer = {"Authorization": "Basic bWU6"}, {"Authorization": f"Bearer {service.token()}"}
    answers = [post(service, good, **basic), post(service, good, **bearer)]
    answers += [post(service, {**good, name: "x"}) for name in ("client_secret", "client_assertion")]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
        assert answer.headers["www-authenticate"] == "Basic"


def test_only_a_form_of_96_kib_is_read(service: Running) -> None:
    good = form(service.token())
    for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain"):
        answer = post(service, good, **{"Content-Type": kind})
        assert (answer.status_code, answer.json()["error"]) == (415, "invalid_request")
    answer = post(service, {**good, "x": "y" * 96 * 1024})
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    charset = post(service, good, **{"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"})
    assert charset.status_code == 200


def test_an_unacceptable_subject_token_is_an_invalid_request(service: Running) -> None:
    for identity, code in (
        ("not.a.token", "identity.malformed"),
        ("a b", "identity.malformed"),
        ("é", "identity.malformed"),
        ("evi_pat_a\r\nb: c", "identity.malformed"),
        (service.provider.token("https://other.example"), "identity.audience_mismatch"),
        (service.token(cnf={"jkt": "x"}), "identity.type_refused"),
        (service.token(repository_id="1", repository='a/"é'), "integration.unknown"),
    ):
        answer = exchange(service, identity)
        assert answer.status_code == 400, answer.text
        assert (answer.status_code, answer.json()["error"], answer.json()["code"]) == (400, "invalid_request", code)
        assert identity not in answer.text
        assert "www-authenticate" not in answer.headers
        assert DESCRIPTION.fullmatch(answer.json()["error_description"])


def test_a_refused_caller_sees_the_checks_with_their_places_in_the_form(service: Running) -> None:
    sent = detail(body(framework={"name": "helm", "version": "0.3.285"}))
    checks = exchange(service, authorization_details=sent).json()["checks"]
    assert [check["pointer"] for check in checks if not check["passed"]] == [f"{PLACE}/claims/framework/name"]


def test_an_exchange_is_audited_charged_and_counted_as_a_token_request_is(service: Running) -> None:
    answer = exchange(service, authorization_details=detail(numbered(91)))
    event = event_of(service, answer)
    assert event is not None
    assert (event["verdict"], event["endpoint"], event["jti"]) == ("issued", "/oauth/token", [answer.json()["jti"]])
    assert "r=" in answer.headers["ratelimit"], "it costs the rates of /tokens"
    details = detail(body(benchmark_repo="x/y"))
    refused = refusal_event(service, lambda: exchange(service, authorization_details=details))
    assert (refused["verdict"], refused["code"]) == ("refused", "policy.benchmark")
    refused = refusal_event(service, lambda: exchange(service, authorization_details="[]"))
    assert refused["code"] == "exchange.details", "a registered caller pays for its form"


def test_every_code_has_one_of_oauths_errors() -> None:
    of_rfcs = {"invalid_request", "invalid_client", "unsupported_grant_type", "invalid_scope", "invalid_target",
               "invalid_authorization_details", "temporarily_unavailable", "server_error"}  # fmt: skip
    for code in Code:
        if ours := code.meaning.status:
            error, status = oauth_error(code)
            assert error in of_rfcs
            assert status in {400, ours}
            assert code.retryable == (error in {"temporarily_unavailable", "server_error"})


def test_metadata_leads_an_oauth_client_to_the_endpoint(service: Running) -> None:
    about = service.http.get("/.well-known/oauth-authorization-server").json()
    model = AuthorizationServerMetadata(about)
    model.validate()
    assert (about["issuer"], about["token_endpoint"]) == (service.url, f"{service.url}/oauth/token")
    assert service.http.get(about["jwks_uri"]).status_code == 200
    for path in ("/tokens", "/tokens/batch", "/tokens/explain"):
        url = f"{service.url}/.well-known/oauth-protected-resource{path}"
        for sent, error in ((None, ""), ("not.a.token", 'error="invalid_token", ')):
            answer = service.post(sent, path=path)
            assert answer.headers["www-authenticate"] == f'Bearer {error}resource_metadata="{url}"'
        resource = service.http.get(url).json()
        assert resource["resource"] == f"{service.url}{path}"
        assert service.provider.issuer in resource["authorization_servers"]
        assert service.http.head(url).status_code == 200


def test_the_path_of_an_issuers_url_follows_the_well_known_name() -> None:
    assert well_known("https://a.example", "x") == "https://a.example/.well-known/x"
    assert well_known("https://a.example/b/c", "x", "/tokens") == "https://a.example/.well-known/x/b/c/tokens"


def test_the_openapi_document_describes_the_form_and_its_example_is_accepted(service: Running) -> None:
    described = service.http.get("/openapi.json").json()["paths"]["/oauth/token"]["post"]
    content = described["requestBody"]["content"]["application/x-www-form-urlencoded"]
    example = content["examples"]["example"]["value"]
    details = msgspec.json.encode(example["authorization_details"]).decode()
    sent = {**example, "subject_token": service.token(), "authorization_details": details}
    assert post(service, sent).status_code == 200
    assert set(content["schema"]["required"]) <= example.keys() <= set(content["schema"]["properties"])
