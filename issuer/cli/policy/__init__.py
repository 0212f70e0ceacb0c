"""`issuer policy new`, `check`, `test`, `schema` and `fmt`: commands for authors of policies.

Exit codes (contract section 6): 0 good, 1 a policy's own test fails, 2 usage, 3 a file is malformed.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from issuer.cli.exits import Exit, exit_for_findings
from issuer.cli.options import (
    A_FILE,
    FILE_OR_INPUT,
    all_of,
    config_option,
    demand,
    development_option,
    verbose_option,
)
from issuer.cli.policy.explain import NOBODY, explain, own_url, plan
from issuer.cli.render import FORMATS, Case, counted, format_finding, junit, render, render_checks, render_table
from issuer.cli.terminal import printable, render_json, say
from issuer.codes import Code
from issuer.errors import Finding, FormatError, InputError, Place, reading
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.strict_yaml import MAX_BYTES, load, quoted
from issuer.identity.table import ProvidersFile
from issuer.io.files import create, make_folder, read_argument
from issuer.io.files import read as read_file
from issuer.io.files import replace as replace_file
from issuer.policy.authoring.fmt import format_file
from issuer.policy.authoring.load import PROVIDERS_FILE, PolicySource, check_policies, try_policies
from issuer.policy.authoring.new import Choices, NewPolicy, TokenProvider, find_provider, make_policy
from issuer.policy.authoring.schema import schemas
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.authoring.suite import PolicyTestOutcome
from issuer.policy.disclose import disclose_all
from issuer.policy.match import PolicySet


@click.group()
def policy() -> None:
    """Write, check, test, explain and compare policies."""


policy.add_command(explain)
policy.add_command(plan)


_directory_options = all_of(
    click.argument("directory", default="policies", type=A_FILE, metavar="[DIR]"), config_option, own_url,
    development_option,
)  # fmt: skip
_format = click.option("--format", "form", type=click.Choice(FORMATS), default="human", show_default=True)


@policy.command()
@_directory_options
@_format
@click.option("--warnings-as-errors", is_flag=True, help="Treat warnings as errors.")
def check(
    directory: Path, config: Path | None, url: str | None, development: bool, form: str, warnings_as_errors: bool
) -> None:
    """Check the policies of DIR ("policies") and run their tests.

    With --config, URL and ceilings are those of these settings; without it, the ceilings are the defaults.

    Prints every error and warning as file:line:col: code: defect, next step. If all policies are good, prints their
    digests, which the issuer shows at /health/ready and puts into tokens.
    """
    tests: list[PolicyTestOutcome] = []
    source = _source(directory, config, url, development=development)
    policies, findings = check_policies(
        directory, source.issuer_url, int(time.time()), development=source.development, ceilings=source.ceilings,
        tell=tests.extend,
    )  # fmt: skip
    if warnings_as_errors:
        findings = tuple(replace(finding, severity="error") for finding in findings)
    code = exit_for_findings(findings)
    text = render(findings, _files(directory), "issuer policy check", form)
    if text:
        say(text)
    if policies is not None and code is Exit.GOOD and form == "human":
        say(_digests(policies, len(tests), source.issuer_url))
    sys.exit(code)


def _source(directory: Path, config: Path | None, url: str | None, *, development: bool) -> PolicySource:
    """Return the folder with the options of its rules: of the settings if they are given, else the defaults."""
    if config is None:
        return PolicySource(directory, url or NOBODY, development)
    from issuer.service.settings.reader import read_settings

    settings = read_settings(config, guarded=False)
    return PolicySource(directory, url or settings.url, development or settings.development, settings.ceilings)


def _files(directory: Path) -> list[str]:
    return [str(path) for path in sorted(directory.glob("*.yaml"))]


def _digests(policies: PolicySet, tests: int, url: str) -> str:
    """Return the counts, and the digests if the URL of the issuer is known."""
    counts = f"{counted(len(policies.policies), 'integration')}, {counted(len(policies.providers), 'provider')}"
    good = f"good: {counts}, {counted(tests, 'test')} passed"
    if url == NOBODY:
        return f"{good}\nFor the digests, give --url, the issuer's URL. It is the default audience of providers."
    digests = {
        (f"{registration.policy.integration} ({registration.provider.id})", registration.digest)
        for bucket in policies.registrations.values()
        for registration in bucket
    }
    return f"{good}\n{render_table([*sorted(digests), ('the whole directory', policies.digest)])}"


@policy.command()
@_directory_options
@_format
@click.option("--integration", metavar="ID", help="Only the tests of this integration.")
@verbose_option
def test(
    directory: Path, config: Path | None, url: str | None, development: bool, form: str, integration: str | None,
    verbose: bool,
) -> None:  # fmt: skip
    """Run the tests in the policies of DIR ("policies") with the evaluator that decides requests."""
    source = _source(directory, config, url, development=development)
    outcomes, findings = try_policies(
        directory, source.issuer_url, int(time.time()), development=source.development, ceilings=source.ceilings
    )
    errors = [finding for finding in findings if finding.severity == "error"]
    if integration is not None:
        own = str(directory / f"{integration}.yaml")
        if own not in _files(directory):
            raise click.BadParameter(f"there is no {integration}.yaml in {directory}", param_hint="--integration")
        outcomes = tuple(outcome for outcome in outcomes if outcome.integration == integration)
        errors = [finding for finding in errors if finding.place.file == own or not _is_test(finding)]
    broken = [finding for finding in errors if not _is_test(finding)]
    if form == "human":
        text = _render_tests(outcomes, broken, verbose=verbose)
    elif form == "json":
        text = _render_tests_as_json(outcomes, broken)
    elif form == "junit":
        text = _render_tests_as_junit(outcomes, broken)
    else:
        text = render(errors, _files(directory), "issuer policy test", form)
    if text:
        say(text)
    sys.exit(exit_for_findings(errors))


def _is_test(finding: Finding) -> bool:
    return finding.code is Code.POLICY_TEST_FAILED


def _render_tests(outcomes: Sequence[PolicyTestOutcome], broken: Sequence[Finding], *, verbose: bool) -> str:
    failed = sum(not outcome.passed for outcome in outcomes)
    lines = [line for outcome in outcomes for line in _describe_test(outcome, verbose=verbose)]
    lines += [render(broken, [], "", "human")] if broken else []
    return "\n".join([*lines, f"{counted(len(outcomes), 'test')}, {failed} failed"])


def _describe_test(outcome: PolicyTestOutcome, *, verbose: bool) -> list[str]:
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


def _render_decisive(outcome: PolicyTestOutcome, *, verbose: bool) -> str:
    """Show the failed checks; or all checks with `verbose`, or if the test expected a refusal and got a grant."""
    failed = [check for check in outcome.checks if not check.passed]
    if failed and not verbose:
        return render_checks(disclose_all(failed))
    return render_checks(disclose_all(outcome.checks), verbose=True)


def _render_tests_as_json(outcomes: Sequence[PolicyTestOutcome], broken: Sequence[Finding]) -> str:
    tests = [_test_as_json(outcome) for outcome in outcomes]
    return render_json({"version": 1, "tool": "issuer policy test", "tests": tests, "errors": list(map(str, broken))})


def _test_as_json(outcome: PolicyTestOutcome) -> dict[str, Any]:
    members = ("integration", "name", "passed", "expected", "actual", "detail", "signals", "difference")
    place = {"file": outcome.place.file, "line": outcome.place.line, "column": outcome.place.column}
    return {**{name: getattr(outcome, name) for name in members}, **place, "checks": disclose_all(outcome.checks)}


def _render_tests_as_junit(outcomes: Sequence[PolicyTestOutcome], broken: Sequence[Finding]) -> str:
    cases = [
        Case(outcome.integration, outcome.name, "" if outcome.passed else f"{outcome.place}: {_verdict(outcome)}")
        for outcome in outcomes
    ]
    cases += [Case("policies", finding.place.file, render([finding], [], "", "human")) for finding in broken]
    return junit("issuer policy test", cases)


def _verdict(outcome: PolicyTestOutcome) -> str:
    return f"{outcome.verdict}: {outcome.detail}" if outcome.detail else outcome.verdict


@policy.command()
@click.argument("name", type=click.Choice(sorted(schemas())), default="policy", metavar="[policy|providers|stops]")
def schema(name: str) -> None:
    """Print the JSON Schema of policy files, of providers.yaml or of stops.yaml, for editors.

    The schema only helps while you write. `issuer policy check` decides.
    """
    say(schemas()[name].decode(), end="")


@policy.command()
@click.argument("files", nargs=-1, required=True, type=A_FILE, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change no file; exit code 1 if a file would change.")
def fmt(files: tuple[Path, ...], only_check: bool) -> None:
    """Format files canonically: indentation, quotes, blank lines, end of file. Values, order and comments stay."""
    formatted = [(path, _reformat(path)) for path in files]
    for path, after in formatted:
        if after is not None and not only_check:
            replace_file(path, after, mode=None, durable=True, follow=False)
        done = "unchanged" if after is None else "would change" if only_check else "formatted"
        say(f"{printable(str(path))}: {done}")
    sys.exit(Exit.NO if only_check and any(after is not None for _, after in formatted) else Exit.GOOD)


def _reformat(path: Path) -> bytes | None:
    """Return a file's canonical form, or None if it is canonical already."""
    before = read_file(path, MAX_BYTES)
    after = format_file(before, str(path))
    return None if after == before else after


