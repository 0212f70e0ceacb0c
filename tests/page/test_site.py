"""The files of the pages: without inline parts and other origins, and each reference leads to a file."""

import re
from posixpath import join, normpath

from issuer.page.site import File, site

SITE = site("https://issuer.example", has_log=True)
HTML = [path for path in SITE if "/static/" not in path]
STATIC = [path for path in SITE if "/static/" in path]
SCRIPTS = [path for path in STATIC if path.endswith(".js")]
_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']""")


def policy_of(file: File) -> dict[str, str]:
    parts = (part.partition(" ") for part in file.headers["Content-Security-Policy"].split("; "))
    return {name: allowed for name, _, allowed in parts}


def test_a_page_runs_and_loads_only_what_its_policy_names() -> None:
    inline = r"<style|\sstyle=|\son[a-z]+=|<script(?! type=\"module\" src=)|(?:src|href)=\"(?:[a-z]+:|//)"
    for path in HTML:
        file = SITE[path]
        html, policy = file.body.decode(), policy_of(file)
        for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
            assert policy[name] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in file.headers["Content-Security-Policy"]
        assert (file.headers["X-Content-Type-Options"], file.headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert file.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert not re.findall(inline, html), path
        in_markup = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
        assert in_markup
        headed = in_markup[1].replace("&#x27;", "'")
        assert f"{headed}; frame-ancestors 'none'" == file.headers["Content-Security-Policy"]


def test_the_links_and_imports_of_the_pages_lead_to_files() -> None:
    for path in HTML:
        for link in re.findall(r'(?:src|href)="([^"#]+)"', SITE[path].body.decode()):
            leads_to = normpath(join(path.rpartition("/")[0] or "/", link))
            assert leads_to in SITE or leads_to in {"/", "/errors"}, link
    for path in SCRIPTS:
        for name in _IMPORT.findall(SITE[path].body.decode()):
            assert normpath(join(path.rpartition("/")[0], name)) in SITE, name


def test_a_script_makes_no_markup_of_text_and_only_one_keeps_data() -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|sessionStorage|\.cookie"
    texts = {path: SITE[path].body.decode() for path in SCRIPTS}
    assert [path for path, text in texts.items() if re.search(forbidden, text)] == []
    assert [path.rpartition("/")[2] for path, text in texts.items() if "localStorage" in text] == ["visits.js"]


def test_a_page_has_a_note_until_its_script_is_done() -> None:
    for path in (path for path in HTML if b"<script" in SITE[path].body):
        html = SITE[path].body.decode()
        script = re.search(r'<script type="module" src="([^"]+)"', html)
        assert script
        text = SITE[normpath(join(path.rpartition("/")[0], script[1]))].body.decode()
        assert (html.count('id="late"'), text.endswith('byId("late").remove();\n')) == (1, True)


def test_a_file_under_a_digest_is_immutable_and_loads_only_scripts() -> None:
    assert len({path.split("/")[3] for path in STATIC}) == 1
    for path in STATIC:
        file = SITE[path]
        assert file.cache == "public, max-age=31536000, immutable"
        assert policy_of(file) == {"default-src": "'none'", "script-src": "'self'", "frame-ancestors": "'none'"}
        assert file.headers["X-Content-Type-Options"] == "nosniff"


def test_no_text_of_the_settings_becomes_markup() -> None:
    made = site('https://a.example/"><b>', has_log=True)
    assert not any(b'"><b>' in file.body for path, file in made.items() if "/static/" not in path)
