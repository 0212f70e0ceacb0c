"""The pages of a real service as Debian's Firefox shows them: its scripts, its WebCrypto, its policies (CSP)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.dev.provider import LocalProvider
from tests.support.browser.steps import FOUND, Steps, asking, signed, statuses
from tests.support.firefox import drive
from tests.support.logged import Begun
from tests.support.running import BODY, Running
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("firefox-esr", "node", "npm"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    begun = Begun(tmp_path_factory.mktemp("logged"))
    with LocalProvider() as provider, begun.witnessed(provider) as live:
        yield live


def seen(steps: Steps, folder: Path, live: Running) -> dict[str, Any]:
    """Check the rules of every page, and return its look."""
    visit = drive(steps, folder)
    # This issuer has published no revocation list: a browser logs each 404 and each refusal.
    assert [line for line in visit["said"] if "status of 40" not in line] == []
    assert visit["cookies"] == []
    # The font in a data: URL is axe's own.
    assert [url for _, url, _ in visit["requests"] if not url.startswith((f"{live.url}/", "data:font"))] == []
    assert visit["look"]["axe"] == []
    assert visit["look"]["wider"] <= 0
    return dict(visit["look"])


def test_a_file_is_verified_and_a_changed_digit_is_not(logged: Running, folder: Path) -> None:
    text, _ = signed(logged)
    good = seen([*asking(logged, text), *FOUND, ["axe", "axe"], ["shot", "verified"]], folder, logged)
    assert good["verdict"][0].startswith("Verified")
    assert statuses(good) == [*["pass"] * 9, "skip", "skip"]
    changed = text.replace("0.62437518", "0.92437518")
    bad = seen([*asking(logged, changed), *FOUND, ["axe", "axe"]], folder, logged)
    assert bad["verdict"][0].startswith("Not verified")
    assert statuses(bad) == [*["pass"] * 7, "fail", "fail", "skip", "skip"]
    assert "0.92437518" in bad["rows"][7]


def test_a_refusal_is_explained_and_a_credential_is_gone_after_going_back(logged: Running, folder: Path) -> None:
    answer = logged.post(logged.token(ref="refs/heads/fork"), BODY)
    credential = logged.token()
    logged.secrets.append(credential)
    steps: Steps = [
        ["goto", f"{logged.url}/ui/refused"], ["fill", "#problem", answer.text], ["click", "#paste button[type=submit]"],
        ["wait", "#answer table"], ["text", "verdict", "#answer .verdict"],
        ["fill", "#credential", credential], ["click", "#send"], ["wait", "#explained .verdict"],
        ["text", "explained", "#explained .verdict"], ["axe", "axe"],
        ["goto", f"{logged.url}/ui/log"], ["evaluate", "kept", "JSON.stringify([{...localStorage}, {...sessionStorage}, history.state])"],
        ["back"], ["value", "left", "#credential"],
    ]  # fmt: skip
    look = seen(steps, folder, logged)
    assert "identity.claim_mismatch" in look["verdict"]
    assert look["explained"].startswith("This would be granted")
    assert look["left"] == ""
    assert credential[:20] not in look["kept"]


def test_the_proof_of_a_token_is_drawn_and_verified(logged: Running, folder: Path) -> None:
    tokens = [signed(logged)[1] for _ in range(4)]
    eventually(lambda: int(logged.http.get("/log/checkpoint").text.splitlines()[1]) >= 4)
    steps: Steps = [
        ["goto", f"{logged.url}/ui/log"], ["wait", "#state .verdict"], ["text", "state", "#state .verdict"],
        ["fill", "#token", tokens[1]], ["click", "#find button"], ["wait", "#found .climb"],
        ["text", "found", "#found .note"], ["texts", "steps", "#found tbody tr"], ["click", "#read"],
        ["wait", "#growth table"], ["text", "read", "#growth p"], ["axe", "axe"], ["shot", "log"],
    ]  # fmt: skip
    look = seen(steps, folder, logged)
    assert "Signed by the log" in look["state"]
    assert "It is entry" in look["found"]
    assert "the root" in look["steps"][-1]
    assert "each checked up to the root" in look["read"]
