"""`issuer token inspect`: the content of a token in plain words, without verification and without the token itself.

A verify token is public. Every other JWT counts as a credential, unless this project signs documents of its `typ`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click
from msgspec import UNSET, Struct

from issuer.cli.options import json_option
from issuer.cli.render import render_table, say_wrapped
from issuer.cli.terminal import printable, say, say_document, wrap
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Refused
from issuer.formats import jose
from issuer.formats.display import show_typed
from issuer.formats.strict_json import JSON, loads
from issuer.formats.strict_yaml import MAX_BYTES, number_text
from issuer.formats.times import MAX_UNIX_S, show_time, show_when
from issuer.identity import pat
from issuer.identity.profiles import TOKEN_PREFIXES
from issuer.identity.token import is_jwt
from issuer.io.files import read_argument
from issuer.results.claims import RunClaims
from issuer.results.entry import read_entries
from issuer.token.verify_token import MAX_ATTEMPTS, TokenClaims, read_unverified

Kind: TypeAlias = Literal["verify token", "personal access token", "identity or access token", "signed document"]

_MAX_DEPTH = 16
_SIGNATURE_BYTES = 64
_LONGEST_NAME = 255  # of a file, on most systems
# The other public documents that this project signs: receipts and revocation lists.
_DOCUMENTS = frozenset({"eval-receipt+jwt", "eval-revocations+jwt"})
_TIMES = ("iat", "nbf", "exp", "auth_time", "next_update", "at")
_NOT_VERIFIED = "Not verified: anybody can write this. "
_CREDENTIAL = (
    "This is a credential: a thief can act as its owner until it expires. Keep it out of logs and issues. A CI masks "
    "only the secrets that it knows."
)
_TYPED = "The token was on the command line, which all users of this machine can read. Use `-` or a file instead."


class Decoded(Struct, frozen=True):
    """A decoded token. `pointer` is its entry in a result file."""

    kind: Kind
    pointer: str
    header: dict[str, JSON]
    payload: dict[str, JSON]
    claims: tuple[TokenClaims, RunClaims] | None = None


@click.command()
@click.argument("given", metavar="TOKEN|FILE|-")
@json_option
def inspect(given: str, as_json: bool) -> None:
    """Show what a token says. Does not verify the token, and does not print it.

    TOKEN is a verify token or an identity token, FILE has one token or is a result file. Give a credential by FILE or
    "-", because all users of the machine can read a command line. `issuer verify` verifies results.
    """
    typed = _is_token(given)
    name = "the token" if typed else "standard input" if given == "-" else given
    text = given if typed else _read(given)
    decoded = [_decode(token, name, pointer) for pointer, token in _tokens(text, name)]
    if as_json:
        say_document({"version": 1, "tokens": [_document(one) for one in decoded]})
    else:
        say("\n\n".join("\n".join(_lines(one, int(time.time()))) for one in decoded))
    if typed and any(map(_is_credential, decoded)):
        say_wrapped(_TYPED, "warning: ", "  ", err=True)


def _is_token(given: str) -> bool:
    """Return whether an argument is a token, not a file name. In doubt it is a token: no message may contain one."""
    return is_jwt(given) or given.startswith(("eyJ", *TOKEN_PREFIXES)) or len(given) > _LONGEST_NAME


def _read(given: str) -> str:
    try:
        return read_argument(Path(given), MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(Code.FILE_UNREADABLE, "is not UTF-8", Place(given)) from None


def _tokens(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of pointer and token. The text is one token, or a result file."""
    if len(text.split()) == 1:
        yield "", text.strip()
        return
    tokens = [(entry.pointer, entry.token) for entry in read_entries(text.encode(), name) if entry.token]
    if not tokens:
        raise InputError(Code.FILE_RULE, "no entry has a token", Place(name))
    yield from tokens


