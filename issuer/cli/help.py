"""`issuer help` and `issuer completion`: the help of a command, pages of what several commands share, and examples."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import ShellComplete, get_completion_class
from msgspec import Struct

from issuer.cli.terminal import say

EXIT_CODES = """Exit codes

  0  good: verified, granted, done; at least one token was really checked
  1  the answer is no: not verified, a test failed, a file would change
  2  the command line is wrong: an option, an argument
  3  a file is missing, or is not what it should be
  4  nobody could decide: a server did not answer; run the command again later
  5  the issuer refused, or would refuse
  6  this machine or its settings: a key, a folder, a setting, no credential

They are the same in every output format. Where several apply to one run, the
first of 2, 6, 3, 1, 5, 4, 0 counts.
"""

CREDENTIALS = """Credentials: how `token request`, `submit`, `check` and `doctor` show who asks

The first of these that is there is used:

  --id-token-file FILE       an identity token of a CI job
  --access-token-file FILE   a personal access token, or one of an OAuth server
  --oauth URL --client-id ID --client-secret-file FILE
                             an access token of an OAuth server, fetched now
  $ISSUER_ID_TOKEN           as --id-token-file
  $ISSUER_ACCESS_TOKEN       as --access-token-file
  the CI that this runs in   GitHub Actions, GitLab, Buildkite, CircleCI, Google

GitHub Actions: in the workflow, at the job or at the top:

  permissions:
    id-token: write
    contents: read

A pull request from a fork gets no identity token, whatever its workflow says:
run the job on a push to the repository itself, on a schedule or by hand.

GitLab: in the job. The variable is named after the issuer's URL: in capitals,
with `_` for all but letters and digits, and `_ID_TOKEN` behind it. For
https://issuer.example:

  id_tokens:
    HTTPS___ISSUER_EXAMPLE_ID_TOKEN:
      aud: https://issuer.example

Or name it ISSUER_ID_TOKEN, which is read everywhere.
"""

ENVIRONMENT = """Environment variables

Of several commands:

  ISSUER_URL                   the issuer's URL: --issuer, --url
  NO_COLOR                     no colours, whatever its value
  COLUMNS                      how wide text is laid out, where no terminal says

Commands that ask an issuer for tokens (see `issuer help credentials`):

  ISSUER_ID_TOKEN              an identity token
  ISSUER_ACCESS_TOKEN          an access token, personal or of an OAuth server
  ISSUER_CLIENT_SECRET         the secret of an OAuth client

`issuer submit` and `check`:

  HF_TOKEN                     the Hub's token, which opens pull requests
  HF_ENDPOINT                  the Hub's URL, if not https://huggingface.co

`issuer results build`, `submit` and `check` (what a run does not say):

{runs}

  ISSUER_VERIEVALS_KEY         the runner's public key: --verievals-key
  ISSUER_VERIEVALS_ROOT        a root of its ledger: --verievals-root

`issuer verify`:

  XDG_STATE_HOME               where revocation lists are remembered: --state
  XDG_CACHE_HOME               where fetched key sets are kept: --cache

The service, and the commands beside it: each setting of deploy/README.md. A
variable wins over the file of --config. They refuse an ISSUER_ variable that
is not on this page.

