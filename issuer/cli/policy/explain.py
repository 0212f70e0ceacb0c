"""`issuer policy explain` and `issuer policy plan`: the decisions of policies about one request, or recorded requests.

The commands decide offline and disclose every check. `issuer.policy.authoring.explain` lists the limits of that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
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
from issuer.policy.authoring.explain import Explanation, ReadCredential, present_claims, present_token
from issuer.policy.authoring.explain import explain as explain_request
from issuer.policy.authoring.load import load_for_plan, load_policies
from issuer.policy.authoring.plan import DecisionGroup, Plan, make_plan
from issuer.policy.authoring.signals import CountedRule, SignalGroup
from issuer.policy.match import PolicySet
from issuer.policy.model import Counts
from issuer.token.wire import ShownCheck

# The URL of an unknown issuer. Only digests and default audiences depend on the URL.
NOBODY = "https://issuer.invalid"
# A service refuses settings with such a URL, so a decision with it would match no service.
_URL_RULE = "give the URL of the settings, which has no trailing slash"
own_url = click.option(
    "--url", envvar="ISSUER_URL", metavar="URL", callback=demand(lambda url: not url.endswith("/"), _URL_RULE),
    help="The issuer's URL. Also $ISSUER_URL.",
)  # fmt: skip
_MAX_TOKEN = 64 * 1024
_MAX_BODY = 1024 * 1024
_NOT_CHECKED = "signature not checked: offline, this decides about the claims, not about their authenticity"
_NOT_KNOWN = "unknown offline: rate limits, quarantine, and whether the identity token is used up"


@click.command()
@click.argument("directory", default="policies", type=A_FILE, metavar="[DIR]")
@click.option(
    "--identity-token-file", "token_file", type=FILE_OR_INPUT, metavar="FILE",
    help='The identity token, or an OAuth access token that is a JWT; "-" reads standard input. Never printed.',
)  # fmt: skip
@click.option(
    "--identity-claims-file", "claims_file", type=A_FILE, metavar="FILE",
    help="Instead of a token: its claims, as a JSON object.",
)  # fmt: skip
@click.option("--provider", metavar="ID", help="The provider of these claims. Default: the one of `iss`.")
@click.option(
    "--claims", "run_file", type=A_FILE, metavar="FILE",
    help="JSON: the body of /tokens or /tokens/batch, or only the run claims. Default: explain only the identity.",
)  # fmt: skip
@click.option(
    "--counts", "counts_file", type=A_FILE, metavar="FILE",
    help="JSON: assumed counts, like `counts` in a policy's test. The command compares them with the rules of `abuse`.",
)  # fmt: skip
@own_url
@click.option(
    "--at", metavar="TIME", help="Time of the request: ISO 8601 with an offset, or Unix seconds. Default: now."
)
@click.option("--as-caller", is_flag=True, help="Show only what the caller would see.")
@development_option
@verbose_option
@json_option
def explain(
    directory: Path, token_file: Path | None, claims_file: Path | None, provider: str | None, run_file: Path | None,
    counts_file: Path | None, url: str | None, at: str | None, as_caller: bool, development: bool, verbose: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Explain what the policies of DIR ("policies") decide about a request, and why.

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


def _check_token_options(token_file: Path | None, url: str | None, provider: str | None) -> None:
    if token_file is not None and url is None:
        raise click.UsageError("give --url, the issuer's URL: it decides whether the token's audience is right")
    if token_file is not None and provider is not None:
        raise click.UsageError("a token names its provider: give --provider only with --identity-claims-file")


def _present_token(policies: PolicySet, path: Path, now: int) -> ReadCredential:
    presented = present_token(policies, _read_token(path), now)
    if isinstance(presented, Provider):
        _refuse_opaque(presented)
    return presented


def _present_claims(policies: PolicySet, path: Path, provider: str | None) -> ReadCredential:
    claims = _read_object(path, _MAX_TOKEN)
    if provider:
        return ReadCredential(_provider_of(policies, provider), claims)
    if "iss" not in claims:
        raise click.UsageError(f"the claims have no `iss`: give --provider, one of {_provider_ids(policies)}")
    return present_claims(policies, claims)


def _read_token(path: Path) -> str:
    # Latin-1 decodes every byte. The token's parser then refuses each character that no token has.
    return read_argument(path, _MAX_BODY).decode("latin-1").strip()


def _read_object(path: Path, max_bytes: int) -> dict[str, JSON]:
    with reading(str(path)):
        value = loads(read_argument(path, max_bytes), max_bytes=max_bytes, max_depth=16)
    if not isinstance(value, dict):
        raise InputError(Code.FILE_SCHEMA, "must be a JSON object", Place(str(path)))
    return value


def _read_run(path: Path) -> Request:
    """Read a request body, or only run claims. Raises InputError, and Refused like the service."""
    value = _read_object(path, _MAX_BODY)
    body = value if {"claims", "results"} & value.keys() else {"claims": value}
    return read_request("batch" if "results" in value else "single", jcs.canonical(body))


def _read_counts(path: Path) -> Counts:
    with reading(str(path)):
        return convert(loads(read_argument(path, _MAX_TOKEN), max_bytes=_MAX_TOKEN, max_depth=16), Counts)


def _provider_of(policies: PolicySet, name: str) -> Provider:
    for provider in policies.providers.values():
        if provider.id == name:
            return provider
    raise click.UsageError(f"--provider: not in providers.yaml, which has {_provider_ids(policies)}")


def _provider_ids(policies: PolicySet) -> str:
    return ", ".join(provider.id for provider in policies.providers.values())


def _refuse_opaque(provider: Provider) -> NoReturn:
    claims = ", ".join([*provider.rules.pins, *(["scope"] if provider.rules.scope else [])])
    raise click.UsageError(
        "only its provider can decode this credential: instead of it, give "
        f"--provider {provider.id} and its claims {claims} with --identity-claims-file"
    )


def _render_verdict(explanation: Explanation, checks: Sequence[ShownCheck], *, as_caller: bool) -> list[str]:
    code, registration = explanation.code, explanation.registration
    lines = [f"warning: {warning}" for warning in explanation.warnings]
    identity = "" if registration is None else f", as {registration.policy.integration}/{registration.identity.id}"
    lines.append(f"granted{identity}" if code is None else f"refused: {code}{identity}")
    if code is not None and not checks:
        lines.append(explanation.refusal if explanation.authenticated else code.meaning.title)
    lines += [] if as_caller else [_NOT_CHECKED, _NOT_KNOWN]
    return [broken for line in lines for broken in wrap(line, rest="  ")]


def _render_counted(counted: Sequence[CountedRule]) -> str:
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


_BECOMES = {"refused": "would be refused", "granted": "would be granted", "untold": "cannot tell"}


@click.command()
@click.argument("old", type=A_FILE)
@click.argument("new", type=A_FILE)
@click.option("--audit", required=True, type=A_FILE, metavar="FILE", help="The audit file.")
@own_url
@development_option
@json_option
def plan(old: Path, new: Path, audit: Path, url: str | None, development: bool, as_json: bool) -> None:
    """Show which decisions of an audit FILE would change if the policies in NEW replaced those in OLD.

    Both decide each recorded request again, at its recorded time. If NEW needs a value that the audit file lacks, the
    answer is "cannot tell". The plan does not check times, audiences and signatures of identity tokens again.

    If tests of NEW fail, the plan lists them, and the exit code is 1.
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
        say(f"warning: skipped {made.torn} lines of the audit file that are not whole events", err=True)
    sys.exit(Exit.NO if failed else Exit.GOOD)


