"""`issuer help` and `issuer completion`, the help pages for several commands, and the examples of each command."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import ShellComplete, get_completion_class
from msgspec import Struct

from issuer.cli.terminal import say

EXIT_CODES = """Exit codes

  0  good: verified, granted or done; at least one token was checked
  1  the answer is no: not verified, a test failed, a file would change
  2  the command line is wrong: an option or an argument
  3  a file is missing or malformed
  4  undecided, for example because a server did not answer: try again later
  5  the issuer refused, or would refuse
  6  this machine or its settings: a key, a folder, a setting, no credential

The exit codes are the same in every output format. If several codes apply, the
command ends with the first of 2, 6, 3, 1, 5, 4, 0.
"""

CREDENTIALS = """Credentials of `token request`, `submit`, `check` and `doctor`

These commands use the first of these credentials that they find:

  --id-token-file FILE       an identity token of a CI job
  --access-token-file FILE   a personal or OAuth access token
  --oauth URL --client-id ID --client-secret-file FILE
                             an access token, fetched now from an OAuth server
  $ISSUER_ID_TOKEN           an identity token
  $ISSUER_ACCESS_TOKEN       a personal or OAuth access token
  the current CI job         GitHub Actions, GitLab, Buildkite, CircleCI, Google

GitHub Actions: write this into the workflow, for the job or at the top:

  permissions:
    id-token: write
    contents: read

A pull request from a fork gets no identity token, whatever its workflow says.
Run the job on a push to the repository itself, on a schedule or by hand.

GitLab: write this into the job. The variable's name is the issuer's URL in
capitals, with `_` for each character that is not a letter or digit, and then
`_ID_TOKEN`. For https://issuer.example:

  id_tokens:
    HTTPS___ISSUER_EXAMPLE_ID_TOKEN:
      aud: https://issuer.example

Or name it ISSUER_ID_TOKEN, which works in every CI.
"""

ENVIRONMENT = """Environment variables

Several commands:

  ISSUER_URL                   the issuer's URL, like --issuer or --url
  NO_COLOR                     any value turns colours off
  COLUMNS                      the line width

Commands that send requests to an issuer (see `issuer help credentials`):

  ISSUER_ID_TOKEN              an identity token
  ISSUER_ACCESS_TOKEN          an access token, personal or of an OAuth server
  ISSUER_CLIENT_SECRET         the secret of an OAuth client

`issuer submit` and `check`:

  HF_TOKEN                     the Hub's token, which opens pull requests
  HF_ENDPOINT                  the Hub's URL, if not https://huggingface.co

`issuer results build`, `submit` and `check`, for values that a run lacks:

{runs}

  ISSUER_VERIEVALS_KEY         the runner's public key: --verievals-key
  ISSUER_VERIEVALS_ROOT        a root of its ledger: --verievals-root

`issuer verify`:

  XDG_STATE_HOME               the folder of recorded revocation lists (--state)
  XDG_CACHE_HOME               the folder of fetched key sets (--cache)

The service and the operator's commands: the settings in deploy/README.md. A
variable overrides the file of --config. These commands refuse an ISSUER_
variable that is not on this page.

{settings}
"""


def environment() -> str:
    """Return the page of environment variables. The tables of settings and runs supply their names."""
    from issuer.adapters import Supplied

    runs = [f"  ISSUER_RUN_{name.upper()}" for name in Supplied.__struct_fields__ if name not in {"metrics", "scale"}]
    try:
        from issuer.service.settings.model import VARIABLES

        settings = [f"  {variable}" for variable in VARIABLES]
    except ModuleNotFoundError:  # the server's packages are not installed
        settings = ["  (the service is not installed)"]
    return ENVIRONMENT.format(runs="\n".join(runs), settings="\n".join(settings))


TOPICS: dict[str, Callable[[], str]] = {
    "credentials": lambda: CREDENTIALS,
    "environment": environment,
    "exit-codes": lambda: EXIT_CODES,
}


@click.command("help", add_help_option=True)
@click.argument("words", nargs=-1, metavar="[COMMAND...|credentials|environment|exit-codes]")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or the page credentials, environment or exit-codes."""
    if len(words) == 1 and words[0] in TOPICS:
        say(TOPICS[words[0]](), end="")
        return
    root = context.find_root()
    inner, command = root, root.command
    for word in words:
        found = command.get_command(inner, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"unknown command or page `{' '.join(words)}`; the pages are {', '.join(TOPICS)}")
        inner, command = click.Context(found, inner, word), found
    say(command.get_help(inner))


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for bash, zsh or fish that completes issuer's commands and options at the Tab key."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 (click has these three)
    script = kind(context.find_root().command, {}, "issuer", "_ISSUER_COMPLETE")
    # click's own source() for bash also starts bash, to warn about versions before 4.4.
    say(ShellComplete.source(script), end="")


class Examples(Struct, frozen=True):
    """The end of a command's help: command lines without `issuer`, and the path of its page in the source."""

    page: str
    lines: tuple[str, ...]


def _show(page: str, *lines: str) -> Examples:
    return Examples(page, lines)


