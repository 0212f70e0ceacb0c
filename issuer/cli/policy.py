"""`issuer policy check|test|schema|fmt`: what the author of a policy runs.

`explain` and `plan` have files of their own. Findings and tests print in the forms of `issuer.cli.findings`. Exit
codes: 0 good, 1 a policy's own test fails, 2 usage, 3 a file is malformed (contract section 6).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from issuer.cli.checks import render_checks, verbose_option
from issuer.cli.exits import Exit, exit_for_findings
from issuer.cli.findings import FORMATS, junit_suite, render
from issuer.cli.policy_explain import NOBODY, explain, own_url
from issuer.cli.policy_new import new
from issuer.cli.policy_plan import plan
from issuer.cli.terminal import printable, render_json, render_table, say
from issuer.codes import Code
from issuer.errors import Finding
from issuer.files import read as read_file
from issuer.files import replace as replace_file
from issuer.formats.strict_yaml import MAX_BYTES
from issuer.policy.authoring.fmt import format_file
from issuer.policy.authoring.load import check_policies, try_policies
from issuer.policy.authoring.schema import schemas
from issuer.policy.authoring.suite import Outcome
from issuer.policy.disclose import disclose_all
from issuer.policy.match import PolicySet


@click.group()
def policy() -> None:
    """Write, check, test, explain and compare policies."""


policy.add_command(explain)
policy.add_command(new)
policy.add_command(plan)


def _directory_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what every command that loads one directory takes."""
    for add in (
        click.option("--development", is_flag=True, help="Allow providers on plain http, at loopback addresses."),
        own_url,
        click.argument("directory", default="policies", type=click.Path(path_type=Path), metavar="[DIR]"),
    ):
        command = add(command)
    return command


_format = click.option("--format", "form", type=click.Choice(FORMATS), default="human", show_default=True)


# -- check ------------------------------------------------------------------------------------------------------------


@policy.command()
@_directory_options
@_format
@click.option("--warnings-as-errors", is_flag=True, help="Make warnings errors.")
def check(directory: Path, url: str | None, development: bool, form: str, warnings_as_errors: bool) -> None:
    """Check the policies of DIR ("policies"): every error and warning, as file:line:col: code: what, and what to do.

    The tests in the files are run, too. Where all is good, the digests are printed that the issuer shows at
    /health/ready and puts into tokens.
    """
    tests: list[Outcome] = []
    policies, findings = check_policies(
        directory, url or NOBODY, int(time.time()), development=development, tell=tests.extend
    )
    if warnings_as_errors:
        findings = tuple(replace(finding, severity="error") for finding in findings)
    code = exit_for_findings(findings)
    text = render(findings, _files(directory), "issuer policy check", form)
    if text:
        say(text)
    if policies is not None and code is Exit.GOOD and form == "human":
        say(_digests(policies, len(tests), url))
    sys.exit(code)


def _files(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.glob("*.yaml"))]


def _digests(policies: PolicySet, tests: int, url: str | None) -> str:
    """Say what was read, and its digests where they are those of an issuer."""
    counts = f"{_count(len(policies.policies), 'integration')}, {_count(len(policies.providers), 'provider')}"
    good = f"good: {counts}, {_count(tests, 'test')} passed"
    if url is None:
        return f"{good}\nFor the digests give --url, the issuer's own: it is its providers' default audience."
    digests = {
        (f"{registration.policy.integration} ({registration.provider.id})", registration.digest)
        for bucket in policies.registrations.values()
        for registration in bucket
    }
    return f"{good}\n{render_table([*sorted(digests), ('the whole directory', policies.digest)])}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# -- test -------------------------------------------------------------------------------------------------------------


@policy.command()
@_directory_options
@_format
@click.option("--integration", metavar="ID", help="Only the tests of this integration.")
@verbose_option
def test(
    directory: Path, url: str | None, development: bool, form: str, integration: str | None, verbose: bool
) -> None:
    """Run the tests that the policies of DIR ("policies") hold, by the evaluator that judges requests."""
    outcomes, findings = try_policies(directory, url or NOBODY, int(time.time()), development=development)
    errors = [finding for finding in findings if finding.severity == "error"]
    if integration is not None:
        own = str(directory / f"{integration}.yaml")
        if own not in _files(directory):
            raise click.BadParameter(f"there is no {integration}.yaml in {directory}", param_hint="--integration")
        outcomes = tuple(outcome for outcome in outcomes if outcome.integration == integration)
        errors = [finding for finding in errors if finding.place.file == own or not _is_test(finding)]
    text = (
        _render_tests(outcomes, errors, verbose=verbose)
        if form == "human"
        else _TESTS[form](outcomes, errors, directory)
    )
    if text:
        say(text)
    sys.exit(exit_for_findings(errors))


def _is_test(finding: Finding) -> bool:
    return finding.code is Code.POLICY_TEST_FAILED


