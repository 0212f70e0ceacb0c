"""`issuer token inspect`: the content of a token in plain words. It verifies nothing, and does not show the token.

A verify token is public. Any other JWT is called a credential, unless its `typ` is one that this project signs.
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
# What this project signs beside verify tokens, all of it public: receipts, and lists of revocations.
_DOCUMENTS = frozenset({"eval-receipt+jwt", "eval-revocations+jwt"})
_TIMES = ("iat", "nbf", "exp", "auth_time", "next_update", "at")
_NOT_VERIFIED = "Not verified: anybody can write this. "
_CREDENTIAL = (
    "It is a credential: who has it may act as its owner until it ends. Keep it out of logs and issues; a CI masks "
    "only what it knows to be one."
)
_TYPED = "It was typed on a command line, which everybody on this machine could read: `-` and a file keep it private."


class Decoded(Struct, frozen=True):
    """A token taken apart; `pointer` says which entry of a result file it is of."""

    kind: Kind
    pointer: str
    header: dict[str, JSON]
    payload: dict[str, JSON]
    claims: tuple[TokenClaims, RunClaims] | None = None


@click.command()
@click.argument("given", metavar="TOKEN|FILE|-")
@json_option
def inspect(given: str, as_json: bool) -> None:
    """Say what a token says, without verifying it; the token itself is not shown.

    A verify token, those of a result file, or an identity token of a CI job, whose claims a policy reads. Give a
    credential by FILE or "-": a command line is read by everybody on the machine. `issuer verify` checks a result.
    """
    typed = _is_token(given)
    name = "the token" if typed else "standard input" if given == "-" else given
    text = given if typed else _read(given)
    found = [_decode(token, name, pointer) for pointer, token in _tokens(text, name)]
    if as_json:
        say_document({"version": 1, "tokens": [_document(one) for one in found]})
    else:
        say("\n\n".join("\n".join(_lines(one, int(time.time()))) for one in found))
    if typed and any(map(_is_credential, found)):
        say_wrapped(_TYPED, "warning: ", "  ", err=True)


def _is_token(given: str) -> bool:
    """Say whether an argument is a token and no file's name, in doubt a token: it is then in no message."""
    return is_jwt(given) or given.startswith(("eyJ", *TOKEN_PREFIXES)) or len(given) > _LONGEST_NAME


def _read(given: str) -> str:
    try:
        return read_argument(Path(given), MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(Code.FILE_UNREADABLE, "is not UTF-8", Place(given)) from None


def _tokens(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a text, with the pointer of each one's entry: it is one token, or a result file."""
    if len(text.split()) == 1:
        yield "", text.strip()
        return
    tokens = [(entry.pointer, entry.token) for entry in read_entries(text.encode(), name) if entry.token]
    if not tokens:
        raise InputError(Code.FILE_RULE, "no entry has a token", Place(name))
    yield from tokens


# -- taking apart -----------------------------------------------------------------------------------------------------


def _decode(token: str, name: str, pointer: str) -> Decoded:
    """Take a token apart strictly. Raises InputError with the place in it: `/header/...` or `/payload/...`."""
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
        rule = f"a signature of {len(jws.signature)} bytes, where Ed25519 has {_SIGNATURE_BYTES}: is it cut off?"
        raise InputError(Code.JWS_MALFORMED, rule, place, "/signature")
    kind: Kind = "verify token" if claims else "identity or access token"
    if header.get("typ") in _DOCUMENTS:
        kind = "signed document"
    return Decoded(kind, pointer, header, payload, claims)


def _opaque(token: str, name: str) -> Decoded:
    """Say what an opaque token's form says: of a personal access token its public id."""
    if (public_id := pat.token_id(token)) is not None:
        return Decoded("personal access token", "", {}, {"id": public_id})
    if token.startswith(pat.PREFIX):
        raise InputError(Code.CREDENTIAL_UNUSABLE, "a personal access token whose checksum is wrong", Place(name))
    prefix = next(prefix for prefix in TOKEN_PREFIXES if token.startswith(prefix))
    return Decoded("identity or access token", "", {}, {"begins_with": prefix})


# -- telling ----------------------------------------------------------------------------------------------------------


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
    of = f", of entry {one.pointer.removeprefix('/')}" if one.pointer else ""
    yield printable(f"{one.kind}{of}: NOT VERIFIED")
    if _is_credential(one):
        yield from wrap(_CREDENTIAL, "  warning: ")
    rows = list(_words(*one.claims, now)) if one.claims else list(_claims(one.payload, now))
    rows += [("key", show_typed(one.header["kid"]))] if "kid" in one.header else []
    rows += [("algorithm", show_typed(one.header["alg"]))] if "alg" in one.header else []
    yield from (f"  {line}" for line in render_table(rows).split("\n"))
    check = "`issuer verify FILE` checks it, with its entry." if one.claims else "An issuer checks it, when it is used."
    yield from wrap(_NOT_VERIFIED + ("" if one.kind == "signed document" else check), "  ")


def _words(token: TokenClaims, run: RunClaims, now: int) -> Iterator[tuple[str, str]]:
    """Say a verify token in the words of its readers."""
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


def _claims(payload: dict[str, JSON], now: int) -> Iterator[tuple[str, str]]:
    """Say the claims of any other token by their own names, which policies use; times as people read them."""
    times = dict(_times(payload))
    for name, value in payload.items():
        yield name, show_when(times[name], now) if name in times else show_typed(value)
