"""The one rule for URLs (RFC 3986): those that are fetched, compared and published. Pure: resolves no name.

https, a host, a path. Each caller says what else is allowed. Plain http is for loopback *addresses*: a name, even
`localhost`, leads where its resolver says.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal
from urllib.parse import SplitResult, urlsplit

Http = Literal["nowhere", "loopback", "anywhere"]
UrlFault = Literal["credentials", "characters", "form", "query", "scheme"]

# RFC 3986's characters and no others: urlsplit drops tabs and line breaks, and so would see another URL than the one
# that is compared; browsers take a backslash for a slash.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")


class UrlError(ValueError):
    """Which part of the rule a URL breaks. It never quotes the URL: a secret may be in it."""

    def __init__(self, fault: UrlFault) -> None:
        super().__init__(fault)
        self.fault = fault


def split_url(url: str, *, http: Http = "nowhere", query: bool = False, fragment: bool = False) -> SplitResult:
    """Take a URL apart by the rule. Scheme and host are in lower case, the port is None or 1 to 65535. `http` says
    where the scheme may be http, `query` and `fragment` whether it may have them. Raises UrlError for the first of:
    `credentials` before the host, other `characters`, another `form`, a `query` or fragment, the `scheme`."""
    try:
        parts = urlsplit(url)
        # urlsplit reads the port only when asked. An escape in a host is another host to a reader that decodes it.
        has_host = bool(parts.hostname) and parts.port != 0 and "%" not in parts.netloc
    except ValueError:
        raise UrlError("credentials" if "@" in url else "form") from None
    if "@" in (parts.netloc or url):
        raise UrlError("credentials")
    if not _CHARACTERS.fullmatch(url):
        raise UrlError("characters")
    if not has_host:
        raise UrlError("form")
    # In the text: urlsplit does not distinguish an empty query from an absent one.
    if ("?" in url and not query) or ("#" in url and not fragment):
        raise UrlError("query")
    if not _allows_scheme(parts, http):
        raise UrlError("scheme")
    return parts


def _allows_scheme(parts: SplitResult, http: Http) -> bool:
    if parts.scheme != "http":
        return parts.scheme == "https"
    return http == "anywhere" or (http == "loopback" and is_loopback(parts.hostname or ""))


def is_loopback(host: str) -> bool:
    """Say whether a host is written as a loopback address. A name is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
