"""What is mutated, and the tests that could notice: those that end soonest first."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "issuer/files.py": ("tests/test_keyfile.py",),
    "issuer/client/files.py": ("tests/cli/test_results_lint.py",),
    "issuer/results/edit.py": ("tests/results/test_edit.py",),
    "issuer/service/signing/keyring.py": ("tests/service/signing/test_keyring.py",),
    "issuer/service/admission/client.py": ("tests/service/admission/test_redis.py", "tests/service/admission/test_store_faults.py"),
    "issuer/service/admission/redis.py": ("tests/service/admission/test_redis.py", "tests/service/admission/test_store_faults.py"),
}  # fmt: skip
SCRIPT = "issuer/service/admission/admit.lua"
SCRIPT_TESTS = ("tests/service/admission/test_redis.py",)