_POLICIES, _KEYS, _OPERATIONS = "policies/README.md", "keys/README.md", "deploy/README.md"
_CLIENT, _READER, _ADAPTERS = "issuer/client/README.md", "issuer/relying/README.md", "issuer/adapters/README.md"
_RESULTS, _LOG, _BOARD = "issuer/results/README.md", "issuer/relying/LOG.md", "issuer/relying/LEADERBOARD.md"
_PAGE = "issuer/page/README.md"
_ROOT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FROM = "2026-11-21T09:00:00Z"

EXAMPLES = {
    "abuse": _show(_OPERATIONS, "abuse list"),
    "abuse across": _show(_OPERATIONS, "abuse across audit.jsonl --commits 20"),
    "abuse list": _show(_OPERATIONS, "abuse list", "abuse list --json"),
    "abuse quarantine": _show(_OPERATIONS, "abuse quarantine inspect-ai main --for 12h --reason 'copied'"),
    "abuse release": _show(_OPERATIONS, "abuse release inspect-ai main --for 7d --reason 'a sweep'"),
    "abuse show": _show(_OPERATIONS, "abuse show inspect-ai main"),
    "audit": _show(_OPERATIONS, "audit verify audit.jsonl"),
    "audit find": _show(_OPERATIONS, "audit find audit.jsonl --integration inspect-ai --verdict refused"),
    "audit tail": _show(_OPERATIONS, "audit tail audit.jsonl --lines 20"),
    "audit verify": _show(_OPERATIONS, "audit verify audit.jsonl --heads heads.jsonl"),
    "benchmark": _show(_RESULTS, "benchmark lint eval.yaml"),
    "benchmark init": _show(
        _RESULTS,
        "benchmark init --name GSM8K --description 'School mathematics.' --higher accuracy=Accuracy --task gsm8k",
    ),
    "benchmark lint": _show(_RESULTS, "benchmark lint eval.yaml"),
    "check": _show(
        _CLIENT, "check --issuer https://issuer.example --framework-name inspect-ai --benchmark-repo openai/gsm8k"
    ),
    "completion": _show("README.md", "completion bash > ~/.local/share/bash-completion/completions/issuer"),
    "config": _show(_OPERATIONS, "config check --config settings.yaml"),
    "config check": _show(_OPERATIONS, "config check --config settings.yaml"),
    "config schema": _show(_OPERATIONS, "config schema > settings.schema.json"),
    "config show": _show(_OPERATIONS, "config show --origin --config settings.yaml"),
    "demo": _show("README.md", "demo", "demo --keep open-model"),
    "dev": _show(_POLICIES, "dev", "dev --policies policies --port 8080"),
    "dev env": _show(_POLICIES, "dev env --provider gitlab-ci"),
    "dev token": _show(_POLICIES, "dev token --branch experiment", "dev token --claim ref=refs/heads/other"),
    "doctor": _show(_CLIENT, "doctor --issuer https://issuer.example", "doctor --server --config settings.yaml"),
    "help": _show("README.md", "help exit-codes", "help environment", "help credentials"),
    "init": _show(
        _OPERATIONS,
        "init issuer --url https://issuer.example",
        "init issuer --url https://issuer.example --store unix:///run/valkey.sock",
    ),
    "keys": _show(_KEYS, "keys generate", "keys list"),
    "keys generate": _show(_KEYS, "keys generate --dir keys --data data"),
    "keys list": _show(_KEYS, "keys list --json"),
    "keys public": _show(_KEYS, "keys public > keys.json"),
    "keys revoke": _show(_KEYS, f"keys revoke KID --from {_FROM} --reason 'a laptop was stolen'"),
    "keys rotate": _show(_KEYS, "keys rotate --plan", "keys rotate"),
    "leaderboard": _show(_BOARD, "leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks"),
    "leaderboard build": _show(
        _BOARD,
        "leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks",
        "leaderboard build models -o site --trust trust.yaml --metric accuracy=higher --best",
    ),
    "log": _show(_LOG, "log verify https://issuer.example/log --policy policy.txt"),
    "log accept": _show(_OPERATIONS, f"log accept --size 42 --reason 'the newest backup' --root {_ROOT}"),
    "log export": _show(_LOG, "log export copy --from https://issuer.example/log --policy policy.txt"),
    "log init": _show(_OPERATIONS, "log init --config settings.yaml"),
    "log monitor": _show(_LOG, "log monitor https://issuer.example/log --policy policy.txt --state seen.json"),
    "log proof": _show(
        _LOG, "log proof https://issuer.example/log --policy policy.txt --for .eval_results/gsm8k.yaml#0"
    ),
    "log restore": _show(_OPERATIONS, "log restore copy --config settings.yaml"),
    "log verify": _show(_LOG, "log verify https://issuer.example/log --policy policy.txt"),
    "page": _show(_PAGE, "page export site"),
    "page export": _show(_PAGE, "page export site"),
    "pat": _show(_OPERATIONS, "pat list"),
    "pat create": _show(_OPERATIONS, "pat create --account nightly --expires 30"),
    "pat list": _show(_OPERATIONS, "pat list --json"),
    "pat revoke": _show(_OPERATIONS, "pat revoke ID"),
    "policy": _show(_POLICIES, "policy check policies", "policy test policies"),
    "policy check": _show(_POLICIES, "policy check policies --url https://issuer.example"),
    "policy explain": _show(
        _POLICIES,
        "policy explain policies --identity-claims-file ci.json --claims run.json",
        "policy explain policies --identity-token-file token --url https://issuer.example",
    ),
    "policy fmt": _show(_POLICIES, "policy fmt policies/*.yaml"),
    "policy new": _show(_POLICIES, "policy new inspect-ai --from-token token"),
    "policy plan": _show(_POLICIES, "policy plan policies new-policies --audit audit.jsonl"),
    "policy schema": _show(_POLICIES, "policy schema providers > providers.schema.json"),
    "policy test": _show(_POLICIES, "policy test policies --integration inspect-ai"),
    "reproduce": _show(_READER, "reproduce compare first.json second.json"),
    "reproduce compare": _show(_READER, "reproduce compare first.json second.json --tolerance accuracy=0.5"),
    "results": _show(_RESULTS, "results lint .eval_results"),
    "results build": _show(_ADAPTERS, "results build logs --out .eval_results --model-repo acme/open-model"),
    "results diff": _show(_RESULTS, "results diff old.yaml new.yaml"),
    "results digest": _show(_RESULTS, "results digest .eval_results/gsm8k.yaml --repo acme/open-model"),
    "results export": _show(
        _RESULTS,
        "results export .eval_results/gsm8k.yaml --to eee --repo acme/open-model --benchmark eval.yaml "
        "--out records --source-type evaluation_run --organization Acme --evaluator first_party",
    ),
    "results fmt": _show(_RESULTS, "results fmt --check .eval_results"),
    "results lint": _show(_RESULTS, "results lint .eval_results --format github"),
    "results schema": _show(_RESULTS, "results schema > run.schema.json"),
    "resume": _show(_OPERATIONS, "resume everything", "resume integration:inspect-ai"),
    "revocations": _show(_OPERATIONS, "revocations show"),
    "revocations init": _show(_OPERATIONS, "revocations init --url https://issuer.example"),
    "revocations renew": _show(_OPERATIONS, "revocations renew --days 2"),
    "revocations show": _show(_OPERATIONS, "revocations show --json"),
    "revoke": _show(
        _OPERATIONS,
        "revoke --jti 412EiTbPsKYxIqZyMRZSIA --reason 'the run was wrong'",
        f"revoke --sub inspect-ai --from {_FROM} --reason 'its runner was taken over'",
    ),
    "serve": _show(_OPERATIONS, "serve --config settings.yaml --workers 4"),
    "stop": _show(_OPERATIONS, "stop integration:inspect-ai --reason 'it signs nonsense'"),
    "stops": _show(_OPERATIONS, "stops"),
    "submit": _show(
        _CLIENT,
        "submit logs/run.json --issuer https://issuer.example --model-repo acme/open-model --dry-run",
        "submit logs --issuer https://issuer.example --map runs.yaml",
    ),
    "token": _show(_CLIENT, "token request --issuer https://issuer.example --claims run.json"),
    "token inspect": _show(_CLIENT, "token inspect .eval_results/gsm8k.yaml", "token inspect -"),
    "token request": _show(
        _CLIENT,
        "token request --issuer https://issuer.example --claims run.json --out .eval_results/gsm8k.yaml",
        "token request --issuer https://issuer.example --claims run.json --dry-run",
    ),
    "verify": _show(
        _READER,
        "verify .eval_results/gsm8k.yaml --repo acme/open-model --trust trust.yaml",
        "verify models --trust trust.yaml --json",
        "verify models --trust trust.yaml --to results.parquet",
    ),
    "witness": _show(_LOG, "witness serve --dir witness --logs logs.txt"),
    "witness init": _show(_LOG, "witness init --dir witness --name witness.example/1"),
    "witness serve": _show(_LOG, "witness serve --dir witness --logs logs.txt"),
}


HELP_NAMES = ["-h", "--help"]
_WIDEST = 80


def _fit(line: str) -> str:
    """Break a command that is too wide for a terminal before an option, with a backslash for the shell."""
    cut = line.rfind(" --", 8, _WIDEST - 2)
    if len(line) <= _WIDEST or cut < 0:
        return line
    return f"{line[:cut]} \\\n{_fit('     ' + line[cut:])}"


def with_examples(command: click.Command, path: str) -> click.Command:
    """Add the examples to the help of a command and of its subcommands. `path` is the command without `issuer`."""
    command.context_settings.setdefault("help_option_names", HELP_NAMES)
    if examples := EXAMPLES.get(path):
        lines = "\n".join(_fit(f"  issuer {line}") for line in examples.lines)
        command.epilog = f"\b\nExamples:\n{lines}\n\nLearn more: {examples.page}"
    for name, inner in getattr(command, "commands", {}).items():
        with_examples(inner, f"{path} {name}")
    return command
