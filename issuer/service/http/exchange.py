"""The endpoint `POST /oauth/token`: OAuth token exchange (RFC 8693), translated into a token request and back.

The form's `subject_token` is the credential. The one element of its `authorization_details` (RFC 9396) is the body of
`POST /tokens`. Every step, charge and record is that of `/tokens`. But the form comes before its sender is known. So it
is read under the limits for strangers, and its details are decoded only after the caller is identified.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import IssuerError, Refused
from issuer.issuance.steps import Arrival, Issued
from issuer.service.http import openapi
from issuer.service.http.bounds import MAX_PARAMETER_BYTES, MAX_SUBJECT_TOKEN_BYTES
from issuer.service.http.messages import (
    Answer,
    Http,
    WrittenProblem,
    check_framing,
    decode_parameter,
    header_values,
    is_bearer,
    json_answer,
    oauth_problem_response,
    split_form,
)
from issuer.service.http.public_documents import Service
from issuer.service.http.request_limits import TURNED_AWAY, OpenBodies, Tarpit
from issuer.service.http.tokens import InFlight, Received, TokenEndpoint, headers_for, token_route
from issuer.token.wire import (
    DETAILS,
    EXCHANGE_PATH,
    FORM_TYPE,
    GRANT_TYPE,
    ISSUED_TOKEN_TYPE,
    MAX_BYTES,
    MAX_FORM_BYTES,
    SUBJECT_TOKEN_TYPES,
    ExchangedToken,
)


class ExchangeEndpoint(TokenEndpoint, frozen=True, kw_only=True):
    """The endpoint for OAuth clients. `bodies` are the forms that are being read; `away` answers a busy source."""

    bodies: OpenBodies
    away: WrittenProblem

    async def receive(self, http: Http, source: str) -> Received:
        """Read the form, and return its credential. Raises Refused."""
        check_framing(http, MAX_FORM_BYTES, FORM_TYPE)
        if header_values(http, b"authorization"):
            raise Refused(Code.EXCHANGE_CLIENT)
        form = read_form(await self.bodies.read(http, source, MAX_FORM_BYTES))
        return Received(form.subject_token, partial(_read_request, form))

    def answer(self, issued: Issued, arrival: Arrival) -> Answer:
        """Return the answer of RFC 8693 2.2.1, with the members of an answer of `/tokens`."""
        value = ExchangedToken.of(issued.tokens[0], arrival.at)
        return json_answer(value, arrival.id, 200, Pragma="no-cache", **headers_for(issued))

    def problem(self, error: IssuerError, url: str, request_id: str, **headers: str) -> Answer:
        """Return the answer of RFC 6749 5.2, with the members of a problem document."""
        return oauth_problem_response(error, url, request_id, **headers)

    def turned_away(self, tarpit: Tarpit, request_id: str) -> Answer:
        """Return the delayed answer to a source over its rate of refused requests."""
        return tarpit.answer(request_id, self.away)


def exchange_route(service: Service, singles: InFlight) -> Any:
    """Return the handler of the endpoint. It shares `singles` with `/tokens`."""
    away = WrittenProblem(TURNED_AWAY, service.issuer_url, oauth_problem_response)
    endpoint = ExchangeEndpoint(EXCHANGE_PATH, "single", singles, bodies=OpenBodies(), away=away)
    return token_route(service, endpoint, openapi.ExchangeOperation, 200)


# -- the form ----------------------------------------------------------------------------------------------------------

_REQUIRED = ("grant_type", "subject_token", "subject_token_type", DETAILS)
_CHOICES = {
    "grant_type": (Code.EXCHANGE_GRANT_TYPE, (GRANT_TYPE,)),
    "subject_token_type": (Code.EXCHANGE_PARAMETER, SUBJECT_TOKEN_TYPES),
    "requested_token_type": (Code.EXCHANGE_PARAMETER, (ISSUED_TOKEN_TYPE,)),
}
_REFUSED = {
    "client_secret": Code.EXCHANGE_CLIENT,
    "client_assertion": Code.EXCHANGE_CLIENT,
    "actor_token": Code.EXCHANGE_ACTOR,
    "scope": Code.EXCHANGE_SCOPE,
}


class Form(NamedTuple):
    """The parameters that make a token request. `audience` is empty without one. `details` are not decoded yet."""

    subject_token: str
    audience: str
    details: bytes


def read_form(raw: bytes) -> Form:
    """Read the parameters that this endpoint knows, and ignore others (RFC 6749 3.2). Raises Refused with the name."""
    form = split_form(raw, several=frozenset({"audience", "resource"}))
    if refused := [name for name in _REFUSED if name in form]:
        raise Refused.at(_REFUSED[refused[0]], f"/{refused[0]}")
    targets = form.get("audience", []) + form.get("resource", [])
    if len(targets) > 1:
        raise Refused.at(Code.EXCHANGE_TARGET, "/audience")
    if missing := [name for name in _REQUIRED if name not in form]:
        raise Refused.at(Code.EXCHANGE_PARAMETER, f"/{missing[0]}", "this parameter is missing")
    for name, (code, choices) in _CHOICES.items():
        if name in form and decode_parameter(name, form[name][0], MAX_PARAMETER_BYTES) not in choices:
            raise Refused.at(code, f"/{name}", f"must be {' or '.join(choices)}")
    audience = decode_parameter("audience", targets[0], MAX_PARAMETER_BYTES) if targets else ""
    subject_token = decode_parameter("subject_token", form["subject_token"][0], MAX_SUBJECT_TOKEN_BYTES)
    if is_bearer(subject_token):
        return Form(subject_token, audience, form[DETAILS][0])
    raise Refused(Code.IDENTITY_MALFORMED)


class _Detail(Struct, frozen=True):
    """The members of an authorization detail that are checked here. The next step reads all the others."""

    type: Literal["eval_result"]
    audience: Raw | UnsetType = UNSET


async def _read_request(form: Form) -> bytes:
    """Return the body of `POST /tokens` that the form states: the element, with the form's audience. Raises Refused."""
    text = decode_parameter(DETAILS, form.details, MAX_FORM_BYTES)
    try:
        (element,) = msgspec.json.decode(text, type=list[Raw])
        detail = msgspec.json.decode(element, type=_Detail)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise Refused.at(Code.EXCHANGE_DETAILS, f"/{DETAILS}") from None
    if detail.audience is not UNSET:
        raise Refused.at(Code.EXCHANGE_DETAILS, f"/{DETAILS}/0/audience", "send the audience as a parameter")
    if len(element) > MAX_BYTES["single"]:
        raise Refused.at(Code.REQUEST_TOO_LARGE, "")
    end = b',"audience":%b}' % msgspec.json.encode(form.audience) if form.audience else b"}"
    return bytes(element)[:-1] + end
