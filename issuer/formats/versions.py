"""The version that a line of a stored file begins with.

msgspec checks the tag of a struct where there is one, and asks for it only where there are several to choose from.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class VersionOne(Struct, frozen=True):
    """What a line of the first version has, whatever else it has."""

    version: Literal[1]