{settings}
"""


def environment() -> str:
    """Return the page of variables, those of settings and runs by their own tables."""
    from issuer.adapters import Supplied

    runs = [f"  ISSUER_RUN_{name.upper()}" for name in Supplied.__struct_fields__ if name not in {"metrics", "scale"}]
    try:
        from issuer.service.settings.model import VARIABLES

        settings = [f"  {variable}" for variable in VARIABLES]
    except ModuleNotFoundError:  # without the server's packages there is no service
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
    """Show the help of a command, or a page: credentials, environment or exit-codes."""
    if len(words) == 1 and words[0] in TOPICS:
        say(TOPICS[words[0]](), end="")
        return
    root = context.find_root()
    inner, command = root, root.command
    for word in words:
        found = command.get_command(inner, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"there is no command or page `{' '.join(words)}`; pages are {', '.join(TOPICS)}")
        inner, command = click.Context(found, inner, word), found
    say(command.get_help(inner))


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that has the Tab key complete issuer's commands and options, for bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 (click has these three)
    script = kind(context.find_root().command, {}, "issuer", "_ISSUER_COMPLETE")
    say(ShellComplete.source(script), end="")  # Bash's own also starts a bash, to warn of one before 4.4


# -- examples ----------------------------------------------------------------------------------------------------------

# What the help of each command ends with: an example or two that can be typed, and the page that tells more.


class Shown(Struct, frozen=True):
    """The examples of one command, without `issuer`, and where its page lies in the source."""

    page: str
    examples: tuple[str, ...]


_POLICIES, _KEYS, _OPERATIONS = "policies/README.md", "keys/README.md", "deploy/README.md"
_CLIENT, _READER, _ADAPTERS = "issuer/client/README.md", "issuer/relying/README.md", "issuer/adapters/README.md"
_RESULTS, _LOG, _BOARD = "issuer/results/README.md", "issuer/relying/LOG.md", "issuer/relying/LEADERBOARD.md"
_PAGE = "issuer/page/README.md"
_ROOT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FROM = "2026-11-21T09:00:00Z"

SHOWN = {
    "abuse": Shown(_OPERATIONS, ("abuse list",)),
    "abuse across": Shown(_OPERATIONS, ("abuse across audit.jsonl --commits 20",)),
    "abuse list": Shown(_OPERATIONS, ("abuse list", "abuse list --json")),
    "abuse quarantine": Shown(_OPERATIONS, ("abuse quarantine inspect-ai main --for 12h --reason 'copied'",)),
    "abuse release": Shown(_OPERATIONS, ("abuse release inspect-ai main --for 7d --reason 'a sweep'",)),
    "abuse show": Shown(_OPERATIONS, ("abuse show inspect-ai main",)),
    "audit": Shown(_OPERATIONS, ("audit verify audit.jsonl",)),
    "audit find": Shown(_OPERATIONS, ("audit find audit.jsonl --integration inspect-ai --verdict refused",)),
    "audit tail": Shown(_OPERATIONS, ("audit tail audit.jsonl --lines 20",)),
    "audit verify": Shown(_OPERATIONS, ("audit verify audit.jsonl --heads heads.jsonl",)),
    "benchmark": Shown(_RESULTS, ("benchmark lint eval.yaml",)),
    "benchmark init": Shown(
        _RESULTS,
        ("benchmark init --name GSM8K --description 'School mathematics.' --higher accuracy=Accuracy --task gsm8k",),
    ),
    "benchmark lint": Shown(_RESULTS, ("benchmark lint eval.yaml",)),
    "check": Shown(
        _CLIENT,
        ("check --issuer https://issuer.example --framework-name inspect-ai --benchmark-repo openai/gsm8k",),
    ),
    "completion": Shown("README.md", ("completion bash > ~/.local/share/bash-completion/completions/issuer",)),
    "config": Shown(_OPERATIONS, ("config check --config settings.yaml",)),
    "config check": Shown(_OPERATIONS, ("config check --config settings.yaml",)),
    "config schema": Shown(_OPERATIONS, ("config schema > settings.schema.json",)),
    "config show": Shown(_OPERATIONS, ("config show --origin --config settings.yaml",)),
    "demo": Shown("README.md", ("demo", "demo --keep open-model")),
    "dev": Shown(_POLICIES, ("dev", "dev --policies policies --port 8080")),
    "dev env": Shown(_POLICIES, ("dev env --provider gitlab-ci",)),
    "dev token": Shown(_POLICIES, ("dev token --branch experiment", "dev token --claim ref=refs/heads/other")),
    "doctor": Shown(_CLIENT, ("doctor --issuer https://issuer.example", "doctor --server --config settings.yaml")),
    "help": Shown("README.md", ("help exit-codes", "help environment", "help credentials")),
    "init": Shown(
        _OPERATIONS,
        (
            "init issuer --url https://issuer.example",
            "init issuer --url https://issuer.example --store unix:///run/valkey.sock",
        ),
    ),
    "keys": Shown(_KEYS, ("keys generate", "keys list")),
    "keys generate": Shown(_KEYS, ("keys generate --dir keys --data data",)),
    "keys list": Shown(_KEYS, ("keys list --json",)),
    "keys public": Shown(_KEYS, ("keys public > keys.json",)),
    "keys revoke": Shown(_KEYS, (f"keys revoke KID --from {_FROM} --reason 'a laptop was stolen'",)),
    "keys rotate": Shown(_KEYS, ("keys rotate --plan", "keys rotate")),
    "leaderboard": Shown(_BOARD, ("leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks",)),
    "leaderboard build": Shown(
        _BOARD,
        (
            "leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks",
            "leaderboard build models -o site --trust trust.yaml --metric accuracy=higher --best",
        ),
    ),
    "log": Shown(_LOG, ("log verify https://issuer.example/log --policy policy.txt",)),
    "log accept": Shown(_OPERATIONS, (f"log accept --size 42 --reason 'the newest backup' --root {_ROOT}",)),
    "log export": Shown(_LOG, ("log export copy --from https://issuer.example/log --policy policy.txt",)),
    "log init": Shown(_OPERATIONS, ("log init --config settings.yaml",)),
    "log monitor": Shown(_LOG, ("log monitor https://issuer.example/log --policy policy.txt --state seen.json",)),
    "log proof": Shown(
        _LOG, ("log proof https://issuer.example/log --policy policy.txt --for .eval_results/gsm8k.yaml#0",)
    ),
    "log restore": Shown(_OPERATIONS, ("log restore copy --config settings.yaml",)),
    "log verify": Shown(_LOG, ("log verify https://issuer.example/log --policy policy.txt",)),
    "page": Shown(_PAGE, ("page export site",)),
    "page export": Shown(_PAGE, ("page export site",)),
    "pat": Shown(_OPERATIONS, ("pat list",)),
    "pat create": Shown(_OPERATIONS, ("pat create --account nightly --expires 30",)),
    "pat list": Shown(_OPERATIONS, ("pat list --json",)),
    "pat revoke": Shown(_OPERATIONS, ("pat revoke ID",)),
    "policy": Shown(_POLICIES, ("policy check policies", "policy test policies")),
    "policy check": Shown(_POLICIES, ("policy check policies --url https://issuer.example",)),
    "policy explain": Shown(
        _POLICIES,
        (
            "policy explain policies --identity-claims-file ci.json --claims run.json",
            "policy explain policies --identity-token-file token --url https://issuer.example",
        ),
    ),
    "policy fmt": Shown(_POLICIES, ("policy fmt policies/*.yaml",)),
    "policy new": Shown(_POLICIES, ("policy new inspect-ai --from-token token",)),
    "policy plan": Shown(_POLICIES, ("policy plan policies new-policies --audit audit.jsonl",)),
    "policy schema": Shown(_POLICIES, ("policy schema providers > providers.schema.json",)),
    "policy test": Shown(_POLICIES, ("policy test policies --integration inspect-ai",)),
    "reproduce": Shown(_READER, ("reproduce compare first.json second.json",)),
    "reproduce compare": Shown(_READER, ("reproduce compare first.json second.json --tolerance accuracy=0.5",)),
    "results": Shown(_RESULTS, ("results lint .eval_results",)),
    "results build": Shown(_ADAPTERS, ("results build logs --out .eval_results --model-repo acme/open-model",)),
    "results diff": Shown(_RESULTS, ("results diff old.yaml new.yaml",)),
    "results digest": Shown(_RESULTS, ("results digest .eval_results/gsm8k.yaml --repo acme/open-model",)),
    "results export": Shown(
        _RESULTS,
        (
            "results export .eval_results/gsm8k.yaml --to eee --repo acme/open-model --benchmark eval.yaml "
            "--out records --source-type evaluation_run --organization Acme --evaluator first_party",
        ),
    ),
    "results fmt": Shown(_RESULTS, ("results fmt --check .eval_results",)),
    "results lint": Shown(_RESULTS, ("results lint .eval_results --format github",)),
    "results schema": Shown(_RESULTS, ("results schema > run.schema.json",)),
    "resume": Shown(_OPERATIONS, ("resume everything", "resume integration:inspect-ai")),
    "revocations": Shown(_OPERATIONS, ("revocations show",)),
    "revocations init": Shown(_OPERATIONS, ("revocations init --url https://issuer.example",)),
    "revocations renew": Shown(_OPERATIONS, ("revocations renew --days 2",)),
    "revocations show": Shown(_OPERATIONS, ("revocations show --json",)),
    "revoke": Shown(
        _OPERATIONS,
        (
            "revoke --jti 412EiTbPsKYxIqZyMRZSIA --reason 'the run was wrong'",
            f"revoke --sub inspect-ai --from {_FROM} --reason 'its runner was taken over'",
        ),
    ),
    "serve": Shown(_OPERATIONS, ("serve --config settings.yaml --workers 4",)),
    "stop": Shown(_OPERATIONS, ("stop integration:inspect-ai --reason 'it signs nonsense'",)),
    "stops": Shown(_OPERATIONS, ("stops",)),
    "submit": Shown(
        _CLIENT,
        (
            "submit logs/run.json --issuer https://issuer.example --model-repo acme/open-model --dry-run",
            "submit logs --issuer https://issuer.example --map runs.yaml",
        ),
    ),
    "token": Shown(_CLIENT, ("token request --issuer https://issuer.example --claims run.json",)),
    "token inspect": Shown(_CLIENT, ("token inspect .eval_results/gsm8k.yaml", "token inspect -")),
    "token request": Shown(
        _CLIENT,
        (
            "token request --issuer https://issuer.example --claims run.json --out .eval_results/gsm8k.yaml",
            "token request --issuer https://issuer.example --claims run.json --dry-run",
        ),
    ),
    "verify": Shown(
        _READER,
        (
            "verify .eval_results/gsm8k.yaml --repo acme/open-model --trust trust.yaml",
            "verify models --trust trust.yaml --json",
            "verify models --trust trust.yaml --to results.parquet",
        ),
    ),
    "witness": Shown(_LOG, ("witness serve --dir witness --logs logs.txt",)),
    "witness init": Shown(_LOG, ("witness init --dir witness --name witness.example/1",)),
    "witness serve": Shown(_LOG, ("witness serve --dir witness --logs logs.txt",)),
}


HELP_NAMES = ["-h", "--help"]
_WIDEST = 80


def _fit(line: str) -> str:
    """Break a command that is too wide for a terminal before an option, as a shell takes it."""
    cut = line.rfind(" --", 8, _WIDEST - 2)
    if len(line) <= _WIDEST or cut < 0:
        return line
    return f"{line[:cut]} \\\n{_fit('     ' + line[cut:])}"


def with_examples(command: click.Command, path: str) -> click.Command:
    """End the help of a command, and of those in it, with its examples; `path` is what is typed after `issuer`."""
    command.context_settings.setdefault("help_option_names", HELP_NAMES)
    if shown := SHOWN.get(path):
        lines = "\n".join(_fit(f"  issuer {example}") for example in shown.examples)
        command.epilog = f"\b\nExamples:\n{lines}\n\nLearn more: {shown.page}"
    for name, inner in getattr(command, "commands", {}).items():
        with_examples(inner, f"{path} {name}")
    return command
