"""What stands at `/`: whom it takes for a person, and that no text of the settings becomes HTML."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from issuer.policy.authoring.load import load_policies
from issuer.service.http.pages import Landing, pages
from tests.support.shared import ROOT

URL = "https://issuer.example"


def landing(url: str = URL, provider: str = "ci", log_url: str = "", *, ui: bool = False) -> Landing:
    known = load_policies(ROOT / "policies", URL).providers.values()
    providers = [replace(each, id=provider) for each in known]
    return Landing.of(url, providers, b"{}", verifies=False, log_url=log_url, ui=ui)


@pytest.mark.parametrize(
    ("accept", "is_person"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html", True),
        ("TEXT/HTML ; level=1", True),
        ("text/*", True),
        ("text/html;q=0.9, application/json;q=0.8", True),
        ("application/json;q=0.9, text/html", True),
        ("", False),
        ("*/*", False),
        ("text/html, application/json", False),
        ("text/html;q=0.5, application/json", False),
        ("text/html;q=0", False),
        ("text/html;q=0, text/*", False),
        ("application/problem+json", False),
        ("image/png", False),
        ("text/html;q=nan", True),
        (",;,=;q=,", False),
    ],
)
def test_who_ranks_html_above_json_is_a_person(accept: str, is_person: bool) -> None:
    found = landing()
    assert found.choose(accept) is (found.page if is_person else found.metadata)


def test_no_text_of_the_settings_becomes_html() -> None:
    page = landing(
        'https://a.example/"><b>&', provider="<i>", log_url='https://a.example/"><b>'
    ).page.whole.body.decode()
    assert not re.findall("<b>|<i>", page)
    assert page.count("&lt;b&gt;") >= 3
    assert "<code>&lt;i&gt;</code>" in page


def test_a_page_has_no_script_and_stands_in_no_frame() -> None:
    for found in (landing().page, *pages(ui=True, has_log=True).values()):
        policy = dict(found.whole.headers)[b"content-security-policy"].decode()
        assert {"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy.split("; "))


def test_what_is_not_there_is_not_spoken_of() -> None:
    bare, logged, drawn = landing(), landing(log_url=f"{URL}/log"), landing(ui=True)
    assert b"/verify" not in bare.page.whole.body
    assert b"transparency" not in bare.page.whole.body
    for link in (b'href="./ui/verify"', b'href="./ui/refused"'):
        assert (link in bare.page.whole.body, link in drawn.page.whole.body) == (False, True)
    assert f'href="{URL}/log/log.json"'.encode() in logged.page.whole.body
