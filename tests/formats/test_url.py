"""The rule for URLs: its faults, the exceptions that callers may allow, and those that each caller does allow."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from issuer.errors import SetupError
from issuer.formats.url import Http, UrlError, is_loopback, split_url
from issuer.io.fetch import FetchRefused, split_fetched
from issuer.io.http_client import check_url
from issuer.results.details import is_public_url
from issuer.service.settings.reader import read_settings


def fault(url: str, *, http: Http = "nowhere", query: bool = False, fragment: bool = False) -> str:
    try:
        split_url(url, http=http, query=query, fragment=fragment)
    except UrlError as error:
        return error.fault
    return ""


GOOD = [
    "https://a.example", "https://a.example/", "https://a.example:8443", "https://a.example:1/b/c", "https://192.0.2.1",
    "https://[2001:db8::1]:8443/x", "HTTPS://A.example", "https://a.example/%20b(c)'*@d", "https://a.example:/x",
]  # fmt: skip
BAD = {
    "credentials": [
        "https://user@a.example", "https://user:pw@a.example", "http://user@127.0.0.1", "https://@a.example", "u@a.example",
        "https://user@[", "https://user@a.example:0", "https://user@a.example:x", "https:///@a", "https://u@a\n",
    ],
    "characters": [
        "https://a.example\n", " https://a.example", "https://a.example ", "https://a.exa mple", "https://a.exa\tmple",
        "https://a.example\\b", "https://\u0430.example", "https://a.example/\xe9", "https://a\x1b2J", "https://a\x00",
        "https://a.example/\u2028", "https://a.example/{b}", "https://a.example/<b>", 'https://a.example/"', "",
    ],
    "form": [
        "https://", "https:///path", "https:a.example", "a.example", "//", "/x", "file:///etc/keys", "x", "https://[::1",
        "https://::1]", "https://a.example:70000", "https://a.example:x", "https://a.example:0", "https://a.example:-1",
        "https://:443", "https://127%2e0.0.1", "https://a%2eexample", "https://[fe80::1%25eth0]",
    ],
    "query": ["https://a.example?x=1", "https://a.example?", "https://a.example#x", "https://a.example#", "http://a?x"],
    "scheme": [
        "http://a.example", "http://127.0.0.1", "ftp://a.example", "file://a.example/x", "//a.example", "httpss://a.example",
    ],
}  # fmt: skip


def test_https_host_and_path_keep_the_rule_and_a_fault_is_named_and_not_quoted() -> None:
    assert [split_url(url) for url in GOOD] == [urlsplit(url) for url in GOOD]
    for kind, urls in BAD.items():
        for url in urls:
            with pytest.raises(UrlError) as caught:
                split_url(url)
            assert caught.value.fault == str(caught.value) == kind, url


def test_a_query_a_fragment_and_plain_http_are_allowed_each_by_itself() -> None:
    assert fault("https://a.example/x?y=z", query=True) == fault("https://a.example/x#w", fragment=True) == ""
    assert fault("https://a.example/x?y=z", fragment=True) == fault("https://a.example/x#w", query=True) == "query"
    assert fault("https://a.example/x?y=z#w", query=True, fragment=True) == ""
    for host in ("127.0.0.1", "127.9.9.9", "[::1]"):
        assert is_loopback(host.strip("[]"))
        for url in (f"http://{host}", f"http://{host}:8000/x"):
            assert [fault(url, http=http) for http in ("nowhere", "loopback", "anywhere")] == ["scheme", "", ""]
    for host in (
        "localhost", "127.0.0.1.evil.example", "10.0.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0", "[::]", "[::2]",
        "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "a.example", "[::ffff:10.0.0.1]",
    ):  # fmt: skip
        assert not is_loopback(host.strip("[]"))
        assert [fault(f"http://{host}", http=http) for http in ("loopback", "anywhere")] == ["scheme", ""]
    for url in ("ftp://127.0.0.1", "file://127.0.0.1/etc/passwd", "ws://127.0.0.1", "//127.0.0.1"):
        assert fault(url, http="anywhere", query=True, fragment=True) == "scheme"


@given(st.text() | st.text(alphabet="htps:/@[]?#%.:0aA1-\\\n \t").map("https://{}".format))
def test_what_keeps_the_rule_has_one_host_whoever_reads_it(url: str) -> None:
    """The checked host must be the host of the connection, although urllib3 parses URLs itself."""
    if fault(url, query=True):
        return
    try:
        theirs = parse_url(url).host
    except LocationParseError:
        return
    assert (theirs or "").strip("[]").lower() == split_url(url, query=True).hostname


HOME = {"ISSUER_POLICIES": "p", "ISSUER_KEYS_FOLDER": "k", "ISSUER_DATA": "d", "ISSUER_STORE_URL": "embedded"}


def accepts(read: Callable[[], object]) -> bool:
    try:
        read()
    except (SetupError, FetchRefused):
        return False
    return True


def own(url: str, development: str) -> bool:
    return accepts(lambda: read_settings(None, {**HOME, "ISSUER_URL": url, "ISSUER_DEVELOPMENT": development}))


# Whose URL it is, the kinds that are allowed, and the function that reads it.
CALLERS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "the service's own": ("", lambda url: own(url, "false")),
    "the service's own in development": ("http at 127.0.0.1", lambda url: own(url, "true")),
    "a provider's": ("query", lambda url: accepts(lambda: split_fetched(url, development=False))),
    "a provider's in development": (
        "http at 127.0.0.1, query", lambda url: accepts(lambda: split_fetched(url, development=True)),
    ),
    "an issuer's, to a client": ("http at 127.0.0.1, slash", lambda url: accepts(lambda: check_url(url, query=False))),
    "a document's or an endpoint's, to a client": (
        "http at 127.0.0.1, query, slash", lambda url: accepts(lambda: check_url(url, query=True)),
    ),
    "a source": ("http, http at localhost, http at 127.0.0.1, query, fragment, slash", is_public_url),
}  # fmt: skip
KINDS = {
    "http": "http://a.example/x", "http at localhost": "http://localhost:8000",
    "http at 127.0.0.1": "http://127.0.0.1:8000", "query": "https://a.example/x?y=z",
    "fragment": "https://a.example/x#y", "slash": "https://a.example/", "credentials": "https://u@a.example",
    "characters": "https://a.example\\x", "port 0": "https://a.example:0", "ftp": "ftp://a.example",
}  # fmt: skip


def test_each_caller_allows_what_it_says_and_no_more() -> None:
    """A slash in `iss` counts, because `iss` is compared byte for byte. Other tests cover the table."""
    for name, (allowed, allows) in CALLERS.items():
        assert allows("https://a.example/x")
        kinds = {kind for kind, url in KINDS.items() if allows(url)} - ({"slash"} if "provider" in name else set())
        assert kinds == set(filter(None, allowed.split(", "))), name


def test_a_client_quotes_no_credentials_no_query_and_no_control_characters() -> None:
    for url in (
        "https://id:hush@host", "http://id:hush@host", "hush@host", "https://hush@[", "https://hush@host:0",
        "https://host?token=hush", "https://host#hush", "http://host/path?token=hush",
    ):  # fmt: skip
        with pytest.raises(SetupError) as caught:
            check_url(url)
        assert "hush" not in str(caught.value)
    with pytest.raises(SetupError, match="http://host must be https"):
        check_url("http://host/path?token=hush", query=True)
    for url in ("http://[", "https://x:99999", "https://a\x1b[2J", "x"):
        with pytest.raises(SetupError, match="is not a URL") as caught:
            check_url(url)
        assert str(caught.value).isprintable()
