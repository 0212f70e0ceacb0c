"""`issuer policy explain` and `issuer policy plan`: what policies decide of one request, and of recorded ones.

They judge offline, and hide nothing. `issuer.policy.authoring.explain` says what is beyond such a judgement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from issuer.audit.reader import read_lines
from issuer.cli.exits import Exit
from issuer.cli.options import (
    A_FILE,
    FILE_OR_INPUT,
    demand,
    development_option,
    json_option,
    read_time,
    verbose_option,
)
from issuer.cli.render import format_finding, render_checks, render_table
from issuer.cli.terminal import printable, say, say_document, wrap
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place, reading
from issuer.formats import jcs
from issuer.formats.strict_json import JSON, convert, loads
from issuer.formats.times import show_time
from issuer.identity.table import Provider
from issuer.io.files import read_argument
from issuer.issuance.judge import read_request
from issuer.issuance.steps import Request
from issuer.policy.authoring.explain import Explanation, Presented, present_claims, present_token
from issuer.policy.authoring.explain import explain as explain_request
from issuer.policy.authoring.load import load_for_plan, load_policies
from issuer.policy.authoring.plan import Group, Plan, make_plan
from issuer.policy.authoring.signals import Counted, SignalGroup
from issuer.policy.match import PolicySet
from issuer.policy.model import Counts
from issuer.token.wire import ShownCheck

# Policies can be read without knowing whose they are; only digests and default audiences depend on it.
NOBODY = "https://issuer.invalid"


# A service refuses a URL with a slash in its settings, so nothing judged under it would be what any service says.
_URL_RULE = "must be as in the settings, without a trailing slash"
own_url = click.option(
    "--url", envvar="ISSUER_URL", metavar="URL", callback=demand(lambda url: not url.endswith("/"), _URL_RULE),
    help="The issuer's own URL. Also $ISSUER_URL.",
)  # fmt: skip
_MAX_TOKEN = 64 * 1024
_MAX_BODY = 1024 * 1024
_NOT_CHECKED = "signature not checked: this is offline, and says what these claims would get, not whose they are"
_NOT_KNOWN = "not known offline: rate limits, quarantine, and whether the identity token is used up"


@click.command()
@click.argument("directory", default="policies", type=A_FILE, metavar="[DIR]")
@click.option(
    "--identity-token-file", "token_file", type=FILE_OR_INPUT, metavar="FILE",
    help='The identity token, or an OAuth access token that is a JWT; "-" reads standard input. It is never printed.',
)  # fmt: skip
@click.option(
    "--identity-claims-file", "claims_file", type=A_FILE, metavar="FILE",
    help="Instead of a token: its claims, as a JSON object.",
)  # fmt: skip
@click.option("--provider", metavar="ID", help="Whose claims these are; the one that their `iss` names.")
@click.option(
    "--claims", "run_file", type=A_FILE, metavar="FILE",
    help="JSON: the body of /tokens or /tokens/batch, or the run claims alone. Left out, only the identity is judged.",
)  # fmt: skip
@click.option(
    "--counts", "counts_file", type=A_FILE, metavar="FILE",
    help="JSON: what would have been counted, as `counts` of a policy's test; shows the rules of `abuse` beside it.",
)  # fmt: skip
@own_url
@click.option("--at", metavar="TIME", help="When it was asked: ISO 8601 with an offset, or Unix seconds; now.")
@click.option("--as-caller", is_flag=True, help="Show what the caller would see, and no more.")
@development_option
@verbose_option
@json_option
def explain(
    directory: Path, token_file: Path | None, claims_file: Path | None, provider: str | None, run_file: Path | None,
    counts_file: Path | None, url: str | None, at: str | None, as_caller: bool, development: bool, verbose: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Explain what the policies of DIR ("policies") say of a request, and why.

    Exit code 0 for a grant, 5 for a refusal.
    """
    if (token_file is None) == (claims_file is None):
        raise click.UsageError("give exactly one of --identity-token-file and --identity-claims-file")
    _check_token_options(token_file, url, provider)
    policies = load_policies(directory, url or NOBODY, development=development)
    now = int(time.time()) if at is None else read_time(at, "--at")
    body = None if run_file is None else _read_run(run_file)
    if token_file is not None:
        presented = _present_token(policies, token_file, now)
    else:
        presented = _present_claims(policies, claims_file or Path(), provider)
    runs, integration, audience = ((), "", "") if body is None else (body.runs(), body.integration, body.audience)
    counts = None if counts_file is None else _read_counts(counts_file)
    explanation = explain_request(policies, presented, runs, now, integration=integration, audience=audience)
    explanation = explanation if counts is None else explanation.with_counts(counts)
    checks = explanation.checks_for_caller() if as_caller else explanation.checks_for_operator()
    explanation = explanation.redact() if as_caller else explanation
    if as_json:
        say_document(_document(explanation, checks))
    else:
        table = [render_checks(checks, verbose=verbose), ""] if checks else []
        counted = [_render_counted(explanation.counted), ""] if explanation.counted else []
        say("\n".join([*table, *counted, *_render_verdict(explanation, checks, as_caller=as_caller)]))
    sys.exit(Exit.GOOD if explanation.code is None else Exit.REFUSED)


