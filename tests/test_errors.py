"""The registry of codes: append-only, complete for contract section 5, and written for people."""

import re

from issuer.codes import Code
from issuer.errors import Fault, InputError, IssuerError, Place, Refused, SetupError, Undecided

# Contract section 5, "Errors". A code is never renamed, removed or given another status.
TABLE = {
    400: """request.malformed request.duplicate_member request.unknown_member request.framing nonce.required nonce.invalid
        request.query exchange.parameter exchange.grant_type exchange.actor exchange.scope exchange.target
        exchange.details""",
    404: "request.not_found log.no_leaf",
    405: "request.method",
    408: "request.timeout",
    413: "request.too_large",
    415: "request.media_type",
    401: """identity.missing identity.malformed identity.issuer_unknown identity.algorithm_refused identity.key_unknown
        identity.signature_invalid identity.expired identity.not_yet_valid identity.too_old identity.lifetime_too_long
        identity.audience_mismatch identity.type_refused identity.inactive identity.credential_unknown exchange.client""",
    403: """integration.unknown integration.ambiguous integration.suspended integration.staged integration.stopped
        identity.claim_missing identity.claim_mismatch identity.event_forbidden identity.registration_expired policy.framework policy.version
        policy.benchmark policy.model policy.task policy.metric policy.audience policy.command policy.definition abuse.quarantined
        identity.network_forbidden""",
    409: "token.revoked identity.replayed nonce.reused",
    422: """claims.invalid claims.number claims.duplicate_metric claims.revision claims.secret claims.digest_mismatch
        claims.too_large details.invalid""",
    429: "rate.source rate.identity rate.integration",
    500: "internal",
    503: """service.busy dependency.state dependency.state_reset dependency.issuer_keys dependency.signer dependency.log
        dependency.audit dependency.credentials dependency.introspection dependency.log_read log.pending""",
}
# Reported for files and at start, never over HTTP.
FILES = """file.unreadable file.unsafe file.too_large file.encoding file.syntax file.duplicate_key file.feature file.scalar
    file.number file.schema file.unknown_member file.rule jws.malformed policy.test_failed lint.untested lint.shadowed lint.pin_unnamed lint.pattern_empty lint.no_effect
    lint.case lint.pattern_any lint.framework_shared lint.name_unpinned lint.identity_expired result.file_name result.unbound
    result.profile result.unknown_member result.token result.value result.repeated result.undefined benchmark.absent benchmark.rule
    log.absent log.unrecorded log.rollback
    key.unsafe key.unusable key.history data.missing key.step key.unknown witness.state settings.invalid cache.unsafe receipt.folder state.unsafe state.unreachable
    dependency.authorization_server dependency.key_set answer.unverified log.malformed revocations.full
    credential.absent credential.unusable url.invalid dependency.server pat.unknown package.missing machine.failed
    service.address log.policy log.signature log.quorum log.unverified log.unavailable dev.absent dev.job policy.new
    hub.token hub.forbidden hub.gated hub.not_found hub.renamed hub.not_model hub.moved hub.proposed hub.refused hub.unavailable"""


def test_the_registry_has_these_codes_with_their_statuses() -> None:
    """A new code must be in the registry and in this list. An old code never leaves them. A code for files has status 0."""
    listed = {code: status for status, codes in TABLE.items() for code in codes.split()} | dict.fromkeys(
        FILES.split(), 0
    )
    assert {str(code): code.meaning.status for code in Code} == listed
    assert {Code.named(code) for code in listed} == set(Code)


def test_codes_are_unique_words() -> None:
    assert len({str(code) for code in Code}) == len(list(Code)) == len(Code.__members__)
    for name, code in Code.__members__.items():
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+|internal", code)
        assert name == code.replace(".", "_").upper()
    unknown = ("", "INTERNAL", "internal ", "internal\n", "request", "request.malformed.x", "__init__")
    assert [text for text in unknown if Code.named(text) is not None] == []


def test_titles_and_remedies_are_sentences_and_differ() -> None:
    for code in Code:
        for text in (code.meaning.title, code.meaning.remedy):
            assert re.fullmatch(r"[A-Z`][^\n]*[A-Za-z0-9)`]\.", text), text
            assert "  " not in text
            assert len(text) <= 160
        assert code.meaning.title != code.meaning.remedy
    titles = [code.meaning.title for code in Code if code.meaning.status]
    assert len(set(titles)) == len(titles)

    for code in (Code.IDENTITY_REPLAYED, Code.NONCE_REUSED):  # also true of the identical request
        assert "by another request, or by this one, whose token has expired or lost its key" in code.meaning.title
        assert "already used for another" not in code.meaning.title + code.meaning.remedy


def test_only_an_undecided_request_may_be_sent_again() -> None:
    retryable = {code for code in Code if code.meaning.status in {408, 429} or code.meaning.status >= 500}
    assert {code for code in Code if code.retryable} == retryable


def test_an_error_prints_its_place_the_code_of_its_first_fault_and_its_detail() -> None:
    title = "dependency.state: The service cannot reach its store of limits and uses."
    assert str(Undecided(Code.DEPENDENCY_STATE)) == title
    assert str(Refused(Code.INTERNAL, "so")) == "internal: so"
    # As editors read it.
    assert str(InputError(Code.FILE_RULE, "no", Place("a.yaml", 3, 7), "/x")) == "a.yaml:3:7: file.rule: no"
    assert str(InputError(Code.FILE_UNREADABLE, "gone", Place("a.yaml"))) == "a.yaml: file.unreadable: gone"
    assert {issubclass(kind, IssuerError) for kind in (Refused, Undecided, InputError, SetupError)} == {True}
    faults = [Fault(Code.POLICY_TASK, "/claims/task_id", "no"), Fault(Code.POLICY_MODEL, "/claims/model_repo", "not")]
    refusal = Refused.of(faults)
    assert (refusal.code, refusal.detail, refusal.faults) == (Code.POLICY_TASK, "no", tuple(faults))
    assert Refused.at(Code.POLICY_TASK, "/x").faults == (Fault(Code.POLICY_TASK, "/x", Code.POLICY_TASK.meaning.title),)
