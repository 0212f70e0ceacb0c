"""`issuer policy new`: a first policy from the identity token of one job, and where its ids come from."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import ExitStack
from pathlib import Path

import click

from issuer.cli.findings import format_finding
from issuer.cli.policy_explain import NOBODY
from issuer.cli.terminal import printable, render_table, say
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, reading
from issuer.files import create, make_folder, read, read_argument
from issuer.formats import jose
from issuer.formats.strict_json import JSON, loads
from issuer.formats.strict_yaml import MAX_BYTES, load, quoted
from issuer.identity.provider import ProvidersFile
from issuer.policy.authoring.load import PROVIDERS_FILE, check_policies
from issuer.policy.authoring.new import NewPolicy, Whose, Wish, make_policy, whose
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.authoring.suite import Outcome

_MAX_TOKEN = 64 * 1024
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_ID = 64
# The names of files beside the policies, which are none.
_TAKEN = frozenset({Path(PROVIDERS_FILE).stem, Path(STOPS_FILE).stem})
_REPO = re.compile(r"[A-Za-z0-9._*-]+/[A-Za-z0-9._*-]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)+")
PLACEHOLDER = "OWNER/BENCHMARK"
# How the ids behind a name are looked up again, by the name.
_LOOK_UP = {
    "github-actions": ("repository", "gh api repos/{} --jq '.id, .owner.id'"),
    "gitlab-ci": ("project_path", "glab api projects/{} | jq '.id, .namespace.id'"),
}


def _id(_: click.Context, __: click.Parameter, text: str) -> str:
    if not _ID.fullmatch(text):
        raise click.BadParameter("is lowercase words joined by `-`")
    if len(text) > _MAX_ID or text in _TAKEN:
        raise click.BadParameter(f"has at most {_MAX_ID} characters, and is not {' or '.join(sorted(_TAKEN))}")
    return text


def _one_line(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (0 < len(text) <= 64 and text.isascii() and text.isprintable()):
        raise click.BadParameter("is 1 to 64 printable ASCII characters")
    return text


def _globs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if not all(map(_REPO.fullmatch, given)):
        raise click.BadParameter("is OWNER/NAME, in which `*` is any text")
    return given or (PLACEHOLDER,)


@click.command()
@click.argument("name", callback=_id)
@click.option(
    "--from-token", "token_file", required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE",
    help='An identity token of the job, or its claims as JSON; "-" reads standard input. It is never printed.',
)  # fmt: skip
@click.option("--dir", "directory", default="policies", type=click.Path(path_type=Path), show_default=True,
              help="The folder of the policies.")  # fmt: skip
@click.option("--framework", callback=_one_line, metavar="NAME", help="What its runs are called; NAME of the policy.")
@click.option("--benchmark", "benchmarks", multiple=True, callback=_globs, metavar="OWNER/NAME",
              help="A benchmark that it may have signed. May be given again.")  # fmt: skip
@click.option("--contact", callback=_one_line, default="evals@example.org", show_default=True, metavar="ADDRESS",
              help="Whom to write to.")  # fmt: skip
def new(
    name: str, token_file: Path, directory: Path, framework: str | None, benchmarks: tuple[str, ...], contact: str
) -> None:
    """Write the policy NAME under which the job that has this token may ask, with tests that pass.

    It pins the job's immutable ids and requires its branch and workflow. The token is not checked: read what was
    written before anybody counts on it.
    """
    path, table_path = directory / f"{name}.yaml", directory / PROVIDERS_FILE
    if path.exists():
        raise InputError(Code.FILE_UNREADABLE, "there is such a policy already: give another NAME", Place(str(path)))
    claims = _read_claims(token_file)
    table = load(read(table_path, MAX_BYTES), str(table_path)).convert(ProvidersFile) if table_path.exists() else None
    with reading(str(token_file)):
        provider = whose(claims, table)
        made = make_policy(Wish(name, contact, framework or name, benchmarks), provider, claims)
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
            raise FormatError(Code.POLICY_NEW, "its claims are no JSON object")
        return claims


def _table(provider: Whose) -> str:
    return f"version: 1\nproviders:\n  {provider.id}: {{profile: {quoted(provider.profile)}}}\n"


def _write(texts: list[tuple[Path, str]], directory: Path, name: str) -> int:
    """Write the files, and return how many tests of the policy passed; take them away again where they are not good, or
    could not be judged. Raises InputError."""
    make_folder(directory, mode=0o755, follow=False)
    with ExitStack() as failed:
        for path, text in texts:
            create(path, text.encode(), mode=0o644, durable=False, follow=False)
            failed.callback(path.unlink)
        passed = _judge(texts, directory, name)
        failed.pop_all()
    return passed


def _judge(texts: list[tuple[Path, str]], directory: Path, name: str) -> int:
    tests: list[Outcome] = []
    _, findings = check_policies(directory, NOBODY, int(time.time()), development=True, tell=tests.extend)
    ours = {str(directory / PROVIDERS_FILE), *(str(path) for path, _ in texts)}
    wrong = [each for each in findings if each.severity == "error" and each.place.file in ours]
    if wrong:
        raise InputError(wrong[0].code, wrong[0].detail, wrong[0].place, wrong[0].pointer)
    for finding in findings:
        say(format_finding(finding), err=True)
    return sum(test.integration == name for test in tests)


def _about(path: Path, provider: Whose, made: NewPolicy, benchmarks: tuple[str, ...], passed: int) -> str:
    """Say what was written, where its ids come from, and what is left to do."""
    of = {id: made.names[name] for name, id in provider.rules.names.items() if name in made.names}
    pins = [(f"  {pin}", value, of.get(pin, "")) for pin, value in made.pins.items()]
    known, command = _LOOK_UP.get(provider.profile, ("", ""))
    lines = [
        printable(f"{path}: written, and its {passed} tests pass"),
        "pinned, as the token says it; these ids stay when a name changes hands:",
        render_table(pins),
    ]
    if command:
        lines.append(f"to look them up: {command.format(_argument(provider.profile, made.names.get(known, '')))}")
    if PLACEHOLDER in benchmarks:
        lines.append(f"yours to say: grants.benchmarks, which is {PLACEHOLDER} now")
    return "\n".join([*lines, f"next: issuer policy check {shlex.quote(printable(str(path.parent)))}"])


def _argument(profile: str, name: str) -> str:
    """Write a name into a command to paste: only one that no shell takes for more than a name."""
    plain = name if _PLAIN_NAME.fullmatch(name) else "OWNER/NAME"
    return plain.replace("/", "%2F") if profile == "gitlab-ci" else plain
