"""The steps of a person on the verify page, for a browser, and the results of the checks there."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from issuer.dev.sandbox import AUDIENCE
from issuer.formats import jose
from tests.support import make
from tests.support.running import Running, numbered

REPO = "acme/open-model"
WORDS = {"pass": "pass", "FAIL": "fail", "unknown": "unknown", "skip": "skip"}
Steps = list[Sequence[object]]
# One visit, for tests of neither themes nor widths.
ONCE: dict[str, list[Any]] = {"themes": ["light"], "widths": [1280]}


def signed(live: Running, sent: dict[str, Any] | None = None) -> tuple[str, str]:
    """Return a result file that this service has signed, and its token."""
    answer = live.post(live.token(), numbered(1) if sent is None else sent)
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()["entry"], answer.json()["verify_token"]


def asking(live: Running, text: str, name: str = "gsm8k.yaml", *, repo: str = REPO, page: str = "") -> Steps:
    """Return the steps up to the plan of the verification."""
    return [
        ["goto", page or f"{live.url}/ui/verify"], ["drop", "#what", name, text], ["wait", "#chosen:has-text('bytes')"],
        ["fill", "#repo", repo], ["fill", "#issuer", live.url], ["fill", "#audience", AUDIENCE], ["click", "#look"],
        ["wait", "#plan > .panel, #plan > .note"],
    ]  # fmt: skip


FOUND: Steps = [
    ["click", "#go"], ["wait", "#answer .checks"], ["texts", "verdict", "#answer .verdict"],
    ["texts", "rows", "#answer .checks tbody tr"], ["text", "answer", "#answer"],
]  # fmt: skip


def statuses(look: dict[str, Any]) -> list[str]:
    """Return how the checks came out, as the page shows them."""
    return [next(status for word, status in WORDS.items() if word in row.split("\n")[0]) for row in look["rows"]]


def by_trust_file(url: str, chosen: Sequence[object], trust: Path) -> Steps:
    """Return the steps up to the plan of the verification, for the files of the step `chosen`, by a trust file."""
    return [
        ["goto", f"{url}/ui/verify"], chosen, ["wait", "#chosen:has-text('bytes')"], ["fill", "#repo", REPO],
        ["click", "#by-file"], ["files", "#trust-file", [str(trust)]], ["click", "#look"], ["wait", "#go"],
    ]  # fmt: skip


def trusting(folder: Path, *, of_issuer: dict[str, Any] | None = None, **members: Any) -> Path:
    """Write a trust file of which nothing is fetched: the issuer's key is `make.KEY`."""
    issuer = {"issuer": make.ISSUER, "keys": {"inline": json.loads(make.jwks(make.KEY))}, **(of_issuer or {})}
    trust = {"version": 1, "audience": make.AUDIENCE, "issuers": [issuer], **members}
    (folder / "trust.yaml").write_text(json.dumps(trust), "utf-8")
    return folder / "trust.yaml"


def many_entries(count: int) -> str:
    """Return a file of so many entries, each signed by `make.KEY` just now."""
    now = int(time.time()) - 10
    items = [make.submission(task_id=f"task-{number}") for number in range(count)]
    jtis = [jose.base64url_encode(number.to_bytes(16)) for number in range(count)]
    times: dict[str, Any] = {"iat": now, "nbf": now, "exp": now + 3600}
    return "".join(item.entry(make.token_for(item, jti=jti, **times)) for item, jti in zip(items, jtis, strict=True))


def without_404(visits: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Leave out the browser's messages about 404: an issuer without a revocation publishes no list."""
    for visit in visits:
        visit["said"] = [line for line in visit["said"] if "status of 404" not in line]
    return visits
