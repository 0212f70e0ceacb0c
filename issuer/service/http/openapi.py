"""The OpenAPI description. Handlers read raw bytes, so their inputs and answers are declared here, from the same types.

A body is parsed only after its sender has been authenticated: the framework must describe it without touching it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    NONCE_PATTERN,
    PROBLEM_TYPE,
    BatchItem,
    BatchRequest,
    CallerRequest,
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
    "requests at once, all of which come back in `w` seconds. Absent where no rate was asked, as for a repeat",
    "RateLimit": "what is left of each, exactly: `r` requests at once, and all of them again in `t` seconds",
}
_NONCE = (
    "For a credential that can be used again (an OAuth or personal access token) random, fresh for every new request, "
    "and the same when it is sent again; refused with an identity token."
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
    """Return the JSON Schemas of every type on the wire; free-form members refer to their content's schema."""
    kinds = [TokenRequest, CallerRequest, BatchRequest, BatchItem, RunClaims, Details, IssuedToken, IssuedTokens,
             Explained, Problem, VerifyRequest, Reports]  # fmt: skip
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


def _responses(good: dict[str, OpenAPIResponse]) -> dict[str, OpenAPIResponse]:
    problem = _content(PROBLEM_TYPE, "Problem")
    refused = {
        "400": "not this body", "401": "not authenticated", "403": "not allowed", "408": "too slow",
        "409": "the identity or nonce is spent, or the token is revoked", "413": "too large", "415": "not JSON",
        "422": "breaks the data contract", "429": "over a limit", "500": "unforeseen", "503": "could not decide",
    }  # fmt: skip
    problems = {status: OpenAPIResponse(description=text, content=problem) for status, text in refused.items()}
    return {**good, **problems}


def _rated_responses(good: dict[str, OpenAPIResponse], *rated: str) -> dict[str, OpenAPIResponse]:
    """Return the responses of an endpoint that spends rates, `rated` with the header fields that say what is left."""
    responses, text = _responses(good), Schema(type=OpenAPIType.STRING)
    for status in rated:
        responses[status].headers = {name: OpenAPIHeader(description=_RATES[name], schema=text) for name in _RATES}
    return responses


def _issued(schema: str) -> dict[str, OpenAPIResponse]:
    good = _content("application/json", schema)
    return _rated_responses(
        {
            "200": OpenAPIResponse(description="a repeat of the same request: the same tokens", content=good),
            "201": OpenAPIResponse(description="issued", content=good),
        },
        "200", "201", "429",
    )  # fmt: skip


@dataclass
class TokenOperation(Operation):
    """`POST /tokens`."""

    def __post_init__(self) -> None:
        self.summary = "Exchange a workload identity and the claims of one run for a verify token"
        self.request_body = RequestBody(content=_content("application/json", "TokenRequest", EXAMPLE), required=True)
        self.responses = cast("Any", _issued("IssuedToken"))
        self.security = [{"identity": []}]


@dataclass
class BatchOperation(Operation):
    """`POST /tokens/batch`."""

    def __post_init__(self) -> None:
        self.summary = "The same for up to 100 results, all or nothing"
        batch = {"results": [EXAMPLE]}
        self.request_body = RequestBody(content=_content("application/json", "BatchRequest", batch), required=True)
        self.responses = cast("Any", _issued("IssuedTokens"))
        self.security = [{"identity": []}]


@dataclass
class ExplainOperation(Operation):
    """`POST /tokens/explain`."""

    def __post_init__(self) -> None:
        self.summary = "Say what /tokens would decide, and why: signs nothing, uses nothing up, costs a request"
        asked = {
            "schema": {"anyOf": [{"$ref": _REF.format(name=name)} for name in ("TokenRequest", "CallerRequest")]},
            "examples": {"example": {"value": EXAMPLE}, "caller": {"value": {}, "summary": "of the caller alone"}},
        }
        self.request_body = RequestBody(content=cast("Any", {"application/json": asked}), required=True)
        judged = OpenAPIResponse(description="judged", content=_content("application/json", "Explained"))
        self.responses = cast("Any", _rated_responses({"200": judged}, "429"))
        self.security = [{"identity": []}]


@dataclass
class RequirementsOperation(Operation):
    """`GET /integrations/{id}/requirements`."""

    def __post_init__(self) -> None:
        self.summary = "What an integration's CI must send, where the integration makes it public"
        self.parameters = [_in_path("integration")]
        content = {"application/json": {"schema": {"type": "object"}}}
        self.responses = {
            "200": OpenAPIResponse(description="the requirements", content=cast("Any", content)),
            "404": OpenAPIResponse(description="not public, or not there", content=_content(PROBLEM_TYPE, "Problem")),
        }


@dataclass
class VerifyOperation(Operation):
    """`POST /verify`."""

    def __post_init__(self) -> None:
        self.summary = "Judge a result entry or file by this service's trust file"
        self.request_body = RequestBody(content=_content("application/json", "VerifyRequest"), required=True)
        reports = _content("application/json", "Reports")
        answers = _responses(
            {"200": OpenAPIResponse(description="the whole report, whatever it says", content=reports)}
        )
        possible = ("200", "400", "408", "413", "415", "429", "500", "503")
        self.responses = cast("Any", {status: answers[status] for status in possible})


