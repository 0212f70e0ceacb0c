"""The cost of a verification in a browser. `python -m tests.bench.browser`, part of `make bench`.

A file of a hundred entries, each with its token, is read and judged in Debian's Chromium by the verifier in JavaScript,
beside the same in Python: without a log, and with a witnessed proof for each token.
"""

import json
import statistics
import tempfile
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

from msgspec import Struct

from issuer.formats import jose
from issuer.results.entry import read_entries
from issuer.tlog.leaf import TokenLeaf
from issuer.token.verify_token import unverified_leaf
from issuer.verify import Context, verify_entries
from issuer.verify.check_log import AtHand
from issuer.verify.trust import read_trust_file, resolve
from tests.bench.interpreter import describe
from tests.support import make
from tests.support.answering import serving
from tests.support.browser import drive
from tests.support.javascript import VERIFIER
from tests.support.tlog import ANNOUNCED, ORIGIN, Tree, policy_text
from tests.support.tools import missing

ENTRIES, RUNS = 100, 9
NOW = make.NOW + 10

PROGRAM = """(async () => {
  const { readEntries, readTrustFile, resolve, verifyEntries } = await import("/index.js");
  const given = %s;
  const utf8 = (text) => new TextEncoder().encode(text);
  const trust = await resolve(await readTrustFile(utf8(given.trust), "trust.yaml"), new Map());
  const proofs = new Map(given.proofs.map(([leaf, text]) => [leaf, { proof: utf8(text) }]));
  const took = [];
  let reports = [];
  for (let run = 0; run < given.runs; run++) {
    const began = performance.now();
    const entries = readEntries(utf8(given.file), given.path);
    reports = await verifyEntries(entries, given.repo, given.path, trust, null, { now: given.now, proofs });
    took.push(performance.now() - began);
  }
  return { took, verdicts: reports.map((report) => report.verdict) };
})()"""


class Work(Struct, frozen=True):
    """A file to verify, by which trust, and the proofs at hand."""

    file: str
    trust: str
    proofs: dict[TokenLeaf, bytes]


def work(*, logged: bool) -> Work:
    """Make a file of ENTRIES entries, signed; `logged`: with a log that is required, and a proof of each token."""
    items = [make.submission(task_id=f"task-{number}") for number in range(ENTRIES)]
    saying: dict[str, Any] = {"log": ORIGIN} if logged else {}
    jtis = [jose.base64url_encode(number.to_bytes(16)) for number in range(ENTRIES)]
    tokens = [make.token_for(item, jti=jti, **saying) for item, jti in zip(items, jtis, strict=True)]
    file = "".join(item.entry(token) for item, token in zip(items, tokens, strict=True))
    issuer: dict[str, Any] = {"issuer": make.ISSUER, "keys": {"inline": json.loads(make.jwks())}}
    trust: dict[str, Any] = {"version": 1, "audience": make.AUDIENCE, "issuers": [issuer]}
    if not logged:
        return Work(file, json.dumps(trust), {})
    issuer["log"], trust["require"] = {"policy": {"inline": policy_text()}}, ["log"]
    leaves = [unverified_leaf(token) for token in tokens]
    tree = Tree([*ANNOUNCED, *(leaf.to_bytes() for leaf in leaves)])
    return Work(file, json.dumps(trust), {leaf: tree.proof(index) for index, leaf in enumerate(leaves, len(ANNOUNCED))})


def in_python(given: Work) -> float:
    """Return the median of milliseconds, by the clock."""
    trust = resolve(read_trust_file(given.trust.encode(), "trust.yaml"), {})
    proofs, took = {leaf: AtHand(raw) for leaf, raw in given.proofs.items()}, []
    for _ in range(RUNS):
        began = time.perf_counter()
        entries = read_entries(given.file.encode(), make.PATH)
        reports = verify_entries(entries, make.REPO, make.PATH, trust, None, Context(NOW, proofs=proofs))
        took.append(time.perf_counter() - began)
        assert [report.verdict for report in reports] == ["verified"] * ENTRIES
    return statistics.median(took) * 1e3


def in_chromium(given: Work, url: str, folder: Path) -> tuple[float, float]:
    """Return the first run and the median of all, in milliseconds by the clock."""
    proofs = [(leaf.to_bytes().decode(), raw.decode()) for leaf, raw in given.proofs.items()]
    parameters = {
        "file": given.file, "trust": given.trust, "proofs": proofs, "runs": RUNS, "now": NOW, "repo": make.REPO, "path": make.PATH,
    }  # fmt: skip
    steps = [["goto", f"{url}/package.json"], ["evaluate", "found", PROGRAM % json.dumps(parameters)]]
    (visit,) = drive(steps, folder, themes=["light"], widths=[1280])
    found = visit["look"]["found"]
    assert found["verdicts"] == ["verified"] * ENTRIES
    return found["took"][0], statistics.median(found["took"])


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    print(describe())
    if lacking := missing("chromium", "node", "npm"):
        print(f"left out: {lacking}")
        return
    print(f"\n{ENTRIES} entries of a file, read and verified (median of {RUNS}, by the clock)")
    # On loopback: browsers have WebCrypto in secure contexts only.
    files: Any = partial(_Files, directory=str(VERIFIER))
    with tempfile.TemporaryDirectory() as name, serving(files) as url:
        for title, logged in (("", False), (", each with a witnessed proof of the log", True)):
            given = work(logged=logged)
            python = in_python(given)
            first, median = in_chromium(given, url, Path(name))
            rows = {"Python": python, "Chromium": median, "Chromium, its first run": first}
            for where, ms in rows.items():
                print(f"  {where + title:<70}{ms:9.1f} ms  {ms / python:6.2f} x Python")


if __name__ == "__main__":
    main()
