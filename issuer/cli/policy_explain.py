"""`issuer policy explain`: why would this request be refused, offline and with nothing hidden.

The same functions as in the service read the identity token, find whose it is and judge the request. Two things are
beyond them here, and the output says so: the token's signature, and what only the running service remembers (limits,
quarantine, uses).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click
from msgspec import Struct

from issuer.cli import printable
from issuer.cli.checks import table
from issuer.cli.times import read_time, told_time
from issuer.codes import Code
from issuer.errors import InputError, Place, Refused
from issuer.files import read_argument
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, loads
from issuer.identity.caller import Caller
from issuer.identity.profiles import derived
from issuer.identity.provider import Provider
from issuer.identity.table import SIGNED
from issuer.identity.token import check_access_token, check_audience, is_jwt, read_header, read_times, read_token
from issuer.issuance.body import Request, read_request
from issuer.policy.authoring.load import load_policies
from issuer.policy.check import Check, shown, stated
from issuer.policy.check_identity import check_identity
from issuer.policy.decide import Grant
from issuer.policy.disclose import disclosed, unredacted
from issuer.policy.evaluate import evaluate
from issuer.policy.match import PolicySet, pins_match
from issuer.policy.registration import Registration
from issuer.policy.requirement import equal
from issuer.wire import ShownCheck

# Policies can be read without knowing whose they are; only digests and default audiences depend on it.
NOBODY = "https://issuer.invalid"


def _without_slash(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    # A service refuses such a URL in its settings, so nothing judged under it would be what any service says.
    if url is not None and url.endswith("/"):
        raise click.BadParameter("must be as in the settings, without a trailing slash")
    return url


own_url = click.option("--url", envvar="ISSUER_URL", metavar="URL", callback=_without_slash,
                       help="The issuer's own URL. Also $ISSUER_URL.")  # fmt: skip
_MAX_TOKEN = 64 * 1024
_MAX_BODY = 1024 * 1024
_NEAREST = 3
_NOT_CHECKED = "signature not checked: this is offline, and says what these claims would get, not whose they are"
_NOT_KNOWN = "not known offline: rate limits, quarantine, and whether the identity token is used up"


class Explanation(Struct, frozen=True):
    """What these policies say of a request.

    `token_checks` are of the identity token, `checks` of whose it is and what it may. `party` is None where the caller
    is nobody's; `told` is then what a service says of it.
    """

    token_checks: tuple[Check, ...]
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    registration: Registration | None = None
    told: str = ""

    @property
    def authenticated(self) -> bool:
        """Whether the token suits its provider's registration."""
        return all(check.passed for check in self.token_checks)

    @property
    def code(self) -> Code | None:
        """The code of the refusal, None for a grant."""
        return next((check.code for check in (*self.token_checks, *self.checks) if not check.passed), None)


@click.command()
@click.argument("directory", default="policies", type=click.Path(path_type=Path), metavar="[DIR]")
@click.option(
    "--identity-token-file", "token_file", type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
    help='The identity token, or an OAuth access token that is a JWT; "-" reads standard input. It is never printed.',
)  # fmt: skip
@click.option(
    "--identity-claims-file", "claims_file", type=click.Path(path_type=Path), metavar="FILE",
    help="Instead of a token: its claims, as a JSON object.",
)  # fmt: skip
@click.option("--provider", metavar="ID", help="Whose claims these are; the one that their `iss` names.")
@click.option(
    "--claims", "run_file", type=click.Path(path_type=Path), metavar="FILE",
    help="JSON: the body of /tokens or /tokens/batch, or the run claims alone. Left out, only the identity is judged.",
)  # fmt: skip
@own_url
@click.option("--at", metavar="TIME", help="When it was asked: ISO 8601 with an offset, or Unix seconds; now.")
@click.option("--as-caller", is_flag=True, help="Show what the caller would see, and no more.")
@click.option("--development", is_flag=True, help="Allow providers on plain http, at loopback addresses.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(
    directory: Path, token_file: Path | None, claims_file: Path | None, provider: str | None, run_file: Path | None,
    url: str | None, at: str | None, as_caller: bool, development: bool, as_json: bool,
) -> None:  # fmt: skip
    """Explain what the policies of DIR ("policies") say of a request, and why.

    Exit code 0 for a grant, 5 for a refusal.
    """
    if (token_file is None) == (claims_file is None):
        raise click.UsageError("give exactly one of --identity-token-file and --identity-claims-file")
    if token_file is not None and url is None:
        raise click.UsageError("give --url, the issuer's own: a token's audience is judged by it")
    if token_file is not None and provider is not None:
        raise click.UsageError("a token names its provider: --provider goes with --identity-claims-file")
    policies = load_policies(directory, url or NOBODY, development=development)
    now = int(time.time()) if at is None else read_time(at, "--at")
    body = None if run_file is None else _read_run(run_file)
    if token_file is not None:
        explanation = explain_token(policies, _read_token(token_file), body, now)
    else:
        claims = _read_claims(claims_file or Path())
        whose = _provider_of(policies, claims) if provider is None else _provider_named(policies, provider)
        explanation = explain_claims(policies, whose, claims, body, now)
    told = _as_json(explanation, as_caller=as_caller) if as_json else _for_people(explanation, as_caller=as_caller)
    click.echo(told)
    sys.exit(0 if explanation.code is None else 5)


