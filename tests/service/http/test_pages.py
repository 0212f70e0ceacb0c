"""The page at `/`: for clients that prefer HTML, and without HTML from the settings."""

import re

from msgspec.structs import replace

from issuer.policy.authoring.load import load_policies
from issuer.service.http.bounds import MAX_MEDIA_RANGES
from issuer.service.http.pages import Landing, pages
from tests.support.shared import ROOT

URL = "https://issuer.example"


def landing(url: str = URL, provider: str = "ci", log_url: str = "", *, ui: bool = False) -> Landing:
    known = load_policies(ROOT / "policies", URL).providers.values()
    providers = [replace(each, id=provider) for each in known]
    return Landing.of(url, providers, b"{}", verifies=False, log_url=log_url, ui=ui)


PERSONS = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html", "TEXT/HTML ; level=1", "text/*",
    "text/html;q=0.9, application/json;q=0.8", "application/json;q=0.9, text/html", "text/html;q=nan",
    "text/html" + "," * (MAX_MEDIA_RANGES - 1),
)  # fmt: skip
MACHINES = (
    "", "*/*", "text/html, application/json", "text/html;q=0.5, application/json", "text/html;q=0", "text/html;q=0, text/*",
    "text/html" + "," * MAX_MEDIA_RANGES, "application/problem+json", "image/png", ",;,=;q=,",
)  # fmt: skip


def test_a_client_that_ranks_html_above_json_gets_the_page() -> None:
    found = landing()
    assert [accept for accept in PERSONS if found.choose(accept) is not found.page] == []
    assert [accept for accept in MACHINES if found.choose(accept) is not found.metadata] == []


def test_no_text_of_the_settings_becomes_html() -> None:
    hostile = landing('https://a.example/"><b>&', provider="<i>", log_url='https://a.example/"><b>')
    page = hostile.page.whole.body.decode()
    assert not re.findall("<b>|<i>", page)
    assert page.count("&lt;b&gt;") >= 3
    assert "<code>&lt;i&gt;</code>" in page


def test_a_page_has_no_script_and_cannot_be_framed() -> None:
    for found in (landing().page, *pages(ui=True, has_log=True).values()):
        policy = dict(found.whole.headers)[b"content-security-policy"].decode()
        assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy.split("; "))


def test_the_page_names_only_what_the_service_has() -> None:
    bare, logged, drawn = landing(), landing(log_url=f"{URL}/log"), landing(ui=True)
    assert b"/verify" not in bare.page.whole.body
    assert b"transparency" not in bare.page.whole.body
    for link in (b'href="./ui/verify"', b'href="./ui/refused"'):
        assert (link in bare.page.whole.body, link in drawn.page.whole.body) == (False, True)
    assert f'href="{URL}/log/log.json"'.encode() in logged.page.whole.body
