"""The integration whose policy is archived under a digest."""

import hashlib
from pathlib import Path

from issuer.service.policies.archive import PolicyArchive
from issuer.service.policies.watcher import keep_policies
from tests.support.policies import POLICY, changed, load


def keep(folder: Path, raw: bytes, name: str = "") -> str:
    name = name or hashlib.sha256(raw).hexdigest()
    (folder / f"{name}.json").write_bytes(raw)
    return f"sha256:{name}"


def test_every_loaded_policy_is_known_by_its_digest(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    known = PolicyArchive(kept)
    earlier = load(tmp_path, inspect_ai=POLICY)
    (digest,) = earlier.digests
    assert known.integration_of(digest) is None
    keep_policies(earlier, kept)
    later = load(tmp_path, inspect_ai=changed(POLICY, "ttl_s: 3600", "ttl_s: 1800"))
    keep_policies(later, kept)
    assert {known.integration_of(each) for each in (*earlier.digests, *later.digests)} == {"inspect-ai"}


def test_any_other_file_or_digest_is_unknown(tmp_path: Path) -> None:
    archive, raw = PolicyArchive(tmp_path), b'{"policy":{"integration":"inspect-ai"}}'
    assert archive.integration_of(keep(tmp_path, raw)) == "inspect-ai"
    others = [
        keep(tmp_path, each) for each in (b"", b"{}", b"[]", b'{"policy":{}}', b'{"policy":{"integration":7}}', b"\xff")
    ]
    changed_later = keep(tmp_path, raw, "0" * 64)
    spellings = ["", "sha256:", "sha256:..", "sha256:" + "../" * 21 + "x", "sha256:" + "1" * 64, "x" * 64]
    for digest in (*others, changed_later, *spellings):
        assert archive.integration_of(digest) is None, digest
