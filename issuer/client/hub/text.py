"""What a model's owner reads in the pull request. Pure.

Written for who has never heard of an issuer: what was run, how to check it in one command, what that proves and what it
does not. Texts of a run stand in code only, so that none of them is Markdown, a mention or a marker.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from issuer.client.hub.kinds import ENDPOINT
from issuer.formats import jose
from issuer.formats.markdown import code, fenced, table
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.results.entry import Entry, read_entries
from issuer.verify.provenance import describe_caller, run_url
from issuer.verify_token import TokenClaims, read_unverified

MAX_SHOWN = 20  # results in full; a description of the Hub's has 64 Ki characters at most


class PullRequestText(Struct, frozen=True):
    """A title in one line, and a description in Markdown."""

    title: str
    description: str


class _Signed(Struct, frozen=True):
    path: str
    entry: Entry
    token: TokenClaims


def pull_request_text(repo: str, entries: Mapping[str, Sequence[str]], endpoint: str = ENDPOINT) -> PullRequestText:
    """Describe signed entries for the model repository, in the form of `IssuedToken.entry`, by the path of their file.

    `endpoint` is the Hub's URL, where their benchmarks are. The caller has verified them. Raises FormatError or Refused
    for a token that cannot be read.
    """
    signed = [_signed(path, entry) for path, texts in entries.items() for text in texts for entry in _read(text, path)]
    parts = [
        _opening(signed),
        _table(signed),
        *(_block(one) for one in signed[:MAX_SHOWN]),
        _more(signed),
        _check(repo, signed, endpoint),
        _MEANING,
    ]
    return PullRequestText(_title(signed), "\n\n".join(part for part in parts if part) + "\n")


def _read(text: str, path: str) -> Iterable[Entry]:
    return read_entries(text.encode(), path)


def _signed(path: str, entry: Entry) -> _Signed:
    jws = jose.parse_compact(entry.token or "")
    return _Signed(path, entry, read_unverified(jws.unverified_payload)[0])


def _title(signed: Sequence[_Signed]) -> str:
    benchmarks = list(dict.fromkeys(one.token.benchmark_repo for one in signed))
    named = ", ".join(benchmarks) if len(benchmarks) <= 2 else f"{len(benchmarks)} benchmarks"
    return f"Add {_count(signed)}: {named}"


def _count(signed: Sequence[_Signed]) -> str:
    return "a signed evaluation result" if len(signed) == 1 else f"{len(signed)} signed evaluation results"


def _opening(signed: Sequence[_Signed]) -> str:
    issuers = sorted({one.token.iss for one in signed})
    files = sorted({one.path for one in signed})
    return (
        f"This adds {_count(signed)} to {_list(files)}. The job that ran the evaluation proved who it is to a token "
        f"issuer, {_list(issuers)}, which signed what it reported. The signature, the verify token, stands beside each "
        "score; it is public."
    )


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(code, texts))


def _table(signed: Sequence[_Signed]) -> str:
    rows = (cells for one in signed[:MAX_SHOWN] for cells in _rows(one))
    return table(("benchmark", "task", "metric", "value", "framework"), rows)


def _rows(one: _Signed) -> Iterator[tuple[str, ...]]:
    token = one.token
    framework = code(f"{token.framework.get('name')} {token.framework.get('version')}")
    for metric in one.entry.metrics or ():
        name = code(metric.metric_id) + ("" if metric.slice is UNSET else f" of {code(metric.slice)}")
        yield code(token.benchmark_repo), code(token.task_id), name, code(number_text(metric.value)), framework


def _block(one: _Signed) -> str:
    """Say of one result what was run, and its digests."""
    token = one.token
    link = run_url(token.caller)
    lines = [
        f"**{code(token.benchmark_repo)}, task {code(token.task_id)}**",
        "",
        f"- model commit {code(token.model_revision)}, benchmark commit {code(token.benchmark_revision)}",
        f"- signed for {code(token.sub)} on {show_time(token.iat)}; asked for by {code(describe_caller(token.caller))}"
        + (f", [the run]({link})" if link else ""),
        f"- claims digest {code(token.claims_digest)}",
        f"- content digest {code(token.content_digest)}",
        f"- token id {code(token.jti)}",
    ]
    if token.attempt is not UNSET and token.attempt.number > 1:
        lines.append(f"- attempt {token.attempt.number}: other values were signed before, for the same model and task")
    if command := token.framework.get("command"):
        lines += ["- command:", "", fenced(str(command))]
    return "\n".join(lines)


def _more(signed: Sequence[_Signed]) -> str:
    left = len(signed) - MAX_SHOWN
    return f"And {left} more: the files have the same of each." if left > 0 else ""


def _check(repo: str, signed: Sequence[_Signed], endpoint: str) -> str:
    given = dict[tuple[str, str, str], dict[tuple[str, str], None]]()
    for one in signed:
        definitions = given.setdefault((one.path, one.token.iss, one.token.aud), {})
        if one.entry.value is not UNSET:  # in the profile `both`, whose value the benchmark's definition explains
            definitions[one.token.benchmark_repo, one.token.benchmark_revision] = None
    commands = [_command(repo, place, tuple(definitions), endpoint) for place, definitions in given.items()]
    hosts = _list(sorted({urlsplit(one.token.iss).netloc for one in signed}))
    return "\n\n".join(
        [
            "### Check it",
            "In a checkout of this pull request's branch:",
            fenced("\n".join(commands), "sh"),
            f"It fetches the public keys of {hosts}, and compares every field. A token lives for a short time: once "
            "it has ended, say with `--at` when this pull request was opened.",
        ]
    )


def _command(repo: str, place: tuple[str, str, str], definitions: Sequence[tuple[str, str]], endpoint: str) -> str:
    """Write what verifies one file; before it, what fetches the definitions that it needs."""
    path, issuer, audience = place
    verify = ["issuer", "verify", path, "--repo", repo, "--issuer", issuer, "--audience", audience]
    fetches = [
        ["curl", "-sfL", "--create-dirs", "-o", f"benchmarks/{benchmark}/{commit}/eval.yaml",
         f"{endpoint}/datasets/{benchmark}/resolve/{commit}/eval.yaml"]
        for benchmark, commit in definitions
    ]  # fmt: skip
    known = ["--benchmarks", "benchmarks"] if definitions else []
    return " && \\\n".join(map(shlex.join, [*fetches, [*verify, *known]]))


_MEANING = """### What that proves, and what it does not

If it says `verified`, then these scores were reported by that job, for this commit of the model and this commit of the
benchmark, and not a character of the result has been changed since.

It does not prove that the run was honest (who controls the job controls what it reports), that the benchmark is sound,
or that the score is good. The issuer did not run anything itself."""
