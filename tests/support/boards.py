"""Listed entries for leaderboards, and folders of repositories with bad files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from issuer.relying.leaderboard.ranking import (
    BoardEntry,
    BoardRow,
    BoardScore,
    BoardTable,
    Leaderboard,
    RankOptions,
    Unread,
    rank,
)
from issuer.relying.verifier import Basis, IssuerKeys
from issuer.results.benchmark import read_benchmark
from issuer.results.entry import write_entry
from tests.support import make
from tests.support.tree import write_result

REVISION = str(make.claims()["benchmark_revision"])
MODEL_REVISION = str(make.claims()["model_revision"])
DEFINITIONS = {(make.BENCHMARK, REVISION): make.benchmark()}
BASIS = Basis("sha256:" + "7" * 64, make.AUDIENCE, make.NOW)
# Hostile texts of a stranger.
PAYLOADS = (
    "</title></style></script><script>document.title='pwned'</script>",
    "\" onmouseover=document.title='pwned' x='",
    "<img src=x onerror=\"document.title='pwned'\">",
    "[x](javascript:alert(1)) | `` ` | <!-- \u2028\x85\u202e\r\n# heading",
    '=HYPERLINK("http://evil.example")',
)


def entry(repo: str = "acme/open-model", value: float = 1.0, **members: Any) -> BoardEntry:
    """Return a verified entry of the benchmark of the tests, with changed members."""
    good: dict[str, Any] = {
        "file": f"{repo}/.eval_results/gsm8k.yaml", "pointer": "/0", "repo": repo, "model_revision": MODEL_REVISION,
        "benchmark": make.BENCHMARK, "benchmark_revision": REVISION, "task": "gsm8k",
        "scores": (BoardScore("accuracy", "", value, ""),), "framework": "inspect-ai", "framework_version": "0.3.285",
        "tier": "verified", "tier_reason": "received in time",
        "received": "clock", "freshness": "received now", "when": make.NOW, "token_digest": f"{repo} {value}",
    }  # fmt: skip
    return BoardEntry(**{**good, **members})


def board(
    *entries: BoardEntry, definitions: Any = DEFINITIONS, unread: Iterable[Unread] = (), **asked: Any
) -> Leaderboard:
    return replace(rank(entries, definitions, BASIS, RankOptions(**asked)), unread=tuple(unread))


def only(made: Leaderboard) -> BoardTable:
    (table,) = made.tables
    return table


def ranks(rows: Iterable[BoardRow]) -> list[tuple[int | None, str, float]]:
    return [(row.rank, row.entry.repo, row.value) for row in rows]


_NAMES = (
    b"\xff\x1b[2J", b"a\nb", b"-rf", "\u202egpj".encode(), b"=cmd()", b"'\"<img src=x>", b"x" * 250, b" ", b"%s{}", b"\\..",
)  # fmt: skip


def write_bad(root: Path, tens: int) -> dict[str, int]:
    """Write so many times ten repositories with six bad files each; return how many findings of each code they are."""
    broken = ("- [", b"\xff\xfe", b"[" * 100_000, "- {}\n", "x: 1")
    for number in range(10 * tens):
        path = write_result(root, f"bad/r{number}", "broken.yaml", broken[number % 5])
        with path.with_name("huge.yaml").open("wb") as file:
            file.truncate(2**40 if number % 2 else 2**20 + 1)  # of no bytes on the disk
        path.with_name("doubled.yaml").write_text("- dataset: {id: a/b}\n  dataset: {id: a/b}\n  value: 1\n")
        path.with_name("link.yaml").symlink_to(("/etc/passwd", "/dev/zero", "link.yaml", "..", "/nowhere")[number % 5])
        os.mkfifo(path.with_name("pipe.yaml"))
        with open(os.fsencode(path.parent) + b"/" + _NAMES[number % 10] + b".yaml", "wb") as file:
            file.write(b"- [")
    each = {"duplicate_key": 10, "encoding": 2, "schema": 4, "syntax": 11, "too_large": 12, "unreadable": 21}
    return {f"file.{code}": tens * count for code, count in each.items()}


def write_hostile(root: Path, repositories: int) -> int:
    """Write repositories whose small files ask for as many rows as they can, and one with 256 entries of 256 metrics;
    return the bytes."""
    wide = ", ".join(f"{{metric_id: m{number}, value: {number}}}" for number in range(256))
    metrics = f"- {{dataset: {{id: a/b, task_id: t%s}}, metrics: [{wide}]}}\n"
    lone = "- {dataset: {id: a/b, task_id: %s}, framework: {name: '%s'}, benchmark_subset: '%s', value: %s}\n"
    made = 0
    for number in range(repositories):
        texts = (
            metrics % number,
            "".join(lone % ("t", f"f{number}-{each}", "", each) for each in range(40)),  # settings
            "".join(lone % (f"{number}-{each}", "", "", each) for each in range(40)),  # tables
            "".join(lone % ("t", "&" * each, '"<' * 200, each) for each in range(1, 9)),
            "- [",
        )
        text = texts[number % len(texts)]
        for name in ("a.yaml", *(f"{each}.yaml" for each in range(20) if text == texts[-1])):
            made += len(text)
            write_result(root, f"evil/r{number}", name, text)
    for number in range(256):
        text = metrics % number
        made += len(text)
        write_result(root, "evil/wide", f"{number}.yaml", text)
    return made


def hostile(payload: str) -> Leaderboard:
    """Return a leaderboard in which every text of a stranger is this one."""
    texts: dict[str, Any] = dict.fromkeys(
        ("file", "repo", "model_revision", "benchmark", "benchmark_revision", "task", "framework", "framework_version",
         "completeness", "subset", "normalization", "tier_reason", "freshness", "issuer", "integration"),
        payload,
    )  # fmt: skip
    scores = (BoardScore(payload, payload, 1.5, payload),)
    each = [
        entry(**texts, scores=scores, tier=tier, run_url="", when=make.NOW - days * 86_400, token_digest=tier)
        for days, tier in enumerate(("verified", "self-reported", "refuted"))
    ]
    other = entry(**{**texts, "framework": "x"}, scores=scores, when=make.NOW - 9)
    fault = Unread(payload, 1, 1, "file.syntax", payload)
    basis = Basis(BASIS.trust, payload, make.NOW, (IssuerKeys(payload, None),), (payload,), payload)
    made = replace(rank([*each, other], {}, basis, RankOptions(stated={payload: "higher"})), unread=(fault,))
    # A definition of the benchmark may have them.
    return replace(made, tables=tuple(replace(table, title=payload, unit=payload) for table in made.tables))


def stated_definition(text: str) -> Any:
    """Return definitions with this text in place of the usual one."""
    return {(make.BENCHMARK, REVISION): read_benchmark(text.encode(), "eval.yaml")}


def unsigned(details: dict[str, Any] | None = None, **members: Any) -> str:
    """Write a result file with one entry without a token."""
    return write_entry(make.submission(details, **members).form)