_MAX_TOKEN = 64 * 1024
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_ID = 64
# The names of files beside the policies that are not policies.
_TAKEN = frozenset({Path(PROVIDERS_FILE).stem, Path(STOPS_FILE).stem})
_REPO = re.compile(r"[A-Za-z0-9._*-]+/[A-Za-z0-9._*-]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+")
PLACEHOLDER = "OWNER/BENCHMARK"
# The claim that has the repository's name, and a command that prints its ids.
_LOOK_UP = {
    "github-actions": ("repository", "gh api repos/{} --jq '.id, .owner.id'"),
    "gitlab-ci": ("project_path", "glab api projects/{} | jq '.id, .namespace.id'"),
}


def _id(_: click.Context, __: click.Parameter, text: str) -> str:
    if not _ID.fullmatch(text):
        raise click.BadParameter("give lowercase words joined by `-`")
    if len(text) > _MAX_ID or text in _TAKEN:
        raise click.BadParameter(f"give at most {_MAX_ID} characters, and not {' or '.join(sorted(_TAKEN))}")
    return text


def _is_one_line(text: str) -> bool:
    return 0 < len(text) <= 64 and text.isascii() and text.isprintable()


_one_line = demand(_is_one_line, "give 1 to 64 printable ASCII characters")


@policy.command()
@click.argument("name", callback=_id)
@click.option(
    "--from-token", "token_file", required=True, type=FILE_OR_INPUT, metavar="FILE",
    help='An identity token of the job, or its claims as JSON; "-" reads standard input. Never printed.',
)  # fmt: skip
@click.option("--dir", "directory", default="policies", type=A_FILE, show_default=True,
              help="The folder of the policies.")  # fmt: skip
