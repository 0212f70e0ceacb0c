"""The OpenAPI description of the service.

Handlers read raw bytes, because a body is parsed only after its sender is authenticated. So requests and answers are
described here, from the types that the handlers parse and write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from litestar import Litestar
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Components,
    OpenAPIHeader,
    OpenAPIResponse,
    OpenAPIType,
    Operation,
    Parameter,
    RequestBody,
    Schema,
    SecurityScheme,
)

from issuer import __version__
from issuer.results.claims import RunClaims
from issuer.results.details import Details
from issuer.token.wire import (
    DETAIL_TYPE,
    DETAILS,
    FORM_TYPE,
    GRANT_TYPE,
    ISSUED_TOKEN_TYPE,
    NONCE_PATTERN,
    PROBLEM_TYPE,
    SUBJECT_TOKEN_TYPES,
    BatchItem,
    BatchRequest,
    CallerRequest,
    ExchangedToken,
    ExchangeProblem,
    Explained,
    IssuedToken,
    IssuedTokens,
    Problem,
    TokenRequest,
    VerifyRequest,
)
from issuer.verify.report import Reports
from issuer.verify.revocations import REVOCATIONS_TYPE

_REF = "#/components/schemas/{name}"
_RATES = {
    "RateLimit-Policy": "the rates of the identity and of its integration (draft-ietf-httpapi-ratelimit-headers): `q` "
    "requests at once, and full recovery in `w` seconds. Absent if the request spent no rate, for example a repeat",
    "RateLimit": "the exact remainder of each rate: `r` requests at once, and full recovery in `t` seconds",
}
_NONCE = (
    "Required with a credential that can be used again (an OAuth or personal access token): random and fresh for each "
    "new request, and the same when a request is sent again. Refused with an identity token."
)

EXAMPLE: dict[str, Any] = {
    "claims": {
        "model_repo": "acme/open-model",
        "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
        "benchmark_repo": "openai/gsm8k",
        "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
        "task_id": "gsm8k",
        "metrics": [{"metric_id": "accuracy", "value": 0.625}],
        "framework": {
            "name": "inspect-ai",
            "version": "0.3.285",
            "command": "inspect eval gsm8k --model hf/acme/open-model",
        },
    },
    "details": {"date": "2026-11-21T09:00:00Z", "notes": "no tools"},
}


def _components() -> dict[str, Any]:
    """Return the JSON Schemas of every request and answer. `claims` and `details` refer to their own schemas."""
    kinds = [TokenRequest, CallerRequest, BatchRequest, BatchItem, RunClaims, Details, IssuedToken, IssuedTokens,
             Explained, Problem, VerifyRequest, Reports, ExchangedToken, ExchangeProblem]  # fmt: skip
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REF)
    for name in ("TokenRequest", "BatchItem"):
        schemas[name]["properties"]["claims"] = {"$ref": _REF.format(name="RunClaims")}
        schemas[name]["properties"]["details"] = {"$ref": _REF.format(name="Details")}
    for name in ("TokenRequest", "BatchRequest"):
        schemas[name]["properties"]["nonce"] |= {"pattern": f"^{NONCE_PATTERN}$", "description": _NONCE}
    return schemas


def _content(media_type: str, schema: str, example: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {"schema": {"$ref": _REF.format(name=schema)}}
    if example is not None:
        content["examples"] = {"example": {"value": example}}
    return {media_type: content}


# -- answers -----------------------------------------------------------------------------------------------------------

Responses = dict[str, OpenAPIResponse]
_PROBLEMS = {
    "400": "invalid body", "401": "not authenticated", "403": "not allowed", "408": "too slow",
    "409": "the identity or nonce is spent, or the token is revoked", "413": "too large", "415": "not JSON",
    "422": "violates the data contract", "429": "over a limit", "500": "unforeseen", "503": "could not decide",
}  # fmt: skip
_LOG_PROBLEMS = {"400": "invalid query", "404": "not in the log", "429": "over a limit", "503": "could not look"}
_NO_LIST = {"404": "no list is published"}


def _good(description: str, schema: str) -> OpenAPIResponse:
    return OpenAPIResponse(description=description, content=_content("application/json", schema))


def _problems(problems: Mapping[str, str]) -> Responses:
    content = _content(PROBLEM_TYPE, "Problem")
    return {status: OpenAPIResponse(description=text, content=content) for status, text in problems.items()}


def _rated_responses(good: Responses, *rated: str) -> Responses:
    """Return the responses of an endpoint that spends rates. Those with a status in `rated` have both header fields."""
    responses, text = {**good, **_problems(_PROBLEMS)}, Schema(type=OpenAPIType.STRING)
    for status in rated:
        responses[status].headers = {name: OpenAPIHeader(description=_RATES[name], schema=text) for name in _RATES}
    return responses


def _issued(schema: str) -> Responses:
    repeat = _good("a repeat of the same request: the same tokens", schema)
    return _rated_responses({"200": repeat, "201": _good("issued", schema)}, "200", "201", "429")


def _document(description: str, media_type: str = "application/json", kind: str = "object") -> Responses:
    content = {media_type: {"schema": {"type": kind}}}
    return {"200": OpenAPIResponse(description=description, content=cast("Any", content))}


def _cached(description: str, media_type: str, kind: str, problems: Mapping[str, str] = {}) -> Responses:
    """Return the responses of a document with an ETag, and its problems by status."""
    unchanged = OpenAPIResponse(description="unchanged since If-None-Match")
    return {**_document(description, media_type, kind), "304": unchanged, **_problems(problems)}


def _log_file(description: str, media_type: str, *statuses: str) -> Responses:
    return _cached(description, media_type, "string", {status: _LOG_PROBLEMS[status] for status in statuses})


# -- operations --------------------------------------------------------------------------------------------------------


def _operation(summary: str, responses: Responses, **members: Any) -> type[Operation]:
    """Return a class of operations with these members. Litestar makes an instance for each handler."""

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.summary = summary or self.summary
            self.responses = cast("Any", responses)
            for name, value in members.items():
                setattr(self, name, value)

    return Described


def _body(schema: str, example: dict[str, Any] | None = None) -> RequestBody:
    return RequestBody(content=_content("application/json", schema, example), required=True)


def _in_path(name: str) -> Parameter:
    return Parameter(name=name, param_in="path", required=True, schema=Schema(type=OpenAPIType.STRING))


def _in_query(name: str, text: str, kind: OpenAPIType = OpenAPIType.STRING, *, required: bool = True) -> Parameter:
    return Parameter(name=name, param_in="query", required=required, description=text, schema=Schema(type=kind))


_IDENTITY = [{"identity": list[str]()}]
_EXPLAINED = {
    "schema": {"anyOf": [{"$ref": _REF.format(name=name)} for name in ("TokenRequest", "CallerRequest")]},
    "examples": {"example": {"value": EXAMPLE}, "caller": {"value": {}, "summary": "judge the caller alone"}},
}

TokenOperation = _operation(
    "Exchange a workload identity and the claims of one run for a verify token",
    _issued("IssuedToken"),
    request_body=_body("TokenRequest", EXAMPLE),
    security=_IDENTITY,
)
BatchOperation = _operation(
    "The same for up to 100 results, all or nothing",
    _issued("IssuedTokens"),
    request_body=_body("BatchRequest", {"results": [EXAMPLE]}),
    security=_IDENTITY,
)
_EXCHANGE = {
    "type": "object",
    "required": ["grant_type", "subject_token", "subject_token_type", DETAILS],
    "properties": {
        "grant_type": {"const": GRANT_TYPE},
        "subject_token": {"type": "string", "description": "the credential that /tokens takes as a bearer"},
        "subject_token_type": {"enum": list(SUBJECT_TOKEN_TYPES)},
        "requested_token_type": {"const": ISSUED_TOKEN_TYPE},
        "audience": {"type": "string", "description": "the relying party; or `resource`, but not both"},
        "resource": {"type": "string", "description": "the same as `audience`"},
        DETAILS: {
            "type": "array",
            "minItems": 1,
            "maxItems": 1,
            "description": "as JSON text: the body of /tokens without `audience`, and with its `type` (RFC 9396)",
            "items": {"allOf": [{"$ref": _REF.format(name="TokenRequest")}, {"required": ["type"]}]},
        },
    },
}
_EXCHANGE_EXAMPLE = {
    "grant_type": GRANT_TYPE,
    "subject_token": "<identity token>",
    "subject_token_type": SUBJECT_TOKEN_TYPES[0],
    DETAILS: [{"type": DETAIL_TYPE, **EXAMPLE}],
}
_EXCHANGE_FORM = {
    "schema": _EXCHANGE,
    "encoding": {DETAILS: {"contentType": "application/json"}},
    "examples": {"example": {"value": _EXCHANGE_EXAMPLE}},
}
_EXCHANGE_ERROR = _content("application/json", "ExchangeProblem")
_EXCHANGE_PROBLEMS = {
    "400": "a bad form, or a refusal", "401": "client authentication, which no request needs", "408": "too slow",
    "413": "too large", "415": "not a form", "429": "over a limit", "500": "unforeseen", "503": "could not decide",
}  # fmt: skip

ExchangeOperation = _operation(
    "The same as /tokens for OAuth clients: token exchange (RFC 8693)",
    {
        "200": _good("issued, or a repeat of the same request", "ExchangedToken"),
        **{
            status: OpenAPIResponse(description=text, content=cast("Any", _EXCHANGE_ERROR))
            for status, text in _EXCHANGE_PROBLEMS.items()
        },
    },
    request_body=RequestBody(content=cast("Any", {FORM_TYPE: _EXCHANGE_FORM}), required=True),
)
ExplainOperation = _operation(
    "Explain what /tokens would decide. Signs no token and claims no use, but costs a request",
    _rated_responses({"200": _good("judged", "Explained")}, "429"),
    request_body=RequestBody(content=cast("Any", {"application/json": _EXPLAINED}), required=True),
    security=_IDENTITY,
)
RequirementsOperation = _operation(
    "What an integration's CI jobs must send, if its policy makes that public",
    {**_document("the requirements"), **_problems({"404": "not public, or unknown"})},
    parameters=[_in_path("integration")],
)
VerifyOperation = _operation(
    "Judge a result entry or file by this service's trust file",
    {
        "200": _good("the whole report, whatever its verdict", "Reports"),
        **_problems({status: _PROBLEMS[status] for status in ("400", "408", "413", "415", "429", "500", "503")}),
    },
    request_body=_body("VerifyRequest"),
)
JsonOperation = _operation("", _document("the document"))
MetadataOperation = _operation("Audience, identity providers, endpoints and lifetimes", _document("the document"))
SchemaOperation = _operation(
    "The JSON Schema of a file that the service reads", _document("the document"), parameters=[_in_path("name")]
)
KeySetOperation = _operation(
    "The keys that tokens are signed with (RFC 7517)", _cached("the key set", "application/jwk-set+json", "object")
)
ArchiveOperation = _operation(
    "Every key that ever signed tokens, with `active_from`, `last_token_exp` and `revoked_from`",
    _cached("the key set", "application/jwk-set+json", "object"),
)
RevocationKeysOperation = _operation(
    "The key that the list of revocations is signed with; it never signs tokens",
    _cached("the key set", "application/jwk-set+json", "object", _NO_LIST),
)
RevocationsOperation = _operation(
    "The list of this issuer's revocations: a compact JWS (RFC 7515)",
    _cached("the list", f"application/{REVOCATIONS_TYPE}", "string", _NO_LIST),
)
CheckpointOperation = _operation(
    "The transparency log's newest checkpoint that its witnesses have cosigned (tlog-checkpoint)",
    _log_file("a signed note", "text/plain; charset=utf-8", "429", "503"),
)
TileOperation = _operation(
    "A tile (`<L>/<N>[.p/<W>]`) or an entry bundle (`entries/<N>[.p/<W>]`) of the log (tlog-tiles)",
    _log_file("hashes, or leaves with their lengths", "application/octet-stream", "404", "429", "503"),
    parameters=[_in_path("path")],
)
ProofOperation = _operation(
    "The proof of a token's leaf (tlog-proof) under the first cosigned checkpoint that covers it",
    _log_file("the proof, with its checkpoint", "text/plain; charset=utf-8", *_LOG_PROBLEMS),
    parameters=[
        _in_query("iat", "the token's `iat`", OpenAPIType.INTEGER),
        _in_query("token", "the token's digest in its leaf, as 64 lowercase hex characters"),
        _in_query("size", "the tree size of another cosigned checkpoint", OpenAPIType.INTEGER, required=False),
    ],
)
LogOperation = _operation(
    "The log's origin, keys, URLs and witness policy. Not a trust anchor", _document("the document")
)


# -- the description ---------------------------------------------------------------------------------------------------


def openapi(handlers: Sequence[Any]) -> bytes:
    """Return the description of these handlers. Litestar's own route would write it for each request (6 ms)."""
    app = Litestar(list(handlers), openapi_config=_config(), logging_config=None)  # else Litestar configures logging
    described = app.openapi_schema.to_schema()
    # Litestar collects schemas from handler signatures. Ours have none, so the schemas are added here.
    components = {**described["components"], "schemas": _components()}
    return msgspec.json.encode({**described, "components": components})


def _config() -> OpenAPIConfig:
    description = "the CI's identity token, or an OAuth or personal access token"
    scheme = SecurityScheme(type="http", scheme="bearer", description=description)
    return OpenAPIConfig(
        title="issuer",
        version=__version__,
        description="Signed verify tokens for AI evaluation results.",
        render_plugins=[JsonRenderPlugin()],
        components=Components(security_schemes={"identity": scheme}),
    )
