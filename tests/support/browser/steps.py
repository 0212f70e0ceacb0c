"""What a person does on the verify page, as steps for a browser, and how the checks came out there."""

from __future__ import annotations

from typing import Any

from issuer.dev.sandbox import AUDIENCE
from tests.support.running import Running, numbered

REPO = "acme/open-model"
WORDS = {"pass": "pass", "FAIL": "fail", "unknown": "unknown", "skip": "skip"}
Steps = list[list[object]]


def signed(live: Running, sent: dict[str, Any] | None = None) -> tuple[str, str]:
    """Return a result file that this service has signed, and its token."""
    answer = live.post(live.token(), numbered(1) if sent is None else sent)
    assert answer.status_code in {200, 201}, answer.text
    return answer.json()["entry"], answer.json()["verify_token"]


def asking(live: Running, text: str, name: str = "gsm8k.yaml", *, repo: str = REPO, page: str = "") -> Steps:
    """Return the steps up to what is needed."""
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
