"""The append-only registry of codes. Codes are never renamed, removed or given another meaning (contract section 5)."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code means: its HTTP status (0: never an HTTP answer), one line of what happened, and what to do next."""

    status: int
    title: str
    remedy: str


class Code(enum.StrEnum):
    """The registry. `Code.meaning` says what each member means; `/errors/{code}` shows it to people."""

    meaning: Meaning

    def __new__(cls, value: str, status: int, title: str, remedy: str) -> Code:
        """Make a member that is its text, and carries its meaning."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = Meaning(status, title, remedy)
        return member

    @classmethod
    def named(cls, text: str) -> Code | None:
        """Return the code with this text, or None."""
        found = cls._value2member_map_.get(text)
        return found if isinstance(found, cls) else None

    @property
    def retryable(self) -> bool:
        """408, 429 and 5xx mean that nothing was decided and the same request may be sent again."""
        return self.meaning.status in {408, 429, 500, 503}

    # fmt: off
    # -- the request ------------------------------------------------------------------------------------------------
    REQUEST_MALFORMED = (
        "request.malformed", 400, "The request body is not the JSON that this endpoint reads.",
        "Compare the body with the example in /openapi.json, and send it as JSON in UTF-8.",
    )
    REQUEST_DUPLICATE_MEMBER = (
        "request.duplicate_member", 400, "A JSON object names the same member twice.",
        "Keep one of the two; readers disagree about which one counts.",
    )
    REQUEST_UNKNOWN_MEMBER = (
        "request.unknown_member", 400, "The request has a member that this endpoint does not know.",
        "Remove the member or correct its spelling; nothing unknown is ever ignored or signed.",
    )
    REQUEST_QUERY = (
        "request.query", 400,
        "The query of this URL has a parameter that this endpoint does not read, or a wrong value.",
        "See the endpoint in /openapi.json: send only its parameters, each once, spelled as there.",
    )
    REQUEST_NOT_FOUND = (
        "request.not_found", 404, "There is nothing at this path.",
        "See /.well-known/eval-token-issuer for the endpoints of this service.",
    )
    REQUEST_METHOD = (
        "request.method", 405, "This path does not take that HTTP method.",
        "Use one of the methods in the Allow header.",
    )
    REQUEST_TIMEOUT = (
        "request.timeout", 408, "The request body did not arrive in time.",
        "Send the whole body within 10 seconds.",
    )
    REQUEST_TOO_LARGE = (
        "request.too_large", 413, "The request body is larger than this endpoint takes.",
        "Send at most 64 KiB to /tokens and 1 MiB to /tokens/batch; put large evidence behind a URL in `artifacts`.",
    )
    REQUEST_MEDIA_TYPE = (
        "request.media_type", 415, "The request body is not application/json.",
        "Send the header `Content-Type: application/json`.",
    )
    REQUEST_FRAMING = (
        "request.framing", 400,
        "The HTTP message is malformed, ambiguous, or has too many bytes of headers or trailers.",
        "Send one Host, and one Content-Length or `Transfer-Encoding: chunked`; at most 64 KiB of headers, chunk "
        "sizes and trailers; no body with `Connection: Upgrade`.",
    )
    NONCE_REQUIRED = (
        "nonce.required", 400, "A reusable identity must send a nonce with every request.",
        "Send `nonce`: at least 22 base64url characters of fresh randomness, the same one on a retry.",
    )
    NONCE_INVALID = (
        "nonce.invalid", 400, "The nonce is malformed, or was sent with an identity that must not send one.",
        "Send 22 to 128 base64url characters; with an OIDC identity token, which is its own use record, send none.",
    )

    LOG_NO_LEAF = (
        "log.no_leaf", 404, "The transparency log has no such leaf.",
        "Check `iat` and the token's digest. Refuse a token of this issuer that its log does not have.",
    )

    # -- the identity -----------------------------------------------------------------------------------------------
    IDENTITY_MISSING = (
        "identity.missing", 401, "The request carries no usable identity.",
        "Send exactly one header `Authorization: Bearer <identity token>`.",
    )
    IDENTITY_MALFORMED = (
        "identity.malformed", 401, "The credential has no form that an identity provider of this issuer uses.",
        "Send it exactly as its provider gave it: no quotes, no line break, not cut. The issuer's providers are "
        "listed in /.well-known/eval-token-issuer.",
    )
    IDENTITY_ISSUER_UNKNOWN = (
        "identity.issuer_unknown", 401, "The token comes from a provider that this issuer does not know.",
        "Compare its `iss` with `identity_providers` in /.well-known/eval-token-issuer, byte for byte; the "
        "operator may add a provider.",
    )
    IDENTITY_ALGORITHM_REFUSED = (
        "identity.algorithm_refused", 401, "The token's algorithm is not one that its provider is registered with.",
        "Have the provider sign with a registered asymmetric algorithm; `none` and HMAC never are.",
    )
    IDENTITY_KEY_UNKNOWN = (
        "identity.key_unknown", 401, "The provider publishes no usable key with the token's `kid`.",
        "Fetch a fresh identity token and send it again; if that fails too, the provider's key set is wrong.",
    )
    IDENTITY_SIGNATURE_INVALID = (
        "identity.signature_invalid", 401, "The token's signature does not verify under the provider's key.",
        "Send the token exactly as the provider gave it: one changed character is enough.",
    )
    IDENTITY_EXPIRED = (
        "identity.expired", 401, "The identity token has expired.",
        "Fetch a fresh identity token immediately before the request; for an access token, get another one.",
    )
    IDENTITY_NOT_YET_VALID = (
        "identity.not_yet_valid", 401, "The identity token is not valid yet, or was issued in the future.",
        "Check the clocks of the provider and of this service; 30 seconds of difference are allowed.",
    )
    IDENTITY_TOO_OLD = (
        "identity.too_old", 401, "The identity token was issued too long ago.",
        "Fetch a fresh identity token immediately before the request, in the step that sends it.",
    )
    IDENTITY_LIFETIME_TOO_LONG = (
        "identity.lifetime_too_long", 401, "The identity token lives longer than this issuer allows for its provider.",
        "Ask the provider for a shorter life, or the operator to raise `max_lifetime_s` for this provider.",
    )
    IDENTITY_AUDIENCE_MISMATCH = (
        "identity.audience_mismatch", 401, "The identity token is meant for another audience.",
        "Request the token for exactly the provider's `audience` in /.well-known/eval-token-issuer, and for it alone.",
    )
    IDENTITY_TYPE_REFUSED = (
        "identity.type_refused", 401, "The token's `typ` is not that of an identity token.",
        "Send the identity token of the CI provider, not an access token, a logout token or a verify token.",
    )
    IDENTITY_INACTIVE = (
        "identity.inactive", 401, "This token is not active: revoked, expired, or not known to its provider.",
        "Fetch a fresh token; for a personal access token, ask the operator for another one.",
    )
    IDENTITY_CREDENTIAL_UNKNOWN = (
        "identity.credential_unknown", 401, "No such credential is registered.",
        "Check the credential for typing errors, or ask the operator for a new one.",
    )

    # -- what a registered identity may do --------------------------------------------------------------------------
    INTEGRATION_UNKNOWN = (
        "integration.unknown", 403, "The token is genuine, but no integration is registered for this identity.",
        "Ask the operator to register the ids that are shown here. If you named an `integration`, check its spelling.",
    )
    INTEGRATION_AMBIGUOUS = (
        "integration.ambiguous", 403, "More than one registered identity matches this token.",
        "Ask the operator to tell the registered identities apart by a pin or an exact requirement.",
    )
    INTEGRATION_SUSPENDED = (
        "integration.suspended", 403, "The integration is suspended.",
        "Ask the contacts of the integration or the operator of this service.",
    )
    INTEGRATION_STOPPED = (
        "integration.stopped", 403, "The operator has stopped this caller, or everybody, for the time being.",
        "Wait until the operator lifts the stop; the same request, with a fresh identity, may then pass.",
    )
    INTEGRATION_STAGED = (
        "integration.staged", 403, "The integration is staged: judged and audited, never issued.",
        "Ask the operator to activate the integration.",
    )
    IDENTITY_CLAIM_MISSING = (
        "identity.claim_missing", 403, "The identity token lacks a claim that the integration's policy requires.",
        "Run the job so that the provider sets the claim, for example in the required environment.",
    )
    IDENTITY_CLAIM_MISMATCH = (
        "identity.claim_mismatch", 403, "A claim of the identity token is not what the integration's policy requires.",
        "Use the workflow, branch, environment or scope that is registered, or ask the operator to change the policy.",
    )
    IDENTITY_EVENT_FORBIDDEN = (
        "identity.event_forbidden", 403, "The job was started by an event that is not allowed.",
        "Start the job by a push, a schedule, a release or by hand; events that strangers can cause are refused.",
    )
    IDENTITY_REGISTRATION_EXPIRED = (
        "identity.registration_expired", 403, "The registration of this identity has expired.",
        "Ask the operator to set a later `expires` for this identity in the policy.",
    )
    POLICY_FRAMEWORK = (
        "policy.framework", 403, "The integration may not speak for this framework.",
        "Send the framework name that the integration is registered for.",
    )
    POLICY_VERSION = (
        "policy.version", 403, "The integration may not speak for this version of the framework.",
        "Run a registered version, or ask the operator to extend the range.",
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
        "policy.command", 403, "This integration's policy wants the command of the run, and there is none.",
        "Send `framework.command`: the command line that ran the evaluation, without secrets.",
    )
    ABUSE_QUARANTINED = (
        "abuse.quarantined", 403, "This identity is quarantined for a while.",
        "The answer says why, and when it ends by itself: mend the cause before, or ask the operator of this service.",
    )
    IDENTITY_NETWORK_FORBIDDEN = (
        "identity.network_forbidden", 403, "This credential may not be used from this address.",
        "Send the request from a network that the token was created for, or ask the operator for another token.",
    )
    IDENTITY_REPLAYED = (
        "identity.replayed", 409,
        "This identity token is spent: by another request, or by this one, whose token has expired or lost its key.",
        "Fetch a fresh identity token; only the identical request may repeat one, while its token is good.",
    )
    NONCE_REUSED = (
        "nonce.reused", 409,
        "This nonce is spent: by another request, or by this one, whose token has expired or lost its key.",
        "Use a fresh nonce; only the identical request may repeat one, while its token is good.",
    )
    TOKEN_REVOKED = (
        "token.revoked", 409, "The issuer has revoked this token, or what this integration has signed at this time.",
        "Publish nothing of it. Ask the operator why; what is then found good is a new request, with a fresh identity.",
    )

    # -- what a run says --------------------------------------------------------------------------------------------
    CLAIMS_INVALID = (
        "claims.invalid", 422, "The run claims break a rule of the data contract.",
        "Correct the members that are named here; /schemas has the schema of the claims.",
    )
    CLAIMS_NUMBER = (
        "claims.number", 422, "A number cannot be carried exactly.",
        "Send a finite number of at most 17 significant digits; integers up to 2^53 - 1.",
    )
    CLAIMS_DUPLICATE_METRIC = (
        "claims.duplicate_metric", 422, "The same metric and slice, or the same result, is sent twice.",
        "Send each pair of `metric_id` and `slice` once per result, and each result once per batch.",
    )
    CLAIMS_REVISION = (
        "claims.revision", 422, "A revision is not a full commit hash.",
        "Send all 40 (or 64) lowercase hexadecimal characters; short hashes can be forged in seconds.",
    )
    CLAIMS_SECRET = (
        "claims.secret", 422, "The command, or another text of the result, seems to contain a secret.",
        "Take it out, or name an environment variable instead ($HF_TOKEN); rotate the secret, it was sent.",
    )
    CLAIMS_DIGEST_MISMATCH = (
        "claims.digest_mismatch", 422, "A digest that was sent is not the digest of what was sent.",
        "Compare what your client hashes with RFC 8785 (JCS), or send no digest; `issuer results digest` computes "
        "both.",
    )
    CLAIMS_TOO_LARGE = (
        "claims.too_large", 422, "The token for this run would be larger than 16 KiB, or than the signing key takes.",
        "Send fewer metrics, or shorter identifiers and command.",
    )
    DETAILS_INVALID = (
        "details.invalid", 422, "The details of the run break a rule of the data contract.",
        "Correct the members that are named here; /schemas has the schema of the details.",
    )

    # -- not now ----------------------------------------------------------------------------------------------------
    RATE_SOURCE = (
        "rate.source", 429, "Too many refused requests came from this address.",
        "Wait as long as Retry-After says; genuine tokens from this address are still served.",
    )
    RATE_IDENTITY = (
        "rate.identity", 429, "This identity has reached its rate limit.",
        "Wait as long as Retry-After says and send the same request again.",
    )
    RATE_INTEGRATION = (
        "rate.integration", 429, "This integration has reached its rate limit.",
        "Wait as long as Retry-After says and send the same request again.",
    )
    INTERNAL = (
        "internal", 500, "The service failed in a way that it did not foresee.",
        "Send the same request again; report `request_id` to the operator if it fails again.",
    )
    SERVICE_BUSY = (
        "service.busy", 503, "This service has as many requests under way as it takes.",
        "Send the same request again, with the same identity token, when Retry-After has passed.",
    )
    DEPENDENCY_STATE = (
        "dependency.state", 503, "The issuer's store of limits and uses cannot be reached.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_STATE_RESET = (
        "dependency.state_reset", 503, "The issuer's store has lost its memory since this identity token was issued.",
        "Fetch a fresh identity token and send the request again.",
    )
    DEPENDENCY_ISSUER_KEYS = (
        "dependency.issuer_keys", 503, "The identity provider's keys cannot be had right now.",
        "Send the same request again.",
    )
    DEPENDENCY_INTROSPECTION = (
        "dependency.introspection", 503, "The identity provider cannot be asked about this token right now.",
        "Send the same request again, with the same nonce.",
    )
    DEPENDENCY_CREDENTIALS = (
        "dependency.credentials", 503, "The registered personal access tokens cannot be read right now.",
        "Send the same request again, with the same nonce.",
    )
    DEPENDENCY_SIGNER = (
        "dependency.signer", 503, "The signing key cannot be used right now.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_LOG = (
        "dependency.log", 503, "The transparency log cannot be written right now.",
        "Send the same request again, with the same identity token.",
    )
    DEPENDENCY_LOG_READ = (
        "dependency.log_read", 503, "The transparency log cannot be read right now.",
        "Ask again when Retry-After has passed; this says nothing of what is in the log.",
    )
    LOG_PENDING = (
        "log.pending", 503, "No checkpoint that shows this has reached the quorum of witnesses yet.",
        "Ask again when Retry-After has passed; what is asked for is in the log, and stays there.",
    )
    DEPENDENCY_AUDIT = (
        "dependency.audit", 503, "The audit record cannot be written right now: no audit, no token.",
        "Send the same request again, with the same identity token.",
    )

    # -- files ------------------------------------------------------------------------------------------------------
    FILE_UNREADABLE = (
        "file.unreadable", 0, "There is no such file, or it cannot be read.",
        "Check the path, and with `ls -l` who may read the file.",
    )
    FILE_TOO_LARGE = (
        "file.too_large", 0, "The file has more bytes, levels or values than its kind may have.",
        "Make it smaller, or make several of it; the limit is named.",
    )
    FILE_ENCODING = (
        "file.encoding", 0, "The file is not plain UTF-8, or holds characters that readers disagree about.",
        "Save it as UTF-8 without a byte order mark.",
    )
    FILE_SYNTAX = (
        "file.syntax", 0, "The file is not well-formed YAML or JSON.",
        "Correct the text at the line and column that are named.",
    )
    FILE_DUPLICATE_KEY = (
        "file.duplicate_key", 0, "A map names the same key twice.",
        "Keep one of the two; readers disagree about which one counts.",
    )
    FILE_FEATURE = (
        "file.feature", 0, "The file uses a YAML feature that is refused here.",
        "Write the value out, without anchors, aliases, tags, merge keys or several documents.",
    )
    FILE_SCALAR = (
        "file.scalar", 0, "YAML readers disagree about what this plain value is.",
        "Quote it if it is text; write a plain decimal number if it is a number.",
    )
    FILE_NUMBER = (
        "file.number", 0, "A number cannot be carried exactly.",
        "Write a finite number of at most 17 significant digits; integers up to 2^53 - 1.",
    )
    FILE_UNSAFE = (
        "file.unsafe", 0, "Others may write to a file or folder that decides what is signed.",
        "Run the `chmod` that is named, after a look at what is there.",
    )
    FILE_SCHEMA = (
        "file.schema", 0, "The file has a member that is missing or of the wrong type.",
        "Correct the member that is named; the README of this kind of file shows an example of each.",
    )
    FILE_UNKNOWN_MEMBER = (
        "file.unknown_member", 0, "The file has a member that its kind does not have.",
        "Correct the spelling of the member, or leave it out; nothing unknown is ever ignored.",
    )
    FILE_RULE = (
        "file.rule", 0, "The file breaks a rule of its kind.",
        "Change what stands at the place that is named; the message says what is allowed.",
    )
    POLICY_TEST_FAILED = (
        "policy.test_failed", 0, "A policy does not decide one of its own tests as the test expects.",
        "Correct the policy if the test says what you want, the test if it does not; `issuer policy test` shows why.",
    )
    LINT_UNTESTED = (
        "lint.untested", 0, "A policy has no test, or none that expects a refusal.",
        "Add `tests` to the file: a run that is to be signed, and the nearest one that is not.",
    )
    LINT_SHADOWED = (
        "lint.shadowed", 0, "A rule of a policy has no effect, because another one already grants more.",
        "Remove the wider grant, or this one.",
    )
    LINT_PATTERN_ANY = (
        "lint.pattern_any", 0, "A requirement is met by nearly every value.",
        "Name the values that are meant, or leave the requirement out.",
    )
    LINT_PATTERN_EMPTY = (
        "lint.pattern_empty", 0, "A pattern is met by the empty text.",
        "Have it demand at least one character.",
    )
    LINT_NAME_UNPINNED = (
        "lint.name_unpinned", 0, "A readable name is required without the id that it belongs to.",
        "Pin the id: names can be taken over by others, so a name only warns.",
    )
    LINT_PIN_UNNAMED = (
        "lint.pin_unnamed", 0, "An id is pinned without the name that people know it by.",
        "Give the name under `names`; a renaming then shows as a warning.",
    )
    LINT_IDENTITY_EXPIRED = (
        "lint.identity_expired", 0, "An identity has expired.",
        "Renew it or take it out of the policy.",
    )
    LINT_CASE = (
        "lint.case", 0, "A value differs in upper and lower case from what tokens say.",
        "Spell it exactly as the provider does: values are compared byte for byte.",
    )
    LINT_FRAMEWORK_SHARED = (
        "lint.framework_shared", 0, "Two integrations may speak for one framework.",
        "Give it to the integration whose framework it is; who else runs it becomes an identity of that integration.",
    )
    LINT_NO_EFFECT = (
        "lint.no_effect", 0, "A rule of a policy about abuse can have no effect.",
        "Give it a value that can have one, or leave it out: then its default counts.",
    )
    RESULT_FILE_NAME = (
        "result.file_name", 0, "A result file is not named after its benchmark.",
        "Rename the file as the message says; in `.eval_results/` each benchmark has a file of its own.",
    )
    RESULT_UNBOUND = (
        "result.unbound", 0, "An entry lacks what a verify token binds.",
        "Add the member; without it no token can be issued for this entry, and none verifies.",
    )
    RESULT_PROFILE = (
        "result.profile", 0, "An entry does not have the form that readers of the profile need.",
        "Write it with `issuer results fmt --profile PROFILE --benchmark eval.yaml`, or lint it as what it is.",
    )
    RESULT_UNKNOWN_MEMBER = (
        "result.unknown_member", 0, "An entry has a member that no reader knows.",
        "Correct its spelling, or move it under `run`; as it stands it is kept, and bound by the content digest.",
    )
    RESULT_TOKEN = (
        "result.token", 0, "What stands as verify token is not one.",
        "Ask the issuer for a token with `issuer token request`, or remove the member.",
    )
    RESULT_VALUE = (
        "result.value", 0, "`value` is not the score of the primary metric.",
        "Write the score of the primary metric, without a slice, or remove `value`.",
    )
    RESULT_REPEATED = (
        "result.repeated", 0, "An entry repeats another one of the file.",
        "Keep one of the two.",
    )
    RESULT_UNDEFINED = (
        "result.undefined", 0, "An entry names a task or metric that the benchmark does not define.",
        "Use an id of the benchmark's `eval.yaml`, as of the entry's `dataset.revision`.",
    )
    BENCHMARK_ABSENT = (
        "benchmark.absent", 0, "The file is YAML, but not a benchmark definition.",
        "A benchmark's `eval.yaml` is a map with `tasks`, and with `metrics` in the target form.",
    )
    BENCHMARK_RULE = (
        "benchmark.rule", 0, "A benchmark definition breaks a rule.",
        "Correct the member at the place that is named, or add it there.",
    )
    JWS_MALFORMED = (
        "jws.malformed", 0, "A token, receipt or list is not a compact JWS, the form of signed JSON.",
        "Take it exactly as it was issued; check for line breaks, quotes and truncation.",
    )
    KEY_UNSAFE = (
        "key.unsafe", 0, "A private key file can be read by others, or is not a private key file.",
        "Give it mode 0600 and the service's owner.",
    )
    KEY_UNUSABLE = (
        "key.unusable", 0, "A key is of the wrong kind, too weak, or encrypted without a passphrase.",
        "See keys/README.md. `issuer keys generate` makes a signing key, `issuer log init` the key of a log.",
    )
    KEY_HISTORY = (
        "key.history", 0, "The history of the signing keys cannot be read, or does not allow this.",
        "If a line is damaged, restore `key-history.jsonl` from a backup; keys/README.md says what is allowed when.",
    )
    KEY_STEP = (
        "key.step", 0, "This step of a key's life is not allowed now.",
        "Run `issuer keys rotate --plan` to see what will be, and when.",
    )
    KEY_UNKNOWN = (
        "key.unknown", 0, "There is no signing key with this id.",
        "`issuer keys list` names the keys; give one as it is named there.",
    )
    REVOCATIONS_FULL = (
        "revocations.full", 0, "There is no room for more in the list of revocations, or in its record.",
        "Revoke an interval of the integration in place of its tokens one by one, or the signing key.",
    )
    WITNESS_STATE = (
        "witness.state", 0, "The state of a witness of transparency logs is missing, is not one, or is there already.",
        "Give the folder that `issuer witness init` made. If its state is lost, make another witness by another name.",
    )
    SETTINGS_INVALID = (
        "settings.invalid", 0, "A setting, option or variable is missing or not usable.",
        "Correct what is named here. deploy/README.md explains each setting, `issuer help environment` lists the "
        "variables.",
    )
    CACHE_UNSAFE = (
        "cache.unsafe", 0, "Others can write where key sets or revocation lists are kept.",
        "Run `chmod 700` on the folder that is named, or give another one with the option that is named.",
    )
    RECEIPT_FOLDER = (
        "receipt.folder", 0, "A folder of receipts cannot be used as it is.",
        "Make the folder, or room in it, or move away what lies in a receipt's place. Keep every receipt: none can be "
        "made again.",
    )
    STATE_UNSAFE = (
        "state.unsafe", 0, "The store may forget what it must remember.",
        "Do what the sentence says: a use that the store forgets lets an identity token be used twice. `issuer doctor "
        "--server` judges all of the store.",
    )
    STATE_UNREACHABLE = (
        "state.unreachable", 0, "The store, or the database of the log, cannot be reached at start.",
        "Check that it runs, and the URL and password that the settings have for it; then start again.",
    )
    LOG_ABSENT = (
        "log.absent", 0, "There is no transparency log where the settings say, or it is another one.",
        "Check `log.origin` and `log.database`. The service never begins a log by itself; `issuer log init` does.",
    )
    LOG_UNRECORDED = (
        "log.unrecorded", 0, "No record outside of the transparency log's database says how far it was published.",
        "Bring a record back; or, sure that the database is the newest, run `issuer log accept --size --root`.",
    )
    LOG_ROLLBACK = (
        "log.rollback", 0, "The transparency log's database is older than what was published, or other than that.",
        "Append what is missing with `issuer log restore`; never go on without it, that would be a fork.",
    )
    DEPENDENCY_AUTHORIZATION_SERVER = (
        "dependency.authorization_server", 0, "The OAuth server gives no access token right now.",
        "Run the command again later; if it stays so, check --oauth or --token-endpoint.",
    )
    DEPENDENCY_KEY_SET = (
        "dependency.key_set", 0, "The issuer's key set cannot be fetched, and without it no answer can be checked.",
        "Check the issuer's URL, then run the command again: the same request with the same identity token or "
        "nonce gets the same token.",
    )
    ANSWER_UNVERIFIED = (
        "answer.unverified", 0, "What the issuer answered is not what it was asked for, or does not verify.",
        "Use nothing of it. Check the issuer's URL and this machine's clock; then show its operator what is said here.",
    )
    LOG_MALFORMED = (
        "log.malformed", 0, "A leaf, tile, note, checkpoint or proof of a transparency log is not well-formed.",
        "Take it exactly as the log serves it. If it is that, the log is faulty: show its operator what is said here.",
    )
    LOG_POLICY = (
        "log.policy", 0, "The witness policy of a transparency log breaks a rule.",
        "Correct the line that is named; c2sp.org/tlog-policy has the format.",
    )
    LOG_SIGNATURE = (
        "log.signature", 0, "A checkpoint is not signed by a trusted log, or a signature of a known key is bad.",
        "Trust nothing of it; compare the policy's `log` lines with the keys that the log's operator published.",
    )
    LOG_QUORUM = (
        "log.quorum", 0, "Too few of the trusted witnesses have cosigned a checkpoint.",
        "Fetch the proof again later, when more witnesses have cosigned; else see what the policy asks for.",
    )
    LOG_UNVERIFIED = (
        "log.unverified", 0, "A transparency log is not what its checkpoint, or this reader's witness policy, says.",
        "Keep what was served and what is said here; ask the log's operator, and read another mirror of it.",
    )
    LOG_UNAVAILABLE = (
        "log.unavailable", 0, "The public files of a transparency log cannot be had right now.",
        "Run the command again later; if it stays so, read another mirror, or ask the log's operator.",
    )
    DEV_ABSENT = (
        "dev.absent", 0, "It is not known which throw-away issuer is meant.",
        "Start `issuer dev` in another terminal; where several run, choose one by --port.",
    )
    DEV_JOB = (
        "dev.job", 0, "No job of this kind can be played.",
        "See `issuer dev token --help`; a claim that no option sets is set by --claim NAME=TEXT.",
    )
    POLICY_NEW = (
        "policy.new", 0, "No policy can be made from this token.",
        "Take the token of a job that shall have results signed, or write the policy by hand: policies/REFERENCE.md.",
    )

    # -- the command line -------------------------------------------------------------------------------------------
    CREDENTIAL_ABSENT = (
        "credential.absent", 0, "There is no identity token here, nor another credential.",
        "`issuer help credentials` shows each way to give one.",
    )
    CREDENTIAL_UNUSABLE = (
        "credential.unusable", 0, "The credential that was given cannot be used.",
        "Give it exactly as its provider gave it, in one way alone; `issuer help credentials` shows each.",
    )
    URL_INVALID = (
        "url.invalid", 0, "A URL cannot be used.",
        "Give https://HOST, with a path if it has one, and without a name, password, query or fragment.",
    )
    DEPENDENCY_SERVER = (
        "dependency.server", 0, "A server gives no answer, or none that can be used.",
        "Check its URL and the network; then run the command again.",
    )
    PAT_UNKNOWN = (
        "pat.unknown", 0, "There is no personal access token with this id.",
        "`issuer pat list` shows the ids of all of them.",
    )
    PACKAGE_MISSING = (
        "package.missing", 0, "A package that this command needs is not installed.",
        "Install it, as said here, where `issuer` is installed.",
    )
    MACHINE_FAILED = (
        "machine.failed", 0, "A file or folder of this machine cannot be read or written.",
        "Make room, or change the path, its owner or its mode; then run the command again.",
    )
    SERVICE_ADDRESS = (
        "service.address", 0, "The service cannot listen at its address.",
        "Change `host` or `port` (below 1024 only root may listen); `ss -ltnp` shows who has one that is in use.",
    )

    # -- the Hub ----------------------------------------------------------------------------------------------------
    HUB_TOKEN = (
        "hub.token", 0, "There is no token of the Hub here, or one that the Hub does not know.",
        "Make one with write access under Settings, Access Tokens of your account on the Hub; give it as $HF_TOKEN.",
    )
    HUB_FORBIDDEN = (
        "hub.forbidden", 0, "The Hub does not let this account do that in this repository.",
        "Use a token that may write and open pull requests; its owner may also have turned pull requests off.",
    )
    HUB_GATED = (
        "hub.gated", 0, "The repository is gated, and this account has not been let in.",
        "Ask for access on the repository's page on the Hub, as the account whose token this is.",
    )
    HUB_NOT_FOUND = (
        "hub.not_found", 0, "The Hub has no such repository or commit, or does not show it to this account.",
        "Check the spelling; of a private repository, give a token in $HF_TOKEN that may read it.",
    )
    HUB_RENAMED = (
        "hub.renamed", 0, "The repository has another name by now.",
        "Ask for tokens anew with the name that it has: a token for the old name does not verify under the new one.",
    )
    HUB_NOT_MODEL = (
        "hub.not_model", 0, "The repository is not one of a model.",
        "Name the model's repository: `.eval_results/` belongs there, `eval.yaml` in the benchmark's dataset.",
    )
    HUB_MOVED = (
        "hub.moved", 0, "The file has changed on main since it was read; no pull request was left open.",
        "Run the command again: it reads the file as it is now.",
    )
    HUB_PROPOSED = (
        "hub.proposed", 0, "An open pull request of yours has some of these results already.",
        "Leave these results out, or have that pull request merged or closed first.",
    )
    HUB_REFUSED = (
        "hub.refused", 0, "The Hub refuses the request.",
        "Look at the repository on the Hub; if you find no reason there, report this with what is said here.",
    )
    HUB_UNAVAILABLE = (
        "hub.unavailable", 0, "The Hub gives no answer, or says that this is too much or not now.",
        "Run the command again later: what was proposed already is found again.",
    )
    # fmt: on
