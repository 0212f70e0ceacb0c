"""The mutated files, and the tests that must notice: the fastest ones first."""

LINE = (
    "tests/issuance/test_issue.py",
    "tests/service/http/test_tokens.py",
    "tests/service/audit/test_sink.py",
    "tests/service/http/test_nonces.py",
)

TARGETS: dict[str, tuple[str, ...]] = {
    "issuer/issuance/identify.py": (*LINE, "tests/service/http/test_disclosure.py"),
    "issuer/issuance/judge.py": ("tests/issuance/test_body.py", *LINE),
    "issuer/issuance/issue.py": LINE,
    "issuer/issuance/steps.py": ("tests/issuance/test_events.py", *LINE, "tests/service/admission/test_secret_file.py"),
    "issuer/issuance/ports.py": LINE,
    "issuer/issuance/events.py": (
        "tests/issuance/test_events.py",
        "tests/issuance/test_issue.py",
        "tests/policy/authoring/test_plan.py",
        "tests/service/audit/test_sink.py",
    ),
    "issuer/issuance/explain.py": ("tests/issuance/test_issue.py", "tests/service/http/test_explain.py"),
    "issuer/token/verify_token.py": (
        "tests/token/test_verify_token.py",
        "tests/verify/test_gaps.py",
        "tests/issuance/test_issue.py",
    ),
    "issuer/verify/check_log.py": ("tests/verify/test_log.py",),
    "issuer/verify/receipts.py": (
        "tests/verify/test_log.py",
        "tests/verify/test_receipt_time.py",
        "tests/verify/test_receipts.py",
    ),
    "issuer/service/signing/keyring.py": (
        "tests/service/signing/test_keyring.py",
        "tests/service/signing/test_active_keys.py",
        "tests/service/signing/test_backends.py",
    ),
    "issuer/service/signing/lifecycle.py": (
        "tests/service/signing/test_lifecycle.py",
        "tests/service/signing/test_observations.py",
    ),
    "issuer/io/redis_client.py": (
        "tests/io/test_redis_client.py",
        "tests/service/admission/test_redis.py",
        "tests/service/admission/test_server_info.py",
    ),
    "issuer/service/admission/redis.py": (
        "tests/service/admission/test_redis.py",
        "tests/issuance/test_issue.py",
        "tests/service/admission/test_server_info.py",
    ),
    "issuer/service/admission/script.py": (
        "tests/service/admission/test_redis.py",
        "tests/service/admission/test_counts.py",
        "tests/service/admission/test_model.py",
    ),
    "issuer/io/files.py": ("tests/io/test_files.py",),
    "issuer/client/files.py": (
        "tests/client/test_files.py",
        "tests/cli/results/test_lint.py",
        "tests/client/test_service.py",
        "tests/client/test_proofs.py",
        "tests/client/test_logged.py",
    ),
    "issuer/relying/logs/monitor.py": ("tests/relying/logs/test_monitor.py", "tests/cli/log/test_log.py"),
    "issuer/relying/logs/proof.py": (
        "tests/relying/logs/test_proof.py",
        "tests/relying/logs/test_asked_logs.py",
        "tests/cli/verify/test_log.py",
    ),
    "issuer/relying/logs/reader.py": (
        "tests/relying/logs/test_tree.py",
        "tests/relying/logs/test_export.py",
        "tests/relying/logs/test_files.py",
        "tests/relying/logs/test_proof.py",
        "tests/cli/log/test_log.py",
    ),
    "issuer/tlog/watch.py": ("tests/tlog/test_watch.py",),
    "issuer/results/edit.py": (
        "tests/results/test_edit.py",
        "tests/client/hub/test_merge.py",
        "tests/cli/results/test_lint.py",
    ),
}
# The two parts of the admission script: their mutants are written by hand, in a file of the part's name.
SCRIPTS: dict[str, tuple[str, ...]] = {
    f"issuer/service/admission/{part}.lua": tuple(f"tests/service/admission/test_{name}.py" for name in tests)
    for part, tests in {"admit": ("redis", "model", "counts"), "count": ("counts",)}.items()
}
