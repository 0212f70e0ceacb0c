"""Whose policy is kept under a digest: the service's own files, and what does not count."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from issuer.service.policies.archive import PolicyArchive
from issuer.service.policies.watcher import keep_policies
from tests.support.policies import POLICY, changed, load


def keep(folder: Path, raw: bytes, name: str = "") -> str:
    name = name or hashlib.sha256(raw).hexdigest()
    (folder / f"{name}.json").write_bytes(raw)
    return f"sha256:{name}"


def test_every_policy_that_was_ever_loaded_is_known_by_its_digest(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    known = PolicyArchive(kept)
    earlier = load(tmp_path, inspect_ai=POLICY)
    (digest,) = earlier.digests
    assert known.integration_of(digest) is None
    keep_policies(earlier, kept)
    later = load(tmp_path, inspect_ai=changed(POLICY, "ttl_s: 3600", "ttl_s: 1800"))
    keep_policies(later, kept)
    assert {known.integration_of(each) for each in (*earlier.digests, *later.digests)} == {"inspect-ai"}


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"policy":{}}', b'{"policy":{"integration":7}}', b"\xff"])
def test_what_is_no_policy_is_nobody_s(tmp_path: Path, raw: bytes) -> None:
    assert PolicyArchive(tmp_path).integration_of(keep(tmp_path, raw)) is None


def test_a_file_that_was_changed_is_nobody_s(tmp_path: Path) -> None:
    raw = b'{"policy":{"integration":"inspect-ai"}}'
    assert PolicyArchive(tmp_path).integration_of(keep(tmp_path, raw)) == "inspect-ai"
    assert PolicyArchive(tmp_path).integration_of(keep(tmp_path, raw, "0" * 64)) is None


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:..", "sha256:" + "../" * 21 + "x", "sha256:" + "0" * 64, "x" * 64]
)
def test_what_is_no_digest_of_a_kept_file_is_nobody_s(tmp_path: Path, digest: str) -> None:
    assert PolicyArchive(tmp_path).integration_of(digest) is None