@click.option("--framework", callback=_one_line, metavar="NAME", help="The framework's name in runs. Default: NAME.")
@click.option("--benchmark", "benchmarks", multiple=True, default=(PLACEHOLDER,), metavar="OWNER/NAME",
              callback=demand(_REPO.fullmatch, "give OWNER/NAME, in which `*` matches any text"),
              help="A benchmark that it may have signed. May be given again.")  # fmt: skip
@click.option("--contact", callback=_one_line, default="evals@example.org", show_default=True, metavar="ADDRESS",
              help="The address of the integration's owner.")  # fmt: skip
def new(
    name: str, token_file: Path, directory: Path, framework: str | None, benchmarks: tuple[str, ...], contact: str
) -> None:
    """Write the policy NAME, which grants requests of the job that has this token, with tests that pass.

    It pins the job's immutable ids and requires its branch and workflow. The command does not verify the token: review
    the policy before you use it.
    """
    path, table_path = directory / f"{name}.yaml", directory / PROVIDERS_FILE
    if path.exists():
        raise InputError(Code.FILE_UNREADABLE, "this policy exists already: give another NAME", Place(str(path)))
    claims = _read_claims(token_file)
    table = (
        load(read_file(table_path, MAX_BYTES), str(table_path)).convert(ProvidersFile) if table_path.exists() else None
    )
    with reading(str(token_file)):
        provider = find_provider(claims, table)
        made = make_policy(Choices(name, contact, framework or name, benchmarks), provider, claims)
    written = [] if table is not None else [(table_path, _table(provider))]
    passed = _write([*written, (path, made.text)], directory, name)
    say(_about(path, provider, made, benchmarks, passed))