def _render_failed(new: Path, failed: Sequence[Finding]) -> list[str]:
    if not failed:
        return []
    tests = "test fails" if len(failed) == 1 else "tests fail"
    return [f"a service would refuse {printable(str(new))}: {len(failed)} {tests}", *map(format_finding, failed)]


def render_plan(made: Plan) -> str:
    """Return the changes, with a line for each group and for each of its examples."""
    lines = [
        f"{made.decisions} decisions: {made.unchanged} unchanged, {made.refused} would be refused, "
        f"{made.granted} would be granted, {made.untold} cannot tell"
    ]
    if made.not_decided:
        lines.append(
            f"{made.not_decided} more were refused before a policy decided (limits, replays, bodies): left out"
        )
    if made.otherwise:
        lines.append(f"{made.otherwise} recorded decisions differ from OLD's: other policies were in force then")
    lines += [line for group in made.groups for line in _render_group(group)]
    return "\n".join([*lines, *(line for group in made.signals for line in _render_signals(group))])


def _render_group(group: DecisionGroup) -> list[str]:
    integration = group.integration or "no integration"
    why = f"the audit file lacks {group.why}" if group.kind == "untold" else group.why
    lines = [f"{_BECOMES[group.kind]}: {group.count} of {integration}: {why}"]
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
        return "cannot tell whether it would signal"
    if group.before is None:
        return "would signal"
    return "would signal no longer" if group.after is None else "would have another consequence"


def _signals_why(group: SignalGroup) -> str:
    if group.untold:
        return f", because the recorded count used another {group.untold}"
    if group.before is None or group.after is None:
        return f" ({group.before or group.after})"
    return f" ({group.after} instead of {group.before})"