# -- what goes in -----------------------------------------------------------------------------------------------------


def _read_token(path: Path) -> str:
    # Every byte is a character here, and all but a token's characters are refused by its reader.
    return read_argument(path, _MAX_BODY).decode("latin-1").strip()


def _read_claims(path: Path) -> Mapping[str, JSON]:
    value = loads(read_argument(path, _MAX_TOKEN), max_bytes=_MAX_TOKEN, max_depth=16, name=str(path))
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    return value


def _read_run(path: Path) -> Request:
    """Read a request body, or run claims alone. Raises InputError, and Refused as the service would."""
    value = loads(read_argument(path, _MAX_BODY), max_bytes=_MAX_BODY, max_depth=16, name=str(path))
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    body = value if {"claims", "results"} & value.keys() else {"claims": value}
    return read_request("batch" if "results" in value else "single", jcs.canonical(body))


# -- what is judged ---------------------------------------------------------------------------------------------------


def explain_token(policies: PolicySet, token: str, body: Request | None, now: int) -> Explanation:
    """Judge a token and a request at `now` (Unix seconds). The token's signature is not checked.

    Raises UsageError for a credential that says nothing by itself.
    """
    asked = [provider for provider in policies.providers.values() if provider.rules.kind not in SIGNED]
    for provider in asked:
        if not is_jwt(token) and token.startswith(provider.token_prefix):
            raise _opaque(provider)
    try:
        jws, unverified_claims = read_token(token)
    except Refused as refusal:
        return Explanation((stated(refusal.code, "the identity token", False, refusal.detail),))
    whose = _provider_of(policies, unverified_claims)
    if isinstance(whose, Check):
        return Explanation((whose,))
    if whose in asked:
        raise _opaque(whose)
    checks = tuple(_token_checks(whose, jws.header, unverified_claims, now))
    return _judged(policies, whose, unverified_claims, body, now, checks)


def _opaque(provider: Provider) -> click.UsageError:
    claims = ", ".join([*provider.rules.pins, *(["scope"] if provider.rules.scope else [])])
    return click.UsageError(
        "nobody can tell offline what this credential is worth: instead of it, "
        f"give --provider {provider.id} and its claims {claims} with --identity-claims-file"
    )


def explain_claims(
    policies: PolicySet, provider: Provider | Check, claims: Mapping[str, JSON], body: Request | None, now: int
) -> Explanation:
    """Judge claims as those of a good credential of a provider."""
    if isinstance(provider, Check):
        return Explanation((provider,))
    return _judged(policies, provider, claims, body, now, ())


def _provider_of(policies: PolicySet, claims: Mapping[str, JSON]) -> Provider | Check:
    issuer = claims.get("iss")
    found = policies.providers.get(issuer) if isinstance(issuer, str) else None
    issuers = " or ".join(policies.providers)
    return found or stated(Code.IDENTITY_ISSUER_UNKNOWN, "providers", False, f"the iss is {shown(issuer)}", issuers)


def _provider_named(policies: PolicySet, name: str) -> Provider:
    for provider in policies.providers.values():
        if provider.id == name:
            return provider
    there = ", ".join(provider.id for provider in policies.providers.values())
    raise click.UsageError(f"--provider: not one of providers.yaml; there are {there}")


def _token_checks(
    provider: Provider, header: Mapping[str, JSON], claims: Mapping[str, JSON], now: int
) -> Iterator[Check]:
    """Judge a token by its provider's registration, in the order of the service."""
    at = f"providers.{provider.id}"
    rules, audience = provider.rules, shown(claims.get("aud"))
    algorithm, typ = shown(header.get("alg")), shown(header.get("typ"))
    yield stated(Code.IDENTITY_ISSUER_UNKNOWN, f"{at}.issuer", True, f"the token's iss is {provider.issuer}")
    yield _tried(Code.IDENTITY_ALGORITHM_REFUSED, f"{at}.algorithms", f"the token's alg is {algorithm}, its typ {typ}",
                 f"{' or '.join(provider.algorithms)}, {' or '.join(rules.types)}",
                 lambda: read_header(header, provider))  # fmt: skip
    times = f"issued {_told(claims.get('iat'))}, expires {_told(claims.get('exp'))}, judged at {told_time(now)}"
    bounds = f"a life of at most {provider.max_lifetime_s} s, an age of at most {provider.max_age_s} s"
    yield _tried(Code.IDENTITY_EXPIRED, f"{at}.max_age_s", times, bounds, lambda: read_times(claims, provider, now))
    yield _tried(Code.IDENTITY_AUDIENCE_MISMATCH, f"{at}.audience", f"the token's aud is {audience}",
                 provider.audience, lambda: check_audience(claims.get("aud"), provider.audience))  # fmt: skip
    if rules.kind == "access-token":
        told = ", ".join(f"{name} {shown(claims.get(name))}" for name in ("client_id", "sub", "jti", "cnf"))
        yield _tried(Code.IDENTITY_MALFORMED, f"{at}.profile", f"of the token {told}", "the first three, and no cnf",
                     lambda: check_access_token(claims))  # fmt: skip


