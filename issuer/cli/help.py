"""`issuer help`: the help of a command, or of what several commands have in common."""

from __future__ import annotations

from collections.abc import Callable

import click

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
        from issuer.service.settings import VARIABLES

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