def _render_tests(outcomes: Sequence[Outcome], errors: Sequence[Finding], *, verbose: bool) -> str:
    broken = [finding for finding in errors if not _is_test(finding)]
    failed = sum(not outcome.passed for outcome in outcomes)
    lines = [line for outcome in outcomes for line in _describe_test(outcome, verbose=verbose)]
    lines += [render(broken, [], "", "human")] if broken else []
    return "\n".join([*lines, f"{_count(len(outcomes), 'test')}, {failed} failed"])


def _describe_test(outcome: Outcome, *, verbose: bool) -> list[str]:
    name = printable(f"{outcome.integration}: {outcome.name}")
    if outcome.passed:
        return [
            f"ok    {name}",
            *(_indented(render_checks(disclose_all(outcome.checks), verbose=True)) if verbose else []),
        ]
    lines = [f"FAIL  {name}", f"      {outcome.place}: {printable(outcome.verdict)}"]
    if outcome.signals is not None:
        return [*lines, f"      {printable(outcome.detail)}"] if outcome.detail else lines
    if not outcome.checks and outcome.detail:
        lines.append(f"      {printable(outcome.detail)}")
    return lines + (_indented(_render_decisive(outcome, verbose=verbose)) if outcome.checks else [])


def _indented(text: str) -> list[str]:
    return [f"      {line}" for line in text.split("\n")] if text else []


def _render_decisive(outcome: Outcome, *, verbose: bool) -> str:
    """Show what refused, or, where the refusal that is expected did not come, everything that let it pass."""
    failed = [check for check in outcome.checks if not check.passed]
    if failed and not verbose:
        return render_checks(disclose_all(failed))
    return render_checks(disclose_all(outcome.checks), verbose=True)


def _render_tests_as_json(outcomes: Sequence[Outcome], errors: Sequence[Finding], _: Path) -> str:
    tests = [_test_as_json(outcome) for outcome in outcomes]
    broken = [str(finding) for finding in errors if not _is_test(finding)]
    document = {"version": 1, "tool": "issuer policy test", "tests": tests, "errors": broken}
    return render_json(document)


def _test_as_json(outcome: Outcome) -> dict[str, Any]:
    place = outcome.place
    return {
        "integration": outcome.integration,
        "name": outcome.name,
        "passed": outcome.passed,
        "expected": outcome.expected,
        "actual": outcome.actual,
        "detail": outcome.detail,
        "signals": outcome.signals,
        "difference": outcome.difference,
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "checks": disclose_all(outcome.checks),
    }


def _render_tests_as_junit(outcomes: Sequence[Outcome], errors: Sequence[Finding], _: Path) -> str:
    cases = [
        (outcome.integration, outcome.name, [] if outcome.passed else [f"{outcome.place}: {_verdict(outcome)}"])
        for outcome in outcomes
    ]
    cases += [
        ("policies", finding.place.file, [render([finding], [], "", "human")])
        for finding in errors
        if not _is_test(finding)
    ]
    return junit_suite("issuer policy test", cases)


def _verdict(outcome: Outcome) -> str:
    because = f": {outcome.detail}" if outcome.detail else ""
    return f"{outcome.verdict}{because}"


def _tests_as(form: str) -> Callable[[Sequence[Outcome], Sequence[Finding], Path], str]:
    return lambda _, errors, directory: render(errors, _files(directory), "issuer policy test", form)


_TESTS = {
    "json": _render_tests_as_json,
    "junit": _render_tests_as_junit,
    "github": _tests_as("github"),
    "sarif": _tests_as("sarif"),
}


# -- schema -----------------------------------------------------------------------------------------------------------


@policy.command()
@click.argument("name", type=click.Choice(sorted(schemas())), default="policy", metavar="[policy|providers|stops]")
def schema(name: str) -> None:
    """Print the JSON Schema of policy files, of providers.yaml or of stops.yaml, for editors.

    It helps while writing; `issuer policy check` is the judge.
    """
    say(schemas()[name].decode(), end="")


# -- fmt --------------------------------------------------------------------------------------------------------------


@policy.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 where a file would change.")
def fmt(files: tuple[Path, ...], only_check: bool) -> None:
    """Lay files out canonically: indentation, quotes, blank lines, the end. No value, no order, no comment changes."""
    found = [(path, _reformat(path)) for path in files]
    for path, after in found:
        if after is not None and not only_check:
            replace_file(path, after, mode=None, durable=True, follow=False)
        done = "unchanged" if after is None else "would change" if only_check else "formatted"
        say(f"{printable(str(path))}: {done}")
    sys.exit(Exit.NO if only_check and any(after is not None for _, after in found) else Exit.GOOD)


def _reformat(path: Path) -> bytes | None:
    """Return a file's canonical form, or None where it has it already."""
    before = read_file(path, MAX_BYTES)
    after = format_file(before, str(path))
    return None if after == before else after
