"""Every page in both themes, on a desk and on a phone: axe, the keyboard, its width, its weight, and its requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import free_port
from issuer.page.site import export
from issuer.relying.leaderboard.page import as_html
from tests.support import make
from tests.support.answering import answering
from tests.support.boards import PAYLOADS, board, entry, hostile
from tests.support.browser import drive, looks
from tests.support.browser.steps import FOUND, Steps, asking, signed
from tests.support.logged import Begun
from tests.support.running import BODY, Running, numbered, running
from tests.support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.needs_tool("chromium", "node", "npm"), pytest.mark.timeout(900)]
WIDTHS = (1280, 390)
MOST_OF_A_FIRST_VIEW = 100_000
HTML = "text/html; charset=utf-8"
LONG_NAME = f"{'a-long-organisation-' * 4}/{'model_without_any_break' * 4}"


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    begun = Begun(tmp_path_factory.mktemp("logged"))
    with LocalProvider() as provider, begun.witnessed(provider, metrics_port=free_port()) as live:
        for number in range(3):
            signed(live, numbered(number))
        eventually(lambda: int(live.http.get("/log/checkpoint").text.splitlines()[1]) >= 3)
        yield live


def view(name: str, url: str, *steps: list[object], is_first: bool = True) -> Steps:
    """Return the steps of one look at a page, after what a person does there."""
    weighed: Steps = [["weigh", f"bytes-{name}"]] if is_first else []
    opened: Steps = [["goto", url]] if url else []
    return [*opened, *weighed, *steps, ["shot", name], ["axe", f"axe-{name}"], ["tab", f"tab-{name}"]]


def walk(steps: Steps, folder: Path, *origins: str) -> None:
    """Do the steps in each form, and check the rules of every page."""
    visits = drive(steps, folder, widths=WIDTHS)
    for visit in visits:
        # This issuer has published no revocation list: a browser logs each 404.
        visit["said"] = [line for line in visit["said"] if "status of 404" not in line]
    for look in looks(visits, *origins):
        weights = {name: size for name, size in look.items() if name.startswith("bytes-")}
        assert all(0 < size < MOST_OF_A_FIRST_VIEW for size in weights.values()), weights
        tabbed = {name: found for name, found in look.items() if name.startswith("tab-")}
        assert tabbed
        assert {name: found for name, found in tabbed.items() if found["never"] or found["unseen"]} == {}, look["width"]


def test_the_pages_of_an_issuer(logged: Running, folder: Path) -> None:
    url = logged.url
    walk(
        [
            *view("landing", f"{url}/"),
            *view("errors", f"{url}/errors"),
            *view("error", f"{url}/errors/identity.claim_mismatch"),
            *view("index", f"{url}/ui"),
            *view("refused-empty", f"{url}/ui/refused"),
            *view("log", f"{url}/ui/log", ["wait", "#state .verdict"], ["wait", "#visits .note"]),
        ],
        folder,
        url,
    )


def test_the_verify_page_in_its_states(logged: Running, folder: Path) -> None:
    text, _ = signed(logged)
    bare = "".join(line for line in text.splitlines(keepends=True) if "verify_token" not in line)
    url = f"{logged.url}/ui/verify"
    walk(
        [
            *view("verify-empty", url),
            *view("verify-nothing", url, ["click", "#look"], ["wait", "#plan .note"]),
            *view("verify-trust-file", url, ["click", "#by-file"]),
            *asking(logged, text),
            *view("verify-plan", "", is_first=False),
            *FOUND,
            *view("verified", "", is_first=False),
            *asking(logged, text.replace("0.62437518", "0.92437518"), repo=f"acme/{'x' * 90}"),
            *FOUND,
            *view("not-verified", "", is_first=False),
            *asking(logged, bare + text + bare),
            *FOUND,
            *view("several", "", is_first=False),
        ],
        folder,
        logged.url,
    )


def test_the_other_pages_with_answers(logged: Running, folder: Path) -> None:
    refused, (_, token), url = logged.post(logged.token(ref="refs/heads/fork"), BODY).text, signed(logged), logged.url
    walk(
        [
            *view(
                "refused", f"{url}/ui/refused", ["fill", "#problem", refused], ["click", "#paste button[type=submit]"],
                ["wait", "#answer table"],
            ),
            *view(
                "refused-no-answer", f"{url}/ui/refused", ["fill", "#problem", "it failed"],
                ["click", "#paste button[type=submit]"], ["wait", "#answer .note"],
            ),
            *view(
                "log-found", f"{url}/ui/log", ["wait", "#state .verdict"], ["fill", "#token", token],
                ["click", "#find button"], ["wait", "#found .climb"], ["click", "#read"], ["wait", "#growth table"],
            ),
            *view(
                "log-refused", f"{url}/ui/log", ["wait", "#state .verdict"], ["fill", "#policy", "none"],
                ["click", "#trust button"], ["wait", "#state .note"],
            ),
        ],
        folder,
        url,
    )  # fmt: skip


def test_the_operator_s_view(logged: Running, folder: Path) -> None:
    url = f"http://127.0.0.1:{logged.settings.metrics.port}"
    walk(view("operator", f"{url}/"), folder, url)


def test_exported_and_standalone_pages(tmp_path: Path, folder: Path) -> None:
    tiers = ("reproduced", "logged", "verified", "signed", "self-reported", "undecided", "refuted")
    many = [
        entry(f"owner{number}/model-{number}", number / 7, tier=tiers[number % 7], when=make.NOW - number * 86_400,
              framework=("inspect-ai", "lm-eval")[number % 2], attempt=number or None, attempts_since=make.NOW)
        for number in range(21)
    ]  # fmt: skip
    boards = {
        "empty": board(), "one": board(entry()), "many": board(*many), "long": board(entry(LONG_NAME), entry("b/b", 2)),
        "hostile": hostile(PAYLOADS[0]),
    }  # fmt: skip
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": HTML}
    documents = {f"/{name}": (types[name.rpartition(".")[2]], raw) for name, raw in export().items()}
    pages = {name: as_html(made, "https://hub.example").encode() for name, made in boards.items()}
    documents |= {f"/{name}.html": (HTML, page) for name, page in pages.items()}
    with answering(documents) as host, LocalProvider() as provider, running(tmp_path, provider, ui=False) as live:
        steps = [step for name in boards for step in view(f"board-{name}", f"{host}/{name}.html")]
        alone = [
            *view("landing-alone", f"{live.url}/"),
            *view("error-alone", f"{live.url}/errors/internal"),
            *view("exported", f"{host}/index.html"),
        ]
        walk([*alone, *steps], folder, host, live.url)
