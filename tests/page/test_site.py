"""What the pages are made of: nothing inline, nothing from elsewhere, every reference leads somewhere."""

from __future__ import annotations

import re
from posixpath import join, normpath

import pytest

from issuer.page.site import File, site

SITE = site("https://issuer.example", has_log=True)
HTML = [path for path in SITE if "/static/" not in path]
STATIC = [path for path in SITE if "/static/" in path]
_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")


def policy_of(file: File) -> dict[str, str]:
    parts = (part.partition(" ") for part in file.headers["Content-Security-Policy"].split("; "))
    return {name: allowed for name, _, allowed in parts}


@pytest.mark.parametrize("path", HTML)
def test_a_page_runs_and_loads_only_what_its_policy_names(path: str) -> None:
    file = SITE[path]
    html, policy = file.body.decode(), policy_of(file)
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in file.headers["Content-Security-Policy"]
    assert (file.headers["X-Content-Type-Options"], file.headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    assert file.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert not re.findall(
        r"<style|\sstyle=|\son[a-z]+=|<script(?! type=\"module\" src=)|(?:src|href)=\"(?:[a-z]+:|//)", html
    )
    in_markup = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert in_markup
    headed = in_markup[1].replace("&#x27;", "'")
    assert f"{headed}; frame-ancestors 'none'" == file.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", HTML)
def test_what_a_page_leads_to_is_there(path: str) -> None:
    for link in re.findall(r'(?:src|href)="([^"#]+)"', SITE[path].body.decode()):
        leads_to = normpath(join(path.rpartition("/")[0] or "/", link))
        assert leads_to in SITE or leads_to in {"/", "/errors"}, link


@pytest.mark.parametrize("path", [path for path in STATIC if path.endswith(".js")])
def test_a_script_imports_what_is_served_and_makes_no_markup_of_text(path: str) -> None:
    text = SITE[path].body.decode()
    for name in _IMPORT.findall(text):
        assert normpath(join(path.rpartition("/")[0], name)) in SITE, name
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|sessionStorage|\.cookie"
    assert not re.findall(forbidden, text)
    assert ("localStorage" in text) is path.endswith("/ui/visits.js"), (
        "one script keeps something, and its page says so"
    )


@pytest.mark.parametrize("path", [path for path in HTML if b"<script" in SITE[path].body])
def test_a_page_says_that_its_script_has_not_come_until_the_script_is_done(path: str) -> None:
    html = SITE[path].body.decode()
    script = re.search(r'<script type="module" src="([^"]+)"', html)
    assert script
    text = SITE[normpath(join(path.rpartition("/")[0], script[1]))].body.decode()
    assert (html.count('id="late"'), text.endswith('byId("late").remove();\n')) == (1, True)


def test_what_lies_under_a_digest_may_be_kept_for_ever_and_reaches_nothing() -> None:
    assert len({path.split("/")[3] for path in STATIC}) == 1
    for path in STATIC:
        file = SITE[path]
        assert file.cache == "public, max-age=31536000, immutable"
        assert policy_of(file) == {"default-src": "'none'", "script-src": "'self'", "frame-ancestors": "'none'"}
        assert file.headers["X-Content-Type-Options"] == "nosniff"


def test_no_text_of_the_settings_becomes_markup() -> None:
    made = site('https://a.example/"><b>', has_log=True)
    assert not any(b'"><b>' in file.body for path, file in made.items() if "/static/" not in path)
