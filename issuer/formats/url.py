"""The rule for every URL that is fetched, compared or published (RFC 3986). Pure: it resolves no name.

A URL has https, a host and a path. Each caller says what else is allowed. Plain http is only for loopback *addresses*:
a name, even `localhost`, resolves to any address that its resolver chooses.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

Http = Literal["nowhere", "loopback", "anywhere"]
UrlFault = Literal["credentials", "characters", "form", "query", "scheme"]

# Only RFC 3986's characters: urlsplit drops tabs and line breaks, so it would read another URL than the one that is
# compared. Browsers read a backslash as a slash.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")


class UrlError(ValueError):
    """The part of the rule that a URL breaks. The error never quotes the URL, which may contain a secret."""

    def __init__(self, fault: UrlFault) -> None:
        super().__init__(fault)
        self.fault = fault


def split_url(url: str, *, http: Http = "nowhere", query: bool = False, fragment: bool = False) -> SplitResult:
    """Split a URL by the rule. Scheme and host are in lower case, the port is None or 1 to 65535. `http` names the
    hosts for which the scheme may be http; `query` and `fragment` say whether the URL may have them. Raises UrlError
    for the first fault, in this order: `credentials`, `characters`, `form`, `query` (or fragment), `scheme`."""
    try:
        parts = urlsplit(url)
        # urlsplit checks the port only when it is read. Readers that decode an escape in a host see another host.
        has_host = bool(parts.hostname) and parts.port != 0 and "%" not in parts.netloc
    except ValueError:
        raise UrlError("credentials" if "@" in url else "form") from None
    if "@" in (parts.netloc or url):
        raise UrlError("credentials")
    if not _CHARACTERS.fullmatch(url):
        raise UrlError("characters")
    if not has_host:
        raise UrlError("form")
    # Search the text, because urlsplit does not distinguish an empty query from an absent one.
    if ("?" in url and not query) or ("#" in url and not fragment):
        raise UrlError("query")
    allows_http = http == "anywhere" or (http == "loopback" and is_loopback(parts.hostname or ""))
    if parts.scheme != "https" and not (parts.scheme == "http" and allows_http):
        raise UrlError("scheme")
    return parts


def is_loopback(host: str) -> bool:
    """Say whether a host is a literal loopback address. Return False for names."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