# -- what goes in -----------------------------------------------------------------------------------------------------


def _check_token_options(token_file: Path | None, url: str | None, provider: str | None) -> None:
    if token_file is not None and url is None:
        raise click.UsageError("give --url, the issuer's own: a token's audience is judged by it")
    if token_file is not None and provider is not None:
        raise click.UsageError("a token names its provider: --provider goes with --identity-claims-file")


def _present_token(policies: PolicySet, path: Path, now: int) -> Presented:
    presented = present_token(policies, _read_token(path), now)
    if isinstance(presented, Provider):
        _refuse_opaque(presented)
    return presented


def _present_claims(policies: PolicySet, path: Path, provider: str | None) -> Presented:
    claims = _read_claims(path)
    if provider:
        return Presented(_provider_of(policies, provider), claims)
    if "iss" not in claims:
        there = ", ".join(provider.id for provider in policies.providers.values())
        raise click.UsageError(f"the claims have no `iss`: say whose they are with --provider, one of {there}")
    return present_claims(policies, claims)


def _read_token(path: Path) -> str:
    # Every byte is a character here, and all but a token's characters are refused by its reader.
    return read_argument(path, _MAX_BODY).decode("latin-1").strip()


def _read_claims(path: Path) -> Mapping[str, JSON]:
    with reading(str(path)):
        value = loads(read_argument(path, _MAX_TOKEN), max_bytes=_MAX_TOKEN, max_depth=16)
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    return value


def _read_run(path: Path) -> Request:
    """Read a request body, or run claims alone. Raises InputError, and Refused as the service would."""
    with reading(str(path)):
        value = loads(read_argument(path, _MAX_BODY), max_bytes=_MAX_BODY, max_depth=16)
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    body = value if {"claims", "results"} & value.keys() else {"claims": value}
    return read_request("batch" if "results" in value else "single", jcs.canonical(body))


def _read_counts(path: Path) -> Counts:
    with reading(str(path)):
        return convert(loads(read_argument(path, _MAX_TOKEN), max_bytes=_MAX_TOKEN, max_depth=16), Counts)


def _provider_of(policies: PolicySet, name: str) -> Provider:
    for provider in policies.providers.values():
        if provider.id == name:
            return provider
    there = ", ".join(provider.id for provider in policies.providers.values())
    raise click.UsageError(f"--provider: not one of providers.yaml; there are {there}")


def _refuse_opaque(provider: Provider) -> NoReturn:
    claims = ", ".join([*provider.rules.pins, *(["scope"] if provider.rules.scope else [])])
    raise click.UsageError(
        "nobody can tell offline what this credential is worth: instead of it, "
        f"give --provider {provider.id} and its claims {claims} with --identity-claims-file"
    )


# -- what comes out ---------------------------------------------------------------------------------------------------


def _render_verdict(explanation: Explanation, checks: Sequence[ShownCheck], *, as_caller: bool) -> list[str]:
    code, registration = explanation.code, explanation.registration
    lines = [f"warning: {warning}" for warning in explanation.warnings]
    whose = "" if registration is None else f", as {registration.policy.integration}/{registration.identity.id}"
    lines.append(f"granted{whose}" if code is None else f"refused: {code}{whose}")
    if code is not None and not checks:
        lines.append(explanation.refusal if explanation.authenticated else code.meaning.title)
    lines += [] if as_caller else [_NOT_CHECKED, _NOT_KNOWN]
    return [broken for line in lines for broken in wrap(line, rest="  ")]


def _render_counted(counted: Sequence[Counted]) -> str:
    rows = [(rule.rule, str(rule.count), str(rule.limit), rule.then if rule.crossed else "-") for rule in counted]
    return render_table([("rule", "counted", "limit", "follows"), *rows])