@dataclass
class JsonOperation(Operation):
    """A public document."""

    def __post_init__(self) -> None:
        content = {"application/json": {"schema": {"type": "object"}}}
        self.responses = {"200": OpenAPIResponse(description="the document", content=cast("Any", content))}


@dataclass
class MetadataOperation(JsonOperation):
    """`GET /.well-known/eval-token-issuer`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summary = "Audience, identity providers, endpoints and lifetimes"


@dataclass
class SchemaOperation(JsonOperation):
    """`GET /schemas/{name}`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summary = "The JSON Schema of a file that the service reads"
        self.parameters = [_in_path("name")]


def _in_path(name: str) -> Parameter:
    return Parameter(name=name, param_in="path", required=True, schema=Schema(type=OpenAPIType.STRING))


@dataclass
class KeySetOperation(Operation):
    """`GET /.well-known/jwks.json`."""

    def __post_init__(self) -> None:
        self.summary = "The keys that tokens are signed with (RFC 7517)"
        content = {"application/jwk-set+json": {"schema": {"type": "object"}}}
        self.responses = {
            "200": OpenAPIResponse(description="the key set", content=cast("Any", content)),
            "304": OpenAPIResponse(description="unchanged since If-None-Match"),
        }


@dataclass
class ArchiveOperation(KeySetOperation):
    """`GET /.well-known/jwks-archive.json`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summary = "Every key that ever signed tokens, and when: `active_from`, `last_token_exp`, `revoked_from`"


@dataclass
class RevocationKeysOperation(KeySetOperation):
    """`GET /.well-known/revocation-keys.json`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summary = "The key that the list of revocations is signed with; it never signs tokens"
        self.responses = {**(self.responses or {}), "404": _NO_LIST}


@dataclass
class RevocationsOperation(Operation):
    """`GET /.well-known/revocations.json`."""

    def __post_init__(self) -> None:
        self.summary = "What this issuer has revoked: a compact JWS (RFC 7515)"
        content = {f"application/{REVOCATIONS_TYPE}": {"schema": {"type": "string"}}}
        self.responses = {
            "200": OpenAPIResponse(description="the list", content=cast("Any", content)),
            "304": OpenAPIResponse(description="unchanged since If-None-Match"),
            "404": _NO_LIST,
        }


_NO_LIST = OpenAPIResponse(description="no list is published", content=_content(PROBLEM_TYPE, "Problem"))


def _served(description: str, media_type: str, *more: str) -> dict[str, OpenAPIResponse]:
    """Return the answers of a path of the log; `more` are statuses beside those that every one of them has."""
    problem = _content(PROBLEM_TYPE, "Problem")
    told = {"400": "not this query", "404": "not there", "429": "over a limit", "503": "could not look"}
    content = {media_type: {"schema": {"type": "string"}}}
    return {
        "200": OpenAPIResponse(description=description, content=cast("Any", content)),
        "304": OpenAPIResponse(description="unchanged since If-None-Match"),
        **{status: OpenAPIResponse(description=told[status], content=problem) for status in (*more, "429", "503")},
    }


@dataclass
class CheckpointOperation(Operation):
    """`GET /log/checkpoint`."""

    def __post_init__(self) -> None:
        self.summary = "The newest checkpoint of the transparency log that its witnesses cosigned (tlog-checkpoint)"
        self.responses = cast("Any", _served("a signed note", "text/plain; charset=utf-8"))


@dataclass
class TileOperation(Operation):
    """`GET /log/tile/{path}`."""

    def __post_init__(self) -> None:
        self.summary = "A tile (`<L>/<N>[.p/<W>]`) or an entry bundle (`entries/<N>[.p/<W>]`) of the log (tlog-tiles)"
        self.parameters = [_in_path("path")]
        self.responses = cast(
            "Any", _served("hashes, or leaves behind their lengths", "application/octet-stream", "404")
        )


@dataclass
class ProofOperation(Operation):
    """`GET /log/proof`."""

    def __post_init__(self) -> None:
        self.summary = "The proof of a token's leaf (tlog-proof) under the first cosigned checkpoint over it"
        self.parameters = [
            _in_query("iat", "the token's `iat`", OpenAPIType.INTEGER),
            _in_query("token", "the token's digest as its leaf has it, as 64 lowercase hex characters"),
            _in_query("size", "of another cosigned checkpoint, in leaves", OpenAPIType.INTEGER, required=False),
        ]
        served = _served("the proof, with its checkpoint", "text/plain; charset=utf-8", "400", "404")
        self.responses = cast("Any", served)


@dataclass
class LogOperation(JsonOperation):
    """`GET /log/log.json`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summary = "What the log says of itself: origin, keys, URLs, witness policy; no trust anchor"


def _in_query(name: str, text: str, kind: OpenAPIType = OpenAPIType.STRING, *, required: bool = True) -> Parameter:
    return Parameter(name=name, param_in="query", required=required, description=text, schema=Schema(type=kind))


def openapi(handlers: Sequence[Any]) -> bytes:
    """Describe these handlers. Litestar's own route would write the description anew for each request (6 ms)."""
    app = Litestar(list(handlers), openapi_config=_config(), logging_config=None)  # it would log in its own way
    described = app.openapi_schema.to_schema()
    # Litestar collects schemas from handler signatures, and ours have none: they are added here.
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
