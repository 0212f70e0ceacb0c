"""`issuer log proof`: a proof that a token is in the log, for a file beside it.

Exit codes (contract section 6): 0 a proof that verifies, 1 the log has no such leaf, or its proof does not verify,
3 the file or the policy is missing or malformed, 4 the log cannot be had, or no quorum has cosigned yet.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import click

from issuer import files
from issuer.cli.exits import Exit
from issuer.cli.log_source import describe_head, open_source, policy_option, source_argument
from issuer.cli.terminal import say
from issuer.codes import Code
from issuer.errors import FormatError, InputError, Place, Refused
from issuer.formats import strict_yaml
from issuer.relying.log_checkpoint import read_witness_policy
from issuer.relying.log_proof import Sought, find_proof, sought_of
from issuer.results.entry import read_entries
from issuer.verify.check_log import sidecar_name

_TOKEN = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"0|[1-9][0-9]{0,3}")


@click.command()
@source_argument
@policy_option
@click.option("--for", "entry", metavar="FILE#ENTRY", help="The token of this entry (from 0) of a result file.")
@click.option("--iat", type=click.IntRange(0, 10**11), metavar="N", help="With --token: the token's iat.")
@click.option("--token", metavar="HEX", help="The token's digest, as in its leaf: 64 hex digits.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where to write it. With --for, the default is beside the file.")  # fmt: skip
def proof(
    source: str, policy_file: Path, entry: str | None, iat: int | None, token: str | None, out: Path | None
) -> None:
    """Get a token's inclusion proof from the log at SOURCE, a URL or a folder, verify it, and write it.

    It is under the first checkpoint over the leaf that the witnesses cosigned, which shows from when on the token was
    there; out of a folder, under the one checkpoint that it has.
    """
    sought, beside = _sought(entry, iat, token)
    target = out or beside
    if target is not None:
        files.demand_replaceable(target, follow=False)
    found = find_proof(open_source(source), read_witness_policy(policy_file), sought, int(time.time()))
    if found is None:
        say("no: the log has no leaf of this token", err=True)
        sys.exit(Exit.NO)
    if target is None:
        say(found.text.decode(), end="")
    else:
        files.replace(target, found.text, mode=0o644, durable=True, follow=False)
        say(f"leaf {found.index} of {describe_head(found.head)}", err=True)


def _sought(entry: str | None, iat: int | None, token: str | None) -> tuple[Sought, Path | None]:
    """Return what to look for and, for an entry, where its proof belongs."""
    if (entry is None) == (iat is None and token is None) or (iat is None) != (token is None):
        raise click.UsageError("give --for FILE#ENTRY, or --iat N with --token HEX")
    if entry is not None:
        return _of_entry(entry)
    if not _TOKEN.fullmatch(str(token)):
        raise click.BadParameter("64 lowercase hex digits: SHA-256 of the token's signing input", param_hint="--token")
    return Sought(int(iat or 0), bytes.fromhex(str(token))), None


def _of_entry(text: str) -> tuple[Sought, Path]:
    name, _, number = text.rpartition("#")
    if not name or not _ENTRY.fullmatch(number):
        raise click.BadParameter("give the file, `#`, and the number of the entry, from 0", param_hint="--for")
    entries = read_entries(files.read(Path(name), strict_yaml.MAX_BYTES), name)
    if int(number) >= len(entries) or not (token := entries[int(number)].token):
        raise InputError(Code.RESULT_TOKEN, f"entry {number} is not there, or has no token", Place(name))
    try:
        sought = sought_of(token)
    except (FormatError, Refused) as error:
        raise InputError(Code.RESULT_TOKEN, error.detail, Place(name), f"/{number}") from None
    return sought, Path(sidecar_name(name, sought.token))
