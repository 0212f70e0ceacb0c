"""The content of a pull request on the Hub: files with merged entries, and the text for the model's owner. Pure.

The description has the facts of the run, one command that verifies them, and what a verification proves. Texts of a run
are only shown as code, so that they cannot become Markdown, a mention or a marker.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from issuer.codes import Code
from issuer.errors import Refused
from issuer.formats import jose
from issuer.formats.display import code_span, fenced_code, markdown_table
from issuer.formats.strict_yaml import number_text
from issuer.formats.times import show_time
from issuer.results import edit
from issuer.results.entry import Entry, read_entries
from issuer.token.verify_token import TokenClaims, read_unverified
from issuer.verify.provenance import describe_caller, run_url

ENDPOINT = "https://huggingface.co"


class FileAt(Struct, frozen=True):
    """A file of a repository at a full commit."""

    repo: str
    path: str
    commit: str
    text: str

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return f"{self.repo}/{self.path}@{self.commit[:7]}"


class PullRequest(Struct, frozen=True):
    """An open pull request. If it `existed`, none was made."""

    url: str
    number: int
    existed: bool

    @property
    def ref(self) -> str:
        """The git reference of its branch."""
        return f"refs/pr/{self.number}"


class Proposal(Struct, frozen=True):
    """The content of a new pull request: files by path, and the content digests of their new results."""

    repo: str
    files: dict[str, bytes]
    title: str
    description: str
    content_digests: frozenset[str]


class Moved(Refused):
    """Files have changed on main since they were read. The caller must read, merge and propose them again. `paths` are
    these files. No pull request stays open."""

    def __init__(self, paths: tuple[str, ...], detail: str) -> None:
        super().__init__(Code.HUB_MOVED, detail)
        self.paths = paths


def merge_entries(before: FileAt | None, path: str, entries: Sequence[str]) -> bytes:
    """Return the file with these entries, each in the form of `IssuedToken.entry` or `client.files.shaped`. An entry
    replaces the one with the same dataset id, task id, slices and framework that its integration had signed, or is
    appended. Comments, order and all other entries stay. Raises InputError for a file on main that is not a result file
    or has several such entries, and `result.repeated` if two of `entries` are for the same scores."""
    text, name = ("", path) if before is None else (before.text, before.name)
    return edit.merge(text, entries, name).encode()


MAX_SHOWN = 20  # results in full: a description on the Hub has at most 64 Ki characters


class PullRequestText(Struct, frozen=True):
    """A title in one line, and a description in Markdown."""

    title: str
    description: str


class _Signed(Struct, frozen=True):
    path: str
    entry: Entry
    token: TokenClaims


def pull_request_text(
    repo: str, entries: Mapping[str, Sequence[str]], endpoint: str = ENDPOINT, replaced: Sequence[Entry] = ()
) -> PullRequestText:
    """Return title and description for signed entries, by the path of their file. The caller has verified the entries;
    they have the form of `IssuedToken.entry`. `endpoint` is the URL of the Hub with their benchmarks. `replaced` are
    entries of main that the files lack. Raises FormatError or Refused for a token that cannot be parsed."""
    signed = [
        _Signed(path, entry, read_unverified(jose.parse_compact(entry.token or "").unverified_payload)[0])
        for path, texts in entries.items()
        for text in texts
        for entry in read_entries(text.encode(), path)
    ]
    parts = [_opening(signed), *_replaces(replaced), _table(signed), *map(_block, signed[:MAX_SHOWN])]
    if len(signed) > MAX_SHOWN:
        parts.append(f"And {len(signed) - MAX_SHOWN} more: the files have the same facts about each.")
    parts += [_check(repo, signed, endpoint), _MEANING]
    return PullRequestText(_title(signed, len(replaced)), "\n\n".join(parts) + "\n")


def _title(signed: Sequence[_Signed], replaced: int) -> str:
    benchmarks = list(dict.fromkeys(one.token.benchmark_repo for one in signed))
    named = ", ".join(benchmarks) if len(benchmarks) <= 2 else f"{len(benchmarks)} benchmarks"
    return f"Add {_count(signed)}{f', replace {replaced}' if replaced else ''}: {named}"


def _count(signed: Sequence[_Signed]) -> str:
    return "a signed evaluation result" if len(signed) == 1 else f"{len(signed)} signed evaluation results"


def _opening(signed: Sequence[_Signed]) -> str:
    issuers = sorted({one.token.iss for one in signed})
    files = sorted({one.path for one in signed})
    return (
        f"This adds {_count(signed)} to {_list(files)}. The job that ran the evaluation proved its identity to a token "
        f"issuer, {_list(issuers)}, which signed the reported scores. This counts if you trust this issuer. Each entry "
        "contains the signature, the verify token; it is public."
    )


def _replaces(replaced: Sequence[Entry]) -> Iterator[str]:
    """Yield a list of the results that main has and the files lack."""
    if replaced:
        yield "It replaces earlier results that the same issuer had signed for the same integration:"
        lines = [f"- {code_span(describe_entry(entry))}" for entry in replaced[:MAX_SHOWN]]
        more = len(replaced) - MAX_SHOWN
        yield "\n".join([*lines, *([f"- and {more} more"] if more > 0 else [])])


def describe_entry(entry: Entry) -> str:
    """Return an entry in one line: benchmark, task, framework, metrics and date. Its texts are not escaped."""
    names = (entry.dataset.id, entry.dataset.task_id, entry.framework.name)
    metrics = (
        f"{metric.metric_id}{f' ({metric.slice})' if metric.slice else ''} {number_text(metric.value)}"
        for metric in entry.metrics or ()
    )
    return ", ".join(str(fact) for fact in (*names, *metrics, entry.details.date) if fact)


def _list(texts: Iterable[str]) -> str:
    return ", ".join(map(code_span, texts))


def _table(signed: Sequence[_Signed]) -> str:
    rows = (cells for one in signed[:MAX_SHOWN] for cells in _rows(one))
    return markdown_table(("benchmark", "task", "metric", "value", "framework"), rows)


def _rows(one: _Signed) -> Iterator[tuple[str, ...]]:
    token = one.token
    framework = code_span(f"{token.framework.get('name')} {token.framework.get('version')}")
    for metric in one.entry.metrics or ():
        name = code_span(metric.metric_id) + ("" if metric.slice is UNSET else f" of {code_span(metric.slice)}")
        value = code_span(number_text(metric.value))
        yield code_span(token.benchmark_repo), code_span(token.task_id), name, value, framework


def _block(one: _Signed) -> str:
    """Return the facts of one result: the commits, the caller, the digests and the command."""
    token = one.token
    link = run_url(token.caller)
    lines = [
        f"**{code_span(token.benchmark_repo)}, task {code_span(token.task_id)}**",
        "",
        f"- model commit {code_span(token.model_revision)}, benchmark commit {code_span(token.benchmark_revision)}",
        f"- signed for {code_span(token.sub)} on {show_time(token.iat)}; "
        f"requested by {code_span(describe_caller(token.caller))}" + (f", [the run]({link})" if link else ""),
        f"- claims digest {code_span(token.claims_digest)}",
        f"- content digest {code_span(token.content_digest)}",
        f"- token id {code_span(token.jti)}",
    ]
    if token.attempt is not UNSET and token.attempt.number > 1:
        lines.append(f"- attempt {token.attempt.number}: other values were signed before, for the same model and task")
    if command := token.framework.get("command"):
        lines += ["- command:", "", fenced_code(str(command))]
    return "\n".join(lines)


def _check(repo: str, signed: Sequence[_Signed], endpoint: str) -> str:
    given = dict[tuple[str, str, str], dict[tuple[str, str], None]]()
    for one in signed:
        definitions = given.setdefault((one.path, one.token.iss, one.token.aud), {})
        # The definition explains which of several metrics `value` repeats. A benchmark may lack one.
        if one.entry.value is not UNSET and len({metric.metric_id for metric in one.entry.metrics or ()}) > 1:
            definitions[one.token.benchmark_repo, one.token.benchmark_revision] = None
    commands = [_command(repo, place, tuple(definitions), endpoint) for place, definitions in given.items()]
    hosts = _list(sorted({urlsplit(one.token.iss).netloc for one in signed}))
    return "\n\n".join(
        [
            "### Check it",
            "In a checkout of this pull request's branch:",
            fenced_code("\n".join(commands), "sh"),
            f"The command fetches the public keys of {hosts}, and compares every field. A token expires after a short "
            "time. After that, give the time at which this pull request was opened with `--at`.",
        ]
    )


def _command(repo: str, place: tuple[str, str, str], definitions: Sequence[tuple[str, str]], endpoint: str) -> str:
    """Return the command that verifies one file, after the commands that fetch the benchmark definitions it needs."""
    path, issuer, audience = place
    verify = ["issuer", "verify", path, "--repo", repo, "--issuer", issuer, "--audience", audience]
    fetches = [
        ["curl", "-sfL", "--create-dirs", "-o", f"benchmarks/{benchmark}/{commit}/eval.yaml",
         f"{endpoint}/datasets/{benchmark}/resolve/{commit}/eval.yaml"]
        for benchmark, commit in definitions
    ]  # fmt: skip
    known = ["--benchmarks", "benchmarks"] if definitions else []
    return " && \\\n".join(map(shlex.join, [*fetches, [*verify, *known]]))


_MEANING = """### What a verification proves

