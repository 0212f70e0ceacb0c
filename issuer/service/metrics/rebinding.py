"""By which names the metrics' address answers. Pure.

A page of a stranger's, in the browser of somebody who reaches this address, can have its own name lead here (DNS
rebinding), and then reads what is answered to it. What it cannot choose is the Host that its browser sends: a name of
its own, which has a dot, because nobody on the Internet has one without.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address

# RFC 3986 3.2.2 without escapes, and 3.2.3: an address of IPv6 in brackets, or a name, or an address of IPv4.
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")


def is_own(host: str, names: Collection[str]) -> bool:
    """Say whether a Host is an IP address, a name without a dot, as `localhost` is, or one of these in lowercase."""
    found = _HOST.fullmatch(host.lower())
    if found is None:
        return False
    address, name = found.groups()
    return address is not None or "." not in name or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        IPv4Address(name)
    except ValueError:
        return False
    return True