def _decode(token: str, name: str, pointer: str) -> Decoded:
    """Decode a token strictly. Raises InputError with the place of the fault: `/header/...` or `/payload/...`."""
    if token.startswith(TOKEN_PREFIXES):
        return _opaque(token, name)
    place = Place(f"{name}#{pointer}" if pointer else name)
    try:
        jws = jose.parse_compact(token)
        header = dict(jws.header)
    except FormatError as error:
        raise InputError(error.code, error.detail, place, f"/header{error.pointer}" if error.pointer else "") from None
    try:
        payload = loads(jws.unverified_payload, max_bytes=jose.MAX_TOKEN_BYTES, max_depth=_MAX_DEPTH)
        claims = read_unverified(jws.unverified_payload) if header.get("typ") == jose.TOKEN_TYPE else None
    except (FormatError, Refused) as error:
        fault = error.faults[0]
        raise InputError(fault.code, fault.detail, place, f"/payload{fault.pointer}") from None
    if not isinstance(payload, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", place, "/payload")
    if claims and len(jws.signature) != _SIGNATURE_BYTES:
        rule = f"the signature has {len(jws.signature)} bytes instead of {_SIGNATURE_BYTES} (Ed25519): is it cut off?"
        raise InputError(Code.JWS_MALFORMED, rule, place, "/signature")
    kind: Kind = "verify token" if claims else "identity or access token"
    if header.get("typ") in _DOCUMENTS:
        kind = "signed document"
    return Decoded(kind, pointer, header, payload, claims)


def _opaque(token: str, name: str) -> Decoded:
    """Decode an opaque token by its form. A personal access token has a public id."""
    if (public_id := pat.token_id(token)) is not None:
        return Decoded("personal access token", "", {}, {"id": public_id})
    if token.startswith(pat.PREFIX):
        raise InputError(Code.CREDENTIAL_UNUSABLE, "the personal access token has a wrong checksum", Place(name))
    prefix = next(prefix for prefix in TOKEN_PREFIXES if token.startswith(prefix))
    return Decoded("identity or access token", "", {}, {"begins_with": prefix})


def _document(one: Decoded) -> dict[str, Any]:
    times = {name: show_time(moment) for name, moment in _times(one.payload)}
    members = {"kind": one.kind.replace(" ", "_"), "verified": False, "credential": _is_credential(one), "times": times}
    return {**members, "pointer": one.pointer, "header": one.header, "payload": one.payload}


def _is_credential(one: Decoded) -> bool:
    return one.kind in {"personal access token", "identity or access token"}


def _times(payload: dict[str, JSON]) -> Iterator[tuple[str, int]]:
    for name in _TIMES:
        if type(moment := payload.get(name)) is int and 0 <= moment <= MAX_UNIX_S:
            yield name, moment


def _lines(one: Decoded, now: int) -> Iterator[str]:
    entry = f", of entry {one.pointer.removeprefix('/')}" if one.pointer else ""
    yield printable(f"{one.kind}{entry}: NOT VERIFIED")
    if _is_credential(one):
        yield from wrap(_CREDENTIAL, "  warning: ")
    rows = list(_verify_token_rows(*one.claims, now)) if one.claims else list(_claim_rows(one.payload, now))
    rows += [("key", show_typed(one.header["kid"]))] if "kid" in one.header else []
    rows += [("algorithm", show_typed(one.header["alg"]))] if "alg" in one.header else []
    yield from (f"  {line}" for line in render_table(rows).split("\n"))
    check = "`issuer verify FILE` verifies it with its entry." if one.claims else "An issuer verifies it at each use."
    yield from wrap(_NOT_VERIFIED + ("" if one.kind == "signed document" else check), "  ")


def _verify_token_rows(token: TokenClaims, run: RunClaims, now: int) -> Iterator[tuple[str, str]]:
    """Yield the claims of a verify token under plain names."""
    yield "model", f"{run.model_repo} at {run.model_revision}"
    yield "benchmark", f"{run.benchmark_repo} at {run.benchmark_revision}, task {run.task_id}"
    for metric in run.metrics:
        part = "" if metric.slice is UNSET else f" ({metric.slice})"
        count = "" if metric.sample_size is UNSET else f", of {metric.sample_size} samples"
        yield "score", f"{metric.metric_id}{part} {number_text(metric.value)}{count}"
    yield "run with", f"{run.framework.name} {run.framework.version}"
    if run.framework.command is not UNSET:
        yield "command", run.framework.command
    for name, value in token.caller.items():
        yield f"caller {name}", show_typed(value)
    if token.attempt is not UNSET:
        more = " or more" if token.attempt.number == MAX_ATTEMPTS else ""
        since = show_when(token.attempt.since, now)
        yield "attempt", f"{token.attempt.number}{more} different results of this run were signed since {since}"
    yield "issuer", token.iss
    yield "integration", token.sub
    yield "relying party", token.aud
    yield "issued", show_when(token.iat, now)
    yield "valid from", show_when(token.nbf, now)
    yield "ends", show_when(token.exp, now)
    yield "jti", token.jti
    yield "policy", token.policy
    yield "claims digest", token.claims_digest
    yield "content digest", token.content_digest
    if token.log is not UNSET:
        yield "log", token.log


def _claim_rows(payload: dict[str, JSON], now: int) -> Iterator[tuple[str, str]]:
    """Yield the claims of any other token under their names, which policies use. Shows times for people."""
    times = dict(_times(payload))
    for name, value in payload.items():
        yield name, show_when(times[name], now) if name in times else show_typed(value)