def _tried(code: Code, rule: str, actual: str, expected: str, judge: Callable[[], object]) -> Check:
    try:
        judge()
    except Refused as refusal:
        return stated(refusal.code, rule, False, actual, expected)
    return stated(code, rule, True, actual, expected)


def _told(value: JSON) -> str:
    in_years = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**33
    return told_time(int(str(value))) if in_years else shown(value)


def _judged(
    policies: PolicySet,
    provider: Provider,
    claims: Mapping[str, JSON],
    body: Request | None,
    now: int,
    token_checks: tuple[Check, ...],
) -> Explanation:
    caller = Caller.supposed(provider, derived(provider.rules, claims), now)
    runs, integration, audience = ((), "", "") if body is None else (body.runs(), body.integration, body.audience)
    try:
        found = evaluate(policies, caller, runs, now, integration=integration, audience=audience)
    except Refused as refusal:
        failed = stated(refusal.code, "identities", False, refusal.detail)
        nearest = tuple(_nearest(policies, caller, refusal.code, now))
        return Explanation(token_checks, (failed, *nearest), told=refusal.detail)
    warnings = found.decision.warnings if isinstance(found.decision, Grant) else ()
    return Explanation(token_checks, found.decision.checks, warnings, found.registration)


def _nearest(policies: PolicySet, caller: Caller, code: Code, now: int) -> Iterator[Check]:
    """Show the registrations that come nearest: for the operator, who wonders which id is wrong."""
    registrations = [
        registration
        for bucket in policies.registrations.values()
        for registration in bucket
        if registration.provider == caller.provider
    ]
    ranked = sorted(registrations, key=lambda registration: -sum(_pins(registration, caller).values()))
    for registration in ranked[:_NEAREST]:
        where = f"{registration.policy.integration}/{registration.identity.id}"
        for name, matches in _pins(registration, caller).items():
            actual = f"the identity token's {name} is {shown(caller.claims.get(name))}"
            yield stated(code, f"{where}: pins.{name}", matches, actual, registration.identity.pins[name])
        if pins_match(registration.identity, caller.claims):
            for check in check_identity(registration, caller, now):
                yield msgspec.structs.replace(
                    check, of=msgspec.structs.replace(check.of, place=f"{where}: {check.rule}")
                )


def _pins(registration: Registration, caller: Caller) -> dict[str, bool]:
    return {name: equal(caller.claims.get(name), value) for name, value in registration.identity.pins.items()}


# -- what comes out ---------------------------------------------------------------------------------------------------


def _shown(explanation: Explanation, *, as_caller: bool) -> tuple[ShownCheck, ...]:
    """Return the checks as the operator sees them, or as the caller would (contract section 5, disclosure ladder)."""
    if not as_caller:
        return unredacted((*explanation.token_checks, *explanation.checks))
    registration = _known_to(explanation, as_caller=True)
    return () if registration is None else disclosed(explanation.checks, registration.policy)


def _known_to(explanation: Explanation, *, as_caller: bool) -> Registration | None:
    """Return whom the caller is registered as, if who asks may know it: nobody whose token is no good may."""
    return explanation.registration if explanation.authenticated or not as_caller else None


def _for_people(explanation: Explanation, *, as_caller: bool) -> str:
    checks, code = _shown(explanation, as_caller=as_caller), explanation.code
    registration = _known_to(explanation, as_caller=as_caller)
    told = [f"warning: {warning}" for warning in explanation.warnings]
    whose = "" if registration is None else f", as {registration.policy.integration}/{registration.identity.id}"
    told.append(f"granted{whose}" if code is None else f"refused: {code}{whose}")
    if code is not None and not checks:
        told.append(explanation.told if explanation.authenticated else code.meaning.title)
    told += [] if as_caller else [_NOT_CHECKED, _NOT_KNOWN]
    return "\n".join([*([table(checks), ""] if checks else []), *map(printable, told)])


def _as_json(explanation: Explanation, *, as_caller: bool) -> str:
    registration = _known_to(explanation, as_caller=as_caller)
    document: dict[str, Any] = {
        "version": 1,
        "verdict": "granted" if explanation.code is None else "refused",
        "code": explanation.code,
        "integration": None if registration is None else registration.policy.integration,
        "identity": None if registration is None else registration.identity.id,
        "signature": "not checked",
        "checks": _shown(explanation, as_caller=as_caller),
        "warnings": explanation.warnings,
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode()
