"""Who runs a command on this machine, for a record of what was done. Not proof: root writes what it likes."""

from __future__ import annotations

import os
import pwd


def who() -> str:
    """Return the user's name with the machine's, and whose it was before `sudo`: `root@host (sudo by alice)`."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user has a number alone
        name = str(os.getuid())
    before = os.environ.get("SUDO_USER", "")
    return f"{name}@{os.uname().nodename}{f' (sudo by {before})' if before else ''}"[:512]
