"""`issuer results digest`: what a verify token binds of each entry."""

from __future__ import annotations

from pathlib import Path

import click

from issuer.cli.result_files import REPORT_VERSION, find_result_files, paths_argument, read_entries_of, repo_option
from issuer.cli.terminal import printable, say, say_document
from issuer.errors import Refused
from issuer.results.entry import Entry, claims_of, content_digest


@click.command()
@paths_argument
@repo_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def digest(paths: tuple[Path, ...], repo: str | None, as_json: bool) -> None:
    """Print each entry's content_digest and, with --repo, its claims_digest: what a verify token binds."""
    rows = [_digests(file, entry, repo) for file in find_result_files(paths) for entry in read_entries_of(file)]
    if as_json:
        say_document({"version": REPORT_VERSION, "entries": rows})
        return
    for row in rows:
        say(f"{printable(row['file'])}, entry {row['pointer'][1:]}:")
        say(f"  claims_digest   {printable(row['claims_digest'] or '- ' + row['reason'])}")
        say(f"  content_digest  {row['content_digest']}")


def _digests(file: Path, entry: Entry, repo: str | None) -> dict[str, str]:
    claims, reason = "", "(the run claims name the model repository: give --repo)"
    if repo is not None:
        try:
            claims, reason = claims_of(entry, repo).digest, ""
        except Refused as refusal:
            reason = f"(no run claims: {refusal.detail})"
    return {
        "file": str(file), "pointer": entry.pointer, "claims_digest": claims, "reason": reason,
        "content_digest": content_digest(entry.form),
    }  # fmt: skip