def _document(explanation: Explanation, checks: Sequence[ShownCheck]) -> dict[str, Any]:
    registration = explanation.registration
    return {
        "version": 1,
        "verdict": "granted" if explanation.code is None else "refused",
        "code": explanation.code,
        "integration": None if registration is None else registration.policy.integration,
        "identity": None if registration is None else registration.identity.id,
        "signature": "not checked",
        "checks": checks,
        "counted": explanation.counted,
        "warnings": explanation.warnings,
    }


# -- plan -------------------------------------------------------------------------------------------------------------

_BECOMES = {"refused": "would be refused", "granted": "would be granted", "untold": "cannot tell"}


@click.command()
@click.argument("old", type=A_FILE)
@click.argument("new", type=A_FILE)
@click.option("--audit", required=True, type=A_FILE, metavar="FILE", help="The audit file.")
@own_url
@development_option
@json_option
def plan(old: Path, new: Path, audit: Path, url: str | None, development: bool, as_json: bool) -> None:
    """Show which decisions of an audit FILE would change if the policies in OLD were those in NEW.

    Each is judged again by both, as of its own time. Where NEW asks for what the audit does not hold, the answer is
    "cannot tell". Times, audiences and signatures of identity tokens are not judged again.

    Where tests of NEW fail, the plan is made all the same, and they are listed; the exit code is 1 then.
    """
    before = load_policies(old, url or NOBODY, development=development)
    after, failed = load_for_plan(new, url or NOBODY, development=development)
    made = make_plan(before, after, read_lines(audit))
    if as_json:
        tests = [{"place": str(finding.place), "detail": finding.detail} for finding in failed]
        say_document({"version": 1, **msgspec.to_builtins(made), "failed_tests": tests})
    else:
        say("\n".join([render_plan(made), *_render_failed(new, failed)]))
    if made.torn:
        say(f"warning: {made.torn} of its lines are no events, or half of one: skipped", err=True)
    sys.exit(Exit.NO if failed else Exit.GOOD)


def _render_failed(new: Path, failed: Sequence[Finding]) -> list[str]:
    if not failed:
        return []
    tests = "test fails" if len(failed) == 1 else "tests fail"
    return [f"no issuer takes {printable(str(new))} as it is: {len(failed)} {tests}", *map(format_finding, failed)]


def render_plan(made: Plan) -> str:
    """Say what would change, a line for each group and for each of its examples."""
    lines = [
        f"{made.decisions} decisions: {made.unchanged} unchanged, {made.refused} would be refused, "
        f"{made.granted} would be granted, {made.untold} cannot tell"
    ]
    if made.not_decided:
        lines.append(f"{made.not_decided} more were refused by no policy (limits, replays, bodies): not judged")
    if made.otherwise:
        lines.append(f"{made.otherwise} were decided otherwise than OLD decides: they were made under other policies")
    lines += [line for group in made.groups for line in _render_group(group)]
    return "\n".join([*lines, *(line for group in made.signals for line in _render_signals(group))])


def _render_group(group: Group) -> list[str]:
    whose = group.integration or "no integration"
    why = f"the audit does not hold {group.why}" if group.kind == "untold" else group.why
    lines = [f"{_BECOMES[group.kind]}: {group.count} of {whose}: {why}"]
    for example in group.examples:
        rule = f": {example.detail}; rule: {example.rule}" if example.rule else ""
        lines.append(f"  {show_time(example.time)} {example.request_id}{rule}")
    return [printable(line) for line in lines]


def _render_signals(group: SignalGroup) -> list[str]:
    lines = [f"{_signals_becomes(group)}: {group.count} of {group.integration}: {group.signal}{_signals_why(group)}"]
    for example in group.examples:
        counted = f": counted {example.counted}; rule: {example.rule}" if example.rule else ""
        lines.append(f"  {show_time(example.time)} {example.request_id}{counted}")
    return [printable(line) for line in lines]


def _signals_becomes(group: SignalGroup) -> str:
    if group.untold:
        return "cannot tell what signals"
    if group.before is None:
        return "would signal"
    return "would signal no longer" if group.after is None else "would have another consequence"


def _signals_why(group: SignalGroup) -> str:
    if group.untold:
        return f", by another {group.untold} than was counted by"
    if group.before is None or group.after is None:
        return f" ({group.before or group.after})"
    return f" ({group.after}, and not {group.before})"
