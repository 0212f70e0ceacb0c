"""The registry of error codes. Codes are never renamed, removed or given another meaning (contract section 5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a code: its HTTP status (0: never in an HTTP answer), what happened, and the reader's next
    step."""

    status: int
    title: str
    remedy: str


class Code(enum.StrEnum):
    """The registry. Each code has a `meaning`, which the page `/errors/{code}` shows to people."""

    meaning: Meaning

    def __new__(cls, value: str, status: int, title: str, remedy: str) -> Code:
        """Make a member that is text and has its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = Meaning(status, title, remedy)
        return member

    @classmethod
    def named(cls, text: str) -> Code | None:
        """Return the code with this text, or None."""
        code = cls._value2member_map_.get(text)
        return code if isinstance(code, cls) else None

    @property
    def retryable(self) -> bool:
        """Whether the caller may send the same request again. After 408, 429 and 5xx, the service has decided
        nothing."""
        return self.meaning.status in {408, 429, 500, 503}

    # fmt: off
    # -- the request ------------------------------------------------------------------------------------------------
    REQUEST_MALFORMED = (
        "request.malformed", 400, "The request body is not the JSON that this endpoint reads.",
        "Compare the body with the example in /openapi.json, and send it as JSON in UTF-8.",
    )
    REQUEST_DUPLICATE_MEMBER = (
        "request.duplicate_member", 400, "A JSON object names the same member twice.",
        "Keep one of the two members: readers disagree about which one counts.",
    )
    REQUEST_UNKNOWN_MEMBER = (
        "request.unknown_member", 400, "The request has a member that this endpoint does not know.",
        "Remove the member or correct its spelling. The service never ignores or signs unknown members.",
    )
    REQUEST_QUERY = (
        "request.query", 400, "The URL's query has an unknown parameter, or a wrong value.",
        "See the endpoint in /openapi.json. Send only its parameters, each once, with the same spelling.",
    )
    REQUEST_NOT_FOUND = (
        "request.not_found", 404, "This service has no page at this path.",
        "See /.well-known/eval-token-issuer for the endpoints of this service.",
    )
    REQUEST_METHOD = (
        "request.method", 405, "This path does not allow that HTTP method.",
        "Use one of the methods in the `Allow` header.",
    )
    REQUEST_TIMEOUT = (
        "request.timeout", 408, "The request body did not arrive in time.",
        "Send the whole body within 10 seconds, and at least 1 KiB/s after the first 5 seconds.",
    )
    REQUEST_TOO_LARGE = (
        "request.too_large", 413, "The request body is larger than this endpoint allows.",
        "Send at most 64 KiB to /tokens, 1 MiB to /tokens/batch and 96 KiB to /oauth/token. For large evidence, put a "
        "URL into `artifacts`.",
    )
    REQUEST_MEDIA_TYPE = (
        "request.media_type", 415, "The request body does not have the media type of this endpoint.",
        "Send `Content-Type: application/json`, or to /oauth/token a form: `application/x-www-form-urlencoded`.",
    )
    REQUEST_FRAMING = (
        "request.framing", 400,
        "The HTTP message is malformed or ambiguous, or its headers or trailers are too large.",
        "Send one Host, and one Content-Length or `Transfer-Encoding: chunked`; at most 64 KiB of headers, chunk "
        "sizes and trailers; no body with `Connection: Upgrade`.",
    )
    NONCE_REQUIRED = (
        "nonce.required", 400, "A reusable credential needs a nonce in every request.",
        "Send `nonce`: at least 22 base64url characters of fresh randomness. Send the same nonce on a retry.",
    )
    NONCE_INVALID = (
        "nonce.invalid", 400, "The nonce is malformed, or the credential does not allow one.",
        "Send 22 to 128 base64url characters. With an OIDC identity token, which needs no nonce, send none.",
    )

    EXCHANGE_PARAMETER = (
        "exchange.parameter", 400, "A parameter of the token exchange is missing, given twice or not allowed.",
        "Send each parameter of the form once, as in the example of /oauth/token in /openapi.json.",
    )
    EXCHANGE_GRANT_TYPE = (
        "exchange.grant_type", 400, "This endpoint has no such grant type.",
        "Send `grant_type=urn:ietf:params:oauth:grant-type:token-exchange` (RFC 8693).",
    )
    EXCHANGE_CLIENT = (
        "exchange.client", 401, "The request tries to authenticate an OAuth client, and this issuer has none.",
        "Send neither a client secret nor an Authorization header: `subject_token` says who the caller is.",
    )
    EXCHANGE_ACTOR = (
        "exchange.actor", 400, "This issuer has no delegation: it does not take `actor_token`.",
        "Leave `actor_token` out, and send the identity of the job itself as `subject_token`.",
    )
    EXCHANGE_SCOPE = (
        "exchange.scope", 400, "A verify token has no scope.",
        "Leave `scope` out: the integration's policy decides what may be signed.",
    )
    EXCHANGE_TARGET = (
        "exchange.target", 400, "A verify token is for one relying party, and the request names several.",
        "Send `audience` or `resource`, once. Without both, the token is for the integration's default audience.",
    )
    EXCHANGE_DETAILS = (
        "exchange.details", 400, "`authorization_details` is not a JSON array of one `eval_result`.",
        "Send an array of one object: `type` (`eval_result`), `claims`, `details` and so on, as in /openapi.json.",
    )

    LOG_NO_LEAF = (
        "log.no_leaf", 404, "The transparency log has no such leaf.",
        "Check `iat` and the token's digest. If both are right, refuse the token: its issuer's log does not have it.",
    )

    # -- the identity -----------------------------------------------------------------------------------------------
    IDENTITY_MISSING = (
        "identity.missing", 401, "The request has no usable identity.",
        "Send exactly one header `Authorization: Bearer <identity token>`.",
    )
    IDENTITY_MALFORMED = (
        "identity.malformed", 401, "The credential does not have the form of any identity provider of this issuer.",
        "Send the credential exactly as its provider gave it: complete, without quotes or line breaks. "
        "/.well-known/eval-token-issuer lists the issuer's providers.",
    )
    IDENTITY_ISSUER_UNKNOWN = (
        "identity.issuer_unknown", 401, "The token comes from a provider that this issuer does not know.",
        "Compare `iss` byte for byte with /.well-known/eval-token-issuer, or ask the operator to add the provider.",
    )
    IDENTITY_ALGORITHM_REFUSED = (
        "identity.algorithm_refused", 401, "The token's algorithm is not registered for its provider.",
        "Configure the provider to sign with a registered asymmetric algorithm. `none` and HMAC are never allowed.",
    )
    IDENTITY_KEY_UNKNOWN = (
        "identity.key_unknown", 401, "The provider publishes no usable key with the token's `kid`.",
        "Send a fresh identity token. If that also fails, tell the operator: the provider's key set is wrong.",
    )
    IDENTITY_SIGNATURE_INVALID = (
        "identity.signature_invalid", 401, "The token's signature does not verify with the provider's key.",
        "Send the token exactly as the provider gave it: one changed character makes the signature invalid.",
    )
    IDENTITY_EXPIRED = (
        "identity.expired", 401, "The identity token has expired.",
        "Fetch a fresh identity token, or access token, immediately before the request.",
    )
    IDENTITY_NOT_YET_VALID = (
        "identity.not_yet_valid", 401, "The identity token is not valid yet, or was issued in the future.",
        "Check the clocks of the provider and of this service: they may differ by 30 seconds.",
    )
    IDENTITY_TOO_OLD = (
        "identity.too_old", 401, "The identity token was issued too long ago.",
        "Fetch a fresh identity token immediately before the request, in the step that sends it.",
    )
    IDENTITY_LIFETIME_TOO_LONG = (
        "identity.lifetime_too_long", 401, "The identity token's lifetime exceeds its provider's `max_lifetime_s`.",
        "Configure the provider for a shorter lifetime, or ask the operator to raise its `max_lifetime_s`.",
    )
    IDENTITY_AUDIENCE_MISMATCH = (
        "identity.audience_mismatch", 401, "The identity token is for another audience.",
        "Request a token with exactly one audience: the provider's `audience` in /.well-known/eval-token-issuer.",
    )
    IDENTITY_TYPE_REFUSED = (
        "identity.type_refused", 401, "The token's `typ` is not that of an identity token.",
        "Send the identity token of the CI provider, not an access token, a logout token or a verify token.",
    )
    IDENTITY_INACTIVE = (
        "identity.inactive", 401, "This token is not active: it is revoked, expired, or unknown to its provider.",
        "Fetch a fresh token. If it is a personal access token, ask the operator for another one.",
    )
    IDENTITY_CREDENTIAL_UNKNOWN = (
        "identity.credential_unknown", 401, "This credential is not registered.",
        "Check the credential for typing errors, or ask the operator for a new one.",
    )

    # -- what a registered identity may do --------------------------------------------------------------------------
    INTEGRATION_UNKNOWN = (
        "integration.unknown", 403, "The token is genuine, but this identity is not registered for any integration.",
        "Ask the operator to register the ids in the answer. If you named an `integration`, check its spelling.",
    )
    INTEGRATION_AMBIGUOUS = (
        "integration.ambiguous", 403, "More than one registered identity matches this token.",
        "Ask the operator to add a pin or an exact requirement that only one of these identities has.",
    )
    INTEGRATION_SUSPENDED = (
        "integration.suspended", 403, "The integration is suspended.",
        "Ask the contacts of the integration, or the operator of this service.",
    )
    INTEGRATION_STOPPED = (
        "integration.stopped", 403, "The operator has stopped this caller, or all callers, for now.",
        "Wait until the operator lifts the stop. Then send the same request again, with a fresh identity.",
    )
    INTEGRATION_STAGED = (
        "integration.staged", 403, "The integration is staged: its requests are decided and audited, but get no token.",
        "Ask the operator to activate the integration.",
    )
    IDENTITY_CLAIM_MISSING = (
        "identity.claim_missing", 403, "The identity token lacks a claim that the integration's policy requires.",
        "Run the job in a way that makes the provider set the claim, for example in the required environment.",
    )
    IDENTITY_CLAIM_MISMATCH = (
        "identity.claim_mismatch", 403, "A claim of the identity token is not what the integration's policy requires.",
        "Use the registered workflow, branch, environment or scope, or ask the operator to change the policy.",
    )
    IDENTITY_EVENT_FORBIDDEN = (
        "identity.event_forbidden", 403, "An event that is not allowed started the job.",
        "Start the job by a push, a schedule, a release or by hand. Events that strangers can cause are refused.",
    )
    IDENTITY_REGISTRATION_EXPIRED = (
        "identity.registration_expired", 403, "The registration of this identity has expired.",
        "Ask the operator to set a later `expires` for this identity in the policy.",
    )
    POLICY_FRAMEWORK = (
        "policy.framework", 403, "The integration may not speak for this framework.",
        "Send the name of a framework for which the integration is registered.",
    )
    POLICY_VERSION = (
        "policy.version", 403, "The integration may not speak for this version of the framework.",
        "Run a registered version, or ask the operator to extend the range of versions.",
    )
    POLICY_BENCHMARK = (
        "policy.benchmark", 403, "The integration may not have results of this benchmark signed.",
        "Ask the operator to grant the benchmark repository.",
    )
    POLICY_MODEL = (
        "policy.model", 403, "The integration may not have results of this model signed.",
        "Ask the operator to grant the model repository.",
    )
    POLICY_TASK = (
        "policy.task", 403, "The integration may not have results of this task signed.",
        "Ask the operator to grant the task.",
    )
    POLICY_METRIC = (
        "policy.metric", 403, "The integration may not have this metric signed.",
        "Ask the operator to grant the metric.",
    )
    POLICY_AUDIENCE = (
        "policy.audience", 403, "The integration may not have tokens for this relying party.",
        "Leave `audience` out, or send one for which the integration is registered.",
    )
    POLICY_COMMAND = (
        "policy.command", 403, "This integration's policy requires the command of the run, and the request has none.",
        "Send `framework.command`: the command line that ran the evaluation, without secrets.",
    )
    POLICY_DEFINITION = (
        "policy.definition", 403, "The integration may not have results of the benchmark at this commit signed.",
        "Evaluate at a commit that the policy's `definitions` list, or ask the operator to add this one.",
    )
    ABUSE_QUARANTINED = (
        "abuse.quarantined", 403, "This identity is quarantined for some time.",
        "The answer has the reason and the end. Remove the cause before the end, or ask the operator of this service.",
    )
    IDENTITY_NETWORK_FORBIDDEN = (
        "identity.network_forbidden", 403, "This credential may not be used from this address.",
        "Send the request from a network that this credential allows, or ask the operator for another one.",
    )
    IDENTITY_REPLAYED = (
        "identity.replayed", 409,
        "This identity token is spent: by another request, or by this one, whose token has expired or lost its key.",
        "Fetch a fresh identity token. Only the identical request may reuse one, while its token is good.",
    )
    NONCE_REUSED = (
        "nonce.reused", 409,
        "This nonce is spent: by another request, or by this one, whose token has expired or lost its key.",
        "Use a fresh nonce. Only the identical request may reuse one, while its token is good.",
    )
    TOKEN_REVOKED = (
        "token.revoked", 409, "The issuer has revoked this token, or this integration's tokens from this time.",
        "Do not publish it. Ask the operator for the reason. Results that prove good need a new request and identity.",
    )

    # -- what a run says --------------------------------------------------------------------------------------------
    CLAIMS_INVALID = (
        "claims.invalid", 422, "The run claims break a rule of the data contract.",
        "Correct the members that the answer names. /schemas has the schema of the claims.",
    )
    CLAIMS_NUMBER = (
        "claims.number", 422, "A double cannot represent a number exactly.",
        "Send finite numbers with at most 17 significant digits, and integers up to 2^53 - 1.",
    )
    CLAIMS_DUPLICATE_METRIC = (
        "claims.duplicate_metric", 422, "The request has the same metric and slice, or the same result, twice.",
        "Send each pair of `metric_id` and `slice` once per result, and each result once per batch.",
    )
    CLAIMS_REVISION = (
        "claims.revision", 422, "A revision is not a full commit hash.",
        "Send all 40 (or 64) lowercase hexadecimal characters; short hashes can be forged in seconds.",
    )
    CLAIMS_SECRET = (
        "claims.secret", 422, "The command, or another text of the result, seems to contain a secret.",
        "Remove it, or name an environment variable ($HF_TOKEN). Replace the secret, because it has been sent.",
    )
    CLAIMS_DIGEST_MISMATCH = (
        "claims.digest_mismatch", 422, "A digest in the request does not match the content of the request.",
        "Compare your hash's input with RFC 8785 (JCS), or send no digest. `issuer results digest` computes both.",
    )
    CLAIMS_TOO_LARGE = (
        "claims.too_large", 422, "The token would be larger than 16 KiB, or than the signing key can sign.",
        "Send fewer metrics, shorter identifiers or a shorter command.",
    )
    DETAILS_INVALID = (
        "details.invalid", 422, "The details of the run break a rule of the data contract.",
        "Correct the members that the answer names. /schemas has the schema of the details.",
    )

    # -- not now ----------------------------------------------------------------------------------------------------
    RATE_SOURCE = (
        "rate.source", 429, "Too many refused requests came from this address.",
        "Wait as long as `Retry-After` says. Genuine tokens from this address are still served.",
    )
    RATE_IDENTITY = (
        "rate.identity", 429, "This identity has reached its rate limit.",
        "Wait as long as `Retry-After` says, and send the same request again.",
    )
    RATE_INTEGRATION = (
        "rate.integration", 429, "This integration has reached its rate limit.",
        "Wait as long as `Retry-After` says, and send the same request again.",
    )
    INTERNAL = (
        "internal", 500, "The service failed unexpectedly.",
        "Send the same request again. If it fails again, report `request_id` to the operator.",
    )
    SERVICE_BUSY = (
        "service.busy", 503, "This service has as many requests in progress as it allows.",
        "Wait as long as `Retry-After` says, and send the same request again, with the same identity token.",
    )
    DEPENDENCY_STATE = (
        "dependency.state", 503, "The service cannot reach its store of limits and uses.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_STATE_RESET = (
        "dependency.state_reset", 503, "The service's store has lost its records since this identity token was issued.",
        "Fetch a fresh identity token, and send the request again.",
    )
    DEPENDENCY_ISSUER_KEYS = (
        "dependency.issuer_keys", 503, "The service cannot get the identity provider's keys right now.",
        "Send the same request again.",
    )
    DEPENDENCY_INTROSPECTION = (
        "dependency.introspection", 503, "The service cannot ask the identity provider about this token right now.",
        "Send the same request again, with the same nonce.",
    )
    DEPENDENCY_CREDENTIALS = (
        "dependency.credentials", 503, "The service cannot read its registered personal access tokens right now.",
        "Send the same request again, with the same nonce.",
    )
    DEPENDENCY_SIGNER = (
        "dependency.signer", 503, "The service cannot use its signing key right now.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_LOG = (
        "dependency.log", 503, "The service cannot write to the transparency log right now.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_LOG_READ = (
        "dependency.log_read", 503, "The service cannot read the transparency log right now.",
        "Wait as long as `Retry-After` says, and ask again. This answer does not say that the log lacks anything.",
    )
    LOG_PENDING = (
        "log.pending", 503, "No checkpoint that includes this leaf has reached the quorum of witnesses yet.",
        "Wait as long as `Retry-After` says, and ask again. The leaf is in the log, and stays there.",
    )
    DEPENDENCY_AUDIT = (
        "dependency.audit", 503, "The service cannot write its audit file right now, and signs nothing without it.",
        "Send the same request again, with the same identity token.",
    )

    # -- files ------------------------------------------------------------------------------------------------------
    FILE_UNREADABLE = (
        "file.unreadable", 0, "The file does not exist, or cannot be read.",
        "Check the path, and the file's owner and mode with `ls -l`.",
    )
    FILE_TOO_LARGE = (
        "file.too_large", 0, "The file has more bytes, levels or values than this kind of file may have.",
        "Make the file smaller, or split it. The message names the limit.",
    )
    FILE_ENCODING = (
        "file.encoding", 0, "The file is not plain UTF-8, or has characters that readers disagree about.",
        "Save the file as UTF-8 without a byte order mark. If the message names a character, remove it.",
    )
    FILE_SYNTAX = (
        "file.syntax", 0, "The file is not well-formed YAML or JSON.",
        "Correct the text at the line and column that the message names.",
    )
    FILE_DUPLICATE_KEY = (
        "file.duplicate_key", 0, "A map has the same key twice.",
        "Keep one of the two keys: readers disagree about which one counts.",
    )
    FILE_FEATURE = (
        "file.feature", 0, "The file uses a YAML feature that is not allowed here.",
        "Write the value itself, without anchors, aliases, tags, merge keys or several documents.",
    )
    FILE_SCALAR = (
        "file.scalar", 0, "YAML readers disagree about the meaning of this plain value.",
        "Put text in double quotes. Write a number as a plain decimal number.",
    )
    FILE_NUMBER = (
        "file.number", 0, "A double cannot represent a number exactly.",
        "Write finite numbers with at most 17 significant digits, and integers up to 2^53 - 1.",
    )
    FILE_UNSAFE = (
        "file.unsafe", 0, "Other users may write to a file or folder that decides what is signed.",
        "Check the content, then run the `chmod` command in the message.",
    )
    FILE_SCHEMA = (
        "file.schema", 0, "The file lacks a member, or has one of the wrong type.",
        "Correct the member that the message names. The README for this kind of file has an example of each member.",
    )
    FILE_UNKNOWN_MEMBER = (
        "file.unknown_member", 0, "The file has an unknown member.",
        "Correct the spelling of the member, or remove it. Unknown members are never ignored.",
    )
    FILE_RULE = (
        "file.rule", 0, "The file breaks a rule for this kind of file.",
        "Change the value at the place that the message names. The message says what is allowed.",
    )
    POLICY_TEST_FAILED = (
        "policy.test_failed", 0, "A policy decides one of its tests differently from what the test expects.",
        "Run `issuer policy test` for the reason. Correct the test if it is wrong, otherwise the policy.",
    )
    LINT_UNTESTED = (
        "lint.untested", 0, "A policy has no test, or none that expects a refusal.",
        "Add `tests` to the file: a run that must get a token, and the most similar run that must not.",
    )
    LINT_SHADOWED = (
        "lint.shadowed", 0, "A rule of a policy has no effect, because another one already grants more.",
        "Remove the wider grant or this one.",
    )
    LINT_PATTERN_ANY = (
        "lint.pattern_any", 0, "Nearly every value meets a requirement.",
        "Name the values that you mean, or remove the requirement.",
    )
    LINT_PATTERN_EMPTY = (
        "lint.pattern_empty", 0, "The empty text meets a pattern.",
        "Change the pattern to require at least one character.",
    )
    LINT_NAME_UNPINNED = (
        "lint.name_unpinned", 0, "A policy requires a readable name without the id that it belongs to.",
        "Pin the id. Another party can take over a name, so a wrong name only causes a warning.",
    )
    LINT_PIN_UNNAMED = (
        "lint.pin_unnamed", 0, "A policy pins an id without its readable name.",
        "Give the name under `names`. If it changes later, you get a warning.",
    )
    LINT_IDENTITY_EXPIRED = (
        "lint.identity_expired", 0, "An identity has expired.",
        "Set a later `expires` for the identity, or remove it from the policy.",
    )
    LINT_CASE = (
        "lint.case", 0, "A value has upper and lower case letters that tokens do not have.",
        "Spell the value exactly as the provider does: values are compared byte for byte.",
    )
    LINT_FRAMEWORK_SHARED = (
        "lint.framework_shared", 0, "Two integrations may speak for one framework.",
        "Grant it only to the integration that owns it. Add the other callers as identities of that integration.",
    )
    LINT_NO_EFFECT = (
        "lint.no_effect", 0, "An abuse rule of a policy cannot have an effect.",
        "Give the rule a value that has an effect, or remove it, so that its default applies.",
    )
    RESULT_FILE_NAME = (
        "result.file_name", 0, "The name of a result file does not match its benchmark.",
        "Rename the file as the message says. In `.eval_results/`, each benchmark has a separate file.",
    )
    RESULT_UNBOUND = (
        "result.unbound", 0, "An entry lacks a member that a verify token binds.",
        "Add the member. Without it, this entry cannot get a token, and no token for it verifies.",
    )
    RESULT_PROFILE = (
        "result.profile", 0, "An entry does not have the form that readers of this profile need.",
        "Run `issuer results fmt --profile PROFILE --benchmark eval.yaml`, or lint it with another `--profile`.",
    )
    RESULT_UNKNOWN_MEMBER = (
        "result.unknown_member", 0, "An entry has an unknown member.",
        "Correct its spelling, or move it under `run`. The content digest also binds unknown members.",
    )
    RESULT_TOKEN = (
        "result.token", 0, "The verify token of an entry is not a token.",
        "Request a token with `issuer token request`, or remove the member.",
    )
    RESULT_VALUE = (
        "result.value", 0, "`value` is not the score of the primary metric.",
        "Write the score of the primary metric, without a slice, or remove `value`.",
    )
    RESULT_REPEATED = (
        "result.repeated", 0, "An entry repeats another entry of the file.",
        "Keep one of the two entries.",
    )
    RESULT_UNDEFINED = (
        "result.undefined", 0, "An entry names a task or metric that the benchmark does not define.",
        "Use an id of the benchmark's `eval.yaml`, as of the entry's `dataset.revision`.",
    )
    BENCHMARK_ABSENT = (
        "benchmark.absent", 0, "The file is YAML, but not a benchmark definition.",
        "Give a benchmark's `eval.yaml`: a map with `tasks`, and in the target form also with `metrics`.",
    )
    BENCHMARK_RULE = (
        "benchmark.rule", 0, "A benchmark definition breaks a rule.",
        "Correct or add the member at the place that the message names.",
    )
    JWS_MALFORMED = (
        "jws.malformed", 0, "A token, receipt or list is not a compact JWS, the form of signed JSON.",
        "Use the text exactly as it was issued. Check it for line breaks and quotes, and that it is complete.",
    )
    KEY_UNSAFE = (
        "key.unsafe", 0, "Other users can read a private key file, or it is not a private key file.",
        "Set the file's mode to 0600, and its owner to the service's user.",
    )
    KEY_UNUSABLE = (
        "key.unusable", 0, "A key is of the wrong kind, too weak, or encrypted without a passphrase.",
        "See keys/README.md. `issuer keys generate` makes a signing key, `issuer log init` the key of a log.",
    )
    KEY_HISTORY = (
        "key.history", 0, "The history of the signing keys cannot be read, or does not allow this.",
        "If it is missing, mount `data`. If a line is damaged, restore the backup. keys/README.md has allowed steps.",
    )
    DATA_MISSING = (
        "data.missing", 0, "A part of `data` is missing that this issuer had.",
        "Mount the disk, or put the part back from the backup: deploy/STATE.md says what the loss of each part means.",
    )
    KEY_STEP = (
        "key.step", 0, "This step in a key's lifecycle is not allowed now.",
        "Run `issuer keys rotate --plan` to see the next steps and their times.",
    )
    KEY_UNKNOWN = (
        "key.unknown", 0, "This issuer has no signing key with this id.",
        "Give an id that `issuer keys list` shows.",
    )
    REVOCATIONS_FULL = (
        "revocations.full", 0, "The list of revocations, or their record, is full.",
        "Revoke an interval of the integration, in place of single tokens, or revoke the signing key.",
    )
    WITNESS_STATE = (
        "witness.state", 0, "The state of a transparency log's witness is missing or malformed, or exists already.",
        "Give the folder that `issuer witness init` made. If its state is lost, make a new witness with another name.",
    )
    SETTINGS_INVALID = (
        "settings.invalid", 0, "A setting, option or variable is missing or not usable.",
        "Correct it. deploy/README.md explains each setting, `issuer help environment` lists the variables.",
    )
    CACHE_UNSAFE = (
        "cache.unsafe", 0, "Other users can write to the folder that keeps key sets or revocation lists.",
        "Run `chmod 700` on the folder that the message names, or give another folder with the option that it names.",
    )
    RECEIPT_FOLDER = (
        "receipt.folder", 0, "A folder of receipts is not usable.",
        "Make the folder, free space, or move away the file with a receipt's name. Keep receipts: each is unique.",
    )
    STATE_UNSAFE = (
        "state.unsafe", 0, "The store may lose records that it must keep.",
        "Follow the message: a lost use lets a token be used twice. `issuer doctor --server` checks the store.",
    )
    STATE_UNREACHABLE = (
        "state.unreachable", 0, "The store, or the database of the log, cannot be reached at start.",
        "Check that it runs, and check its URL and password in the settings. Then start again.",
    )
    LOG_ABSENT = (
        "log.absent", 0, "The settings name a transparency log that does not exist, or a different one.",
        "Check `log.origin` and `log.database`. Only `issuer log init` makes a new log; the service never does.",
    )
    LOG_UNRECORDED = (
        "log.unrecorded", 0, "No record outside the transparency log's database shows how much was published.",
        "Bring a record back. If you are sure that the database is the newest, run `issuer log accept --size --root`.",
    )
    LOG_ROLLBACK = (
        "log.rollback", 0, "The transparency log's database is older than the published log, or differs from it.",
        "Append the missing leaves with `issuer log restore`. Never continue without them: that would fork the log.",
    )
    DEPENDENCY_AUTHORIZATION_SERVER = (
        "dependency.authorization_server", 0, "The OAuth server does not give an access token right now.",
        "Run the command again later. If it fails again, check `--oauth` or `--token-endpoint`.",
    )
    DEPENDENCY_KEY_SET = (
        "dependency.key_set", 0, "The client cannot fetch the issuer's key set, and cannot check an answer without it.",
        "Check the issuer's URL, then run the command again: the same identity or nonce gets the same token.",
    )
    ANSWER_UNVERIFIED = (
        "answer.unverified", 0, "The issuer's answer does not match the request, or does not verify.",
        "Do not use it. Check the issuer's URL and this machine's clock, then send this message to its operator.",
    )
    LOG_MALFORMED = (
        "log.malformed", 0, "A leaf, tile, note, checkpoint or proof of a transparency log is not well-formed.",
        "Use the file exactly as the log serves it. If you did, the log is faulty: send this message to its operator.",
    )
    LOG_POLICY = (
        "log.policy", 0, "The witness policy of a transparency log breaks a rule.",
        "Correct the line that the message names. c2sp.org/tlog-policy has the format.",
    )
    LOG_SIGNATURE = (
        "log.signature", 0, "A checkpoint is not signed by a trusted log, or a signature of a known key is bad.",
        "Do not trust it. Compare the policy's `log` lines with the keys that the log's operator published.",
    )
    LOG_QUORUM = (
        "log.quorum", 0, "Too few of the trusted witnesses have cosigned a checkpoint.",
        "Fetch the proof again later, when more witnesses have cosigned. Or check the quorum in the policy.",
    )
    LOG_UNVERIFIED = (
        "log.unverified", 0, "A transparency log does not match its checkpoint, or the reader's witness policy.",
        "Keep the files from the log, and this message. Ask the log's operator, and read another mirror of it.",
    )
    LOG_UNAVAILABLE = (
        "log.unavailable", 0, "The public files of a transparency log are not available right now.",
        "Run the command again later. If it fails again, read another mirror, or ask the log's operator.",
    )
    DEV_ABSENT = (
        "dev.absent", 0, "The command does not find the sandbox issuer, or finds several.",
        "Start `issuer dev` in another terminal. If several are running, choose one with `--port`.",
    )
    DEV_JOB = (
        "dev.job", 0, "The sandbox cannot simulate a job of this kind.",
        "See `issuer dev token --help`. Set a claim without an option by `--claim NAME=TEXT`.",
    )
    POLICY_NEW = (
        "policy.new", 0, "This token does not have what a new policy needs.",
        "Give the token of a job that may get results signed, or write the policy by hand: policies/REFERENCE.md.",
    )

    # -- the command line -------------------------------------------------------------------------------------------
    CREDENTIAL_ABSENT = (
        "credential.absent", 0, "The command has not found an identity token or other credential.",
        "`issuer help credentials` shows each way to give one.",
    )
    CREDENTIAL_UNUSABLE = (
        "credential.unusable", 0, "The given credential cannot be used.",
        "Give it exactly as its provider gave it, and in only one way. `issuer help credentials` shows each way.",
    )
    URL_INVALID = (
        "url.invalid", 0, "A URL cannot be used.",
        "Give https://HOST, with a path if it has one, and without a name, password, query or fragment.",
    )
    DEPENDENCY_SERVER = (
        "dependency.server", 0, "A server does not answer, or its answer cannot be used.",
        "Check its URL and the network, then run the command again.",
    )
    PAT_UNKNOWN = (
        "pat.unknown", 0, "No personal access token has this id.",
        "`issuer pat list` shows the ids of all tokens.",
    )
    PACKAGE_MISSING = (
        "package.missing", 0, "This command needs a package that is not installed.",
        "Install the package as the message says, in the environment of `issuer`.",
    )
    MACHINE_FAILED = (
        "machine.failed", 0, "A file or folder on this machine cannot be read or written.",
        "Free some space, or change the path, its owner or its mode. Then run the command again.",
    )
    SERVICE_ADDRESS = (
        "service.address", 0, "The service cannot listen at its address.",
        "Change `host` or `port`. Ports below 1024 are only for root. `ss -ltnp` shows which program uses a port.",
    )

    # -- the Hub ----------------------------------------------------------------------------------------------------
    HUB_TOKEN = (
        "hub.token", 0, "There is no Hub token, or the Hub does not know it.",
        "Make a token with write access on the Hub under Settings, Access Tokens, and give it as $HF_TOKEN.",
    )
    HUB_FORBIDDEN = (
        "hub.forbidden", 0, "The Hub does not allow this account to do that in this repository.",
        "Use a token that may write and open pull requests. Also check whether the owner turned pull requests off.",
    )
    HUB_GATED = (
        "hub.gated", 0, "The repository is gated, and this account does not have access.",
        "Request access on the repository's page on the Hub, with the account of this token.",
    )
    HUB_NOT_FOUND = (
        "hub.not_found", 0, "The Hub has no such repository or commit, or does not show it to this account.",
        "Check the spelling. For a private repository, give a token in $HF_TOKEN that may read it.",
    )
    HUB_RENAMED = (
        "hub.renamed", 0, "The repository has been renamed.",
        "Request tokens again for the new name: a token for the old name does not verify under the new one.",
    )
    HUB_NOT_MODEL = (
        "hub.not_model", 0, "The repository is not a model repository.",
        "Name the model's repository. `.eval_results/` belongs there; `eval.yaml` belongs in the benchmark's dataset.",
    )
    HUB_MOVED = (
        "hub.moved", 0, "The file on main has changed since this command read it. No pull request is open.",
        "Run the command again. It reads the new file.",
    )
    HUB_PROPOSED = (
        "hub.proposed", 0, "You have an open pull request that already has some of these results.",
        "Leave these results out, or merge or close that pull request first.",
    )
    HUB_REFUSED = (
        "hub.refused", 0, "The Hub refuses the request.",
        "Look at the repository on the Hub. If you find no reason there, report this message.",
    )
    HUB_UNAVAILABLE = (
        "hub.unavailable", 0, "The Hub does not answer, is unavailable, or has got too many requests.",
        "Run the command again later. It finds the pull requests that it has already opened.",
    )
    # fmt: on
