"""The text of `issuer --version`: the release, its commit, and the versions of Python and OpenSSL."""

from __future__ import annotations

import json
import platform
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from issuer import __version__
from issuer.errors import InputError
from issuer.io.files import read

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MAX_BYTES = 16 * 1024 * 1024  # packed-refs of a large repository
_COMMIT_FILE = Path(__file__).parents[1] / "commit.txt"
_CHECKOUT = Path(__file__).parents[2]


def describe_version() -> str:
    """Return the lines of `issuer --version`."""
    import ssl  # inside the function, because the imports load OpenSSL

    import cryptography
    from cryptography.hazmat.backends.openssl.backend import backend

    signatures = backend.openssl_version_text()
    return "\n".join([
        f"issuer {__version__}",
        f"commit   {released_from(_COMMIT_FILE) or commit_of(_CHECKOUT) or _installed_from() or 'not known'}",
        f"Python   {platform.python_version()}",
        f"OpenSSL  {signatures} (signatures, by cryptography {cryptography.__version__})",
        f"         {ssl.OPENSSL_VERSION} (TLS, by Python)",
    ])  # fmt: skip


def released_from(file: Path) -> str:
    """Return the commit that `git archive` wrote into a file (.gitattributes); "" in a checkout.

    A wheel contains that file. In a checkout the file has only the placeholder.
    """
    try:
        return _only_commit(_text(file))
    except (OSError, InputError, ValueError):
        return ""


def commit_of(checkout: Path) -> str:
    """Return the commit of a git checkout, or "" for any other folder. Reads git's files and runs no git."""
    try:
        git = checkout / ".git"
        if git.is_file():  # a worktree: `gitdir: PATH`
            git = Path(_text(git).removeprefix("gitdir:").strip())
        head = _text(git / "HEAD")
        if not head.startswith("ref: "):
            return _only_commit(head)
        return _of_branch(git, head.removeprefix("ref: "))
    except (OSError, InputError, ValueError):
        return ""


def _of_branch(git: Path, name: str) -> str:
    """Return the commit of a branch, loose or packed. A worktree has its branches in the main repository."""
    common = git / "commondir"
    shared = git / _text(common) if common.is_file() else git
    if (loose := shared / name).is_file():
        return _only_commit(_text(loose))
    lines = _text(shared / "packed-refs").splitlines()
    return next((_only_commit(line.split(" ")[0]) for line in lines if line.endswith(f" {name}")), "")


def _text(path: Path) -> str:
    return read(path, _MAX_BYTES).decode("utf-8").strip()


def _only_commit(text: str) -> str:
    return text if _COMMIT.fullmatch(text) else ""


def _installed_from() -> str:
    """Return the commit that pip recorded when it installed from a repository (PEP 610), or ""."""
    try:
        record = json.loads(distribution("eval-token-issuer").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    return _only_commit(str(record.get("vcs_info", {}).get("commit_id", "")))