`verified` means, if you trust this issuer: that job reported these scores for this commit of the model and this commit
of the benchmark, and no character of the result has changed since.

It does not prove that the run was honest (anyone who controls the job controls its reports), that the benchmark is
sound, or that the score is good. The issuer did not run the evaluation."""


# A Markdown comment, which readers do not see, lists the results of a pull request, each by 128 bits of its content
# digest. That is enough for the pull requests of one account, and a thousand of them fit into a description.

_CHARS = 32
_MARKER = re.compile(r"^<!-- eval-results((?: [0-9a-f]{32})+) -->$", re.MULTILINE)


def short(content_digest: str) -> str:
    """Return the short form for markers of a digest, which is `sha256:` and 64 hex digits."""
    return content_digest.removeprefix("sha256:")[:_CHARS]


def marked(description: str, content_digests: Iterable[str]) -> str:
    """Return the description with the marker of these results as its last line. It must not have a marker yet."""
    return f"{description.rstrip()}\n\n<!-- eval-results {' '.join(sorted(set(map(short, content_digests))))} -->\n"


def marker_in(text: str) -> frozenset[str]:
    """Return the results in a description's last marker, each in its `short` form."""
    markers = _MARKER.findall(text.replace("\r\n", "\n"))
    return frozenset(markers[-1].split()) if markers else frozenset()