def _read_claims(file: Path) -> dict[str, JSON]:
    raw = read_argument(file, _MAX_TOKEN).strip()
    with reading(str(file)):
        if not raw.startswith(b"{"):
            raw = jose.parse_compact(raw.decode("ascii", "replace")).unverified_payload
        claims = loads(raw, max_bytes=_MAX_TOKEN, max_depth=8)
        if not isinstance(claims, dict):
            raise FormatError(Code.POLICY_NEW, "its claims are not a JSON object")
        return claims


def _table(provider: TokenProvider) -> str:
    return f"version: 1\nproviders:\n  {provider.id}: {{profile: {quoted(provider.profile)}}}\n"


def _write(texts: list[tuple[Path, str]], directory: Path, name: str) -> int:
    """Write the files and return how many tests of the policy passed. Raises InputError and removes them on failure."""
    make_folder(directory, mode=0o755, follow=False)
    with ExitStack() as failed:
        for path, text in texts:
            create(path, text.encode(), mode=0o644, durable=False, follow=False)
            failed.callback(path.unlink)
        passed = _judge(texts, directory, name)
        failed.pop_all()
    return passed


def _judge(texts: list[tuple[Path, str]], directory: Path, name: str) -> int:
    tests: list[PolicyTestOutcome] = []
    _, findings = check_policies(directory, NOBODY, int(time.time()), development=True, tell=tests.extend)
    ours = {str(directory / PROVIDERS_FILE), *(str(path) for path, _ in texts)}
    wrong = [each for each in findings if each.severity == "error" and each.place.file in ours]
    if wrong:
        raise InputError(wrong[0].code, wrong[0].detail, wrong[0].place, wrong[0].pointer)
    for finding in findings:
        say(format_finding(finding), err=True)
    return sum(test.integration == name for test in tests)


def _about(path: Path, provider: TokenProvider, made: NewPolicy, benchmarks: tuple[str, ...], passed: int) -> str:
    """Describe the new policy, the origin of its ids, and the next steps."""
    names = {id: made.names[name] for name, id in provider.rules.names.items() if name in made.names}
    pins = [(f"  {pin}", value, names.get(pin, "")) for pin, value in made.pins.items()]
    known, command = _LOOK_UP.get(provider.profile, ("", ""))
    lines = [
        printable(f"{path}: written, and its {passed} tests pass"),
        "pinned ids from the token, which stay the same when a name gets another owner:",
        render_table(pins),
    ]
    if command:
        lines.append(f"to look them up: {command.format(_argument(provider.profile, made.names.get(known, '')))}")
    if PLACEHOLDER in benchmarks:
        lines.append(f"replace grants.benchmarks, which is {PLACEHOLDER} now")
    return "\n".join([*lines, f"next: issuer policy check {shlex.quote(printable(str(path.parent)))}"])


def _argument(profile: str, name: str) -> str:
    """Return a name for a command that users paste, or a placeholder if a shell could interpret the name."""
    plain = name if _PLAIN_NAME.fullmatch(name) else "OWNER/NAME"
    return plain.replace("/", "%2F") if profile == "gitlab-ci" else plain
