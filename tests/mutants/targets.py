"""What is mutated, and the tests that could notice: those that end soonest first."""

from __future__ import annotations

LINE = (
    "tests/issuance/test_issue.py",
    "tests/service/http/test_tokens.py",
    "tests/service/test_audit.py",
    "tests/service/http/test_nonces.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "issuer/issuance/identify.py": LINE,
    "issuer/issuance/judge.py": LINE,
    "issuer/issuance/issue.py": LINE,
    "issuer/issuance/recall.py": ("tests/issuance/test_issue.py",),
    "issuer/issuance/store_secret.py": ("tests/issuance/test_issue.py", "tests/service/admission/test_secret_file.py"),
    "issuer/issuance/refuse.py": LINE,
    "issuer/issuance/steps.py": LINE,
    "issuer/issuance/ports.py": LINE,
    "issuer/issuance/events.py": (
        "tests/issuance/test_events.py",
        "tests/issuance/test_issue.py",
        "tests/policy/authoring/test_plan.py",
        "tests/service/test_audit.py",
    ),
    "issuer/issuance/explain.py": ("tests/issuance/test_issue.py", "tests/service/http/test_explain.py"),
    "issuer/issuance/body.py": ("tests/issuance/test_body.py", "tests/issuance/test_issue.py"),
    "issuer/verify_token.py": (
        "tests/test_verify_token.py",
        "tests/verify/test_gaps.py",
        "tests/issuance/test_issue.py",
    ),
    "issuer/verify/check_log.py": ("tests/verify/test_log.py",),
    "issuer/verify/moment.py": (
        "tests/verify/test_log.py",
        "tests/verify/test_received.py",
        "tests/verify/test_receipts.py",
    ),
    "issuer/service/signing/keyring.py": ("tests/service/signing/test_keyring.py",),
    "issuer/service/signing/life.py": ("tests/service/signing/test_life.py",),
    "issuer/service/signing/seen.py": ("tests/service/signing/test_seen.py",),
    "issuer/service/admission/client.py": (
        "tests/service/admission/test_client.py",
        "tests/service/admission/test_redis.py",
    ),
    "issuer/service/admission/redis.py": ("tests/service/admission/test_redis.py",),
    "issuer/service/admission/script.py": (
        "tests/service/admission/test_redis.py",
        "tests/service/admission/test_counts.py",
    ),
    "issuer/files.py": ("tests/test_files.py",),
    "issuer/client/files.py": (
        "tests/client/test_files.py",
        "tests/cli/test_results_lint.py",
        "tests/client/test_service.py",
    ),
    "issuer/relying/log_export.py": ("tests/relying/test_log_export.py",),
    "issuer/relying/log_monitor.py": ("tests/relying/test_log_monitor.py",),
    "issuer/relying/log_proof.py": ("tests/relying/test_log_proof.py",),
    "issuer/relying/log_tree.py": ("tests/relying/test_log_tree.py",),
    "issuer/tlog/watch.py": ("tests/tlog/test_watch.py",),
    "issuer/results/edit.py": ("tests/results/test_edit.py", "tests/cli/test_results_lint.py"),
}
# The two parts of the admission script: their mutants are written by hand, in a file of the part's name.
SCRIPTS: dict[str, tuple[str, ...]] = {
    f"issuer/service/admission/{part}.lua": tuple(f"tests/service/admission/test_{name}.py" for name in tests)
    for part, tests in {"admit": ("redis", "model", "counts"), "count": ("counts",)}.items()
}
