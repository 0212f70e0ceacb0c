"""The issuers that a relying party trusts: its trust file, and the keys and lists that the file points to. Pure.

A trust file without an issuer or without an audience is an error, not a permissive default (contract section 6). The
fetcher calls `sources` for what is needed, and passes the bytes that it got to `resolve`. An archive of keys (contract
section 5, `jwks-archive.json`) is a JWK set whose members also say in Unix seconds when the key signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from issuer.codes import Code
from issuer.errors import FormatError, InputError
from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON, Text, convert, loads
from issuer.formats.strict_yaml import Document, load
from issuer.formats.times import UnixTime
from issuer.tlog.witness_policy import WitnessPolicy, parse_policy
from issuer.token.verify_token import MAX_ATTEMPTS, MAX_TTL_S
from issuer.verify.reproduction import EXACTLY, Tolerance
from issuer.verify.revocations import Revocations, check_form, newest, parse_revocations
from issuer.verify.signed_statement import without_token_keys

MAX_BYTES = 1024 * 1024
MAX_ARCHIVED = 1024


class _Window(Struct, frozen=True):
    active_from: UnixTime
    last_token_exp: UnixTime | UnsetType = UNSET
    revoked_from: UnixTime | UnsetType = UNSET


class ArchivedKey(Struct, frozen=True):
    """A key with its window: `active_from` to `last_token_exp` (None: no end yet), and since when it is revoked."""

    key: jose.Key
    active_from: int
    last_token_exp: int | None
    revoked_from: int | None

    def covers(self, moment: int, leeway_s: int = 0) -> bool:
        """Say whether a moment lies in the window; `leeway_s` is how far the issuer's clock may run ahead."""
        return self.active_from - leeway_s <= moment and (self.last_token_exp is None or moment <= self.last_token_exp)


Archive = Mapping[str, ArchivedKey]


def parse_archive(raw: bytes) -> Archive:
    """Read an archive set of at most 1 MiB and 1024 keys, by kid. Raises FormatError for one that is malformed, names a
    kid twice, or holds a key that must not verify anything (jose.parse_key) or has no good window: a skipped key could
    be a revoked one."""
    value = loads(raw, max_bytes=MAX_BYTES, max_depth=8)
    members = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(members, list) or len(members) > MAX_ARCHIVED:
        raise FormatError(Code.FILE_SCHEMA, f"not a JWK set with a list `keys` of at most {MAX_ARCHIVED}")
    found: dict[str, ArchivedKey] = {}
    for index, member in enumerate(members):
        try:
            archived = _read(member)
        except FormatError as error:
            raise error.within(f"/keys/{index}") from None
        if archived.key.kid in found:
            raise FormatError(Code.FILE_RULE, "this kid stands here twice", f"/keys/{index}/kid")
        found[archived.key.kid] = archived
    return found


def _read(member: JSON) -> ArchivedKey:
    window = convert(member, _Window)
    if (key := jose.parse_key(member)) is None:
        raise FormatError(Code.FILE_RULE, "a key that must not verify anything")
    end, revoked = (None if time is UNSET else time for time in (window.last_token_exp, window.revoked_from))
    if end is not None and end < window.active_from:
        raise FormatError(Code.FILE_RULE, "ends before it begins", "/last_token_exp")
    return ArchivedKey(key, window.active_from, end, revoked)


T = TypeVar("T")
TokenLife = Annotated[int, Meta(ge=1, le=MAX_TTL_S)]
MaxAttempt = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]
Requirement = Literal["attempt", "benchmark", "log"]
_POLICY = "/log/policy"


class TrustSource(Struct, frozen=True, forbid_unknown_fields=True):
    """Where something comes from: exactly one of a URL, a file beside the trust file, or the thing itself. Inline, a
    JWK set is a map and a revocation list is text."""

    url: Text | UnsetType = UNSET
    file: Text | UnsetType = UNSET
    inline: dict[str, Any] | str | UnsetType = UNSET


class LogSource(Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer's transparency log: the witness policy (c2sp.org/tlog-policy) whose `log` lines are its origins and
    keys, and where proofs may be asked for."""

    policy: TrustSource
    url: Text | UnsetType = UNSET


class IssuerSources(Struct, frozen=True, forbid_unknown_fields=True):
    """One issuer of a trust file; `frameworks` limits which `framework.name`s it may speak for."""

    issuer: Text
    keys: TrustSource
    archive: TrustSource | UnsetType = UNSET
    revocations: TrustSource | UnsetType = UNSET
    frameworks: Annotated[list[Text], Meta(min_length=1)] | UnsetType = UNSET
    log: LogSource | UnsetType = UNSET


class TrustFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A trust file as written. `audience` is this relying party; `max_token_life_s` bounds exp - iat.

    `max_attempt` is the highest attempt that is trusted, of tokens that say theirs; at 64, which stands for more, that
    is every one. `receipt_keys` sign this relying party's receipts, `revocation_keys` the issuers' revocation lists;
    neither may sign tokens. `require` makes the checks 10 (`benchmark`) and 11 (`log`) due; by `attempt`, a token that
    does not say its own fails check 4, which is always due. `tolerance` says for a metric id by how much, in its unit,
    the numbers of a reproduction may differ; where it says nothing, they must be the same. No check rests on it.
    """

    version: Literal[1]
    audience: Text
    issuers: Annotated[list[IssuerSources], Meta(min_length=1)]
    max_token_life_s: TokenLife = MAX_TTL_S
    max_attempt: MaxAttempt | UnsetType = UNSET
    receipt_keys: TrustSource | UnsetType = UNSET
    revocation_keys: TrustSource | UnsetType = UNSET
    require: list[Requirement] | UnsetType = UNSET
    tolerance: dict[Text, Annotated[float, Meta(ge=0)]] | UnsetType = UNSET

    @property
    def digest(self) -> str:
        """The digest by which receipts name it: of what it says, not of how it is laid out."""
        return jcs.digest(msgspec.to_builtins(self))


class TrustedLog(Struct, frozen=True):
    """An issuer's log. `digest` is that of the policy file: what was found good under one policy is not under another.
    `url` is where its proofs may be asked for, "" for nowhere; what a token names as its log is compared, never
    fetched."""

    policy: WitnessPolicy
    digest: str
    url: str = ""

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the policy's logs: a log that follows another one is named before it is needed."""
        return frozenset(log.verifier.name for log in self.policy.logs)


class TrustedIssuer(Struct, frozen=True):
    """An issuer with its keys. None: unavailable. UNSET: the trust file does not ask for it. `keys_fetched_at` and
    `archive_fetched_at` (Unix seconds) are when the URL last confirmed them; None for those from a file, which nobody
    confirms. `unpublished`: it was asked for revocations and answered that it publishes none."""

    issuer: str
    keys: jose.KeySet | None
    frameworks: frozenset[str] | None = None
    archive: Archive | UnsetType | None = UNSET
    revocations: Revocations | UnsetType | None = UNSET
    keys_fetched_at: int | None = None
    archive_fetched_at: int | None = None
    unpublished: bool = False
    log: TrustedLog | None = None

    def confirmed_after(self, moment: int) -> bool:
        """Say whether the keys, and the archive where there is one, are those that the issuer published after then."""
        fetched = [self.keys_fetched_at] if self.archive is UNSET else [self.keys_fetched_at, self.archive_fetched_at]
        return all(at is not None and at > moment for at in fetched)


class Absence(Struct, frozen=True):
    """Something that the trust file names, by its pointer there, and that is unavailable or unusable."""

    pointer: str
    reason: str


class Trust(Struct, frozen=True):
    """What `issuer.verify` judges by. Issuers are compared byte for byte."""

    audience: str
    issuers: Mapping[str, TrustedIssuer]
    max_token_life_s: int = MAX_TTL_S
    receipt_keys: jose.KeySet | UnsetType | None = UNSET
    revocation_keys: jose.KeySet | UnsetType | None = UNSET
    require: frozenset[Requirement] = frozenset()
    digest: str = ""
    absent: tuple[Absence, ...] = ()
    max_attempt: int | None = None
    tolerance: Tolerance = EXACTLY

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The issuers that may speak for every framework, though others are trusted beside them: each of them can pass
        off its own numbers as those of a framework that another one vouches for."""
        free = tuple(name for name, issuer in self.issuers.items() if issuer.frameworks is None)
        return free if len(self.issuers) > 1 else ()

    def token_keys(self) -> Iterator[jose.Key]:
        """Every key with which a trusted issuer signs tokens, or once did."""
        for issuer in self.issuers.values():
            yield from issuer.keys.keys.values() if issuer.keys else ()
            yield from (archived.key for archived in (issuer.archive or {}).values())


# -- the file ---------------------------------------------------------------------------------------------------------


def read_trust_file(raw: bytes, name: str) -> TrustFile:
    """Read a trust file. Raises InputError with file, line and column."""
    document = load(raw, name)
    trust = document.convert(TrustFile)
    issuers = [entry.issuer for entry in trust.issuers]
    required = () if trust.require is UNSET else trust.require
    for index, entry in enumerate(trust.issuers):
        if issuers.count(entry.issuer) > 1:
            raise document.error(Code.FILE_RULE, f"/issuers/{index}/issuer", "this issuer stands here twice")
        if "log" in required and entry.log is UNSET:
            rule = "`require` has `log`, so each issuer needs one: `log: {policy: {file: NAME}}`"
            raise document.error(Code.FILE_RULE, f"/issuers/{index}", rule)
        if entry.revocations is not UNSET and trust.revocation_keys is UNSET:
            rule = "a revocation list needs `revocation_keys`, or nobody can tell whose it is"
            raise document.error(Code.FILE_RULE, f"/issuers/{index}/revocations", rule)
    for pointer, source in sources(trust).items():
        _check_source(document, pointer, source)
    return trust


def _check_source(document: Document, pointer: str, source: TrustSource) -> None:
    if sum(part is not UNSET for part in (source.url, source.file, source.inline)) != 1:
        raise document.error(Code.FILE_RULE, pointer, "give exactly one of `url`, `file` and `inline`")
    if source.url is not UNSET and pointer.endswith(_POLICY):
        rule = "give `file` or `inline`: which log and which witnesses you trust is yours to say, and not a server's"
        raise document.error(Code.FILE_RULE, pointer, rule)
    if source.inline is not UNSET:
        try:
            check_found(pointer, _inline_bytes(source))
        except FormatError as error:
            raise document.locate(error, f"{pointer}/inline") from None


def sources(trust: TrustFile) -> dict[str, TrustSource]:
    """Return everything that the trust file points to, by its JSON pointer there."""
    found = {}
    for index, entry in enumerate(trust.issuers):
        for name in ("keys", "archive", "revocations"):
            found[f"/issuers/{index}/{name}"] = getattr(entry, name)
        found[f"/issuers/{index}{_POLICY}"] = UNSET if entry.log is UNSET else entry.log.policy
    for name in ("receipt_keys", "revocation_keys"):
        found[f"/{name}"] = getattr(trust, name)
    return {pointer: source for pointer, source in found.items() if source is not UNSET}


def check_found(pointer: str, raw: bytes) -> None:
    """Raise FormatError for bytes that are not of the kind that belongs at this pointer: they need not be cached. Of a
    revocation list only the form is checked: `resolve` has the keys for its signature."""
    if pointer.endswith("/revocations"):
        check_form(raw)
    elif pointer.endswith("/archive"):
        parse_archive(raw)
    elif pointer.endswith(_POLICY):
        _parse_policy(raw)
    else:
        _parse_keys(raw)


def _parse_keys(raw: bytes) -> jose.KeySet:
    keys = jose.parse_key_set(raw)
    if not keys.keys:
        raise FormatError(Code.FILE_RULE, "a key set without one usable key")
    return keys


def _parse_policy(raw: bytes) -> WitnessPolicy:
    try:
        policy = parse_policy(raw, "the policy")
    except InputError as error:
        # The place that an error names later is in the trust file, so the line in the policy is said here.
        line = f" (line {error.place.line} of the policy)" if error.place.line else ""
        raise FormatError(error.code, f"{error.detail}{line}") from None
    if not policy.logs:
        raise FormatError(Code.LOG_POLICY, "it has no `log` line, and so no log whose tokens could be in it")
    return policy


# -- with what it points to -------------------------------------------------------------------------------------------


def resolve(
    trust: TrustFile, found: Mapping[str, bytes | None], fetched_at: Mapping[str, int] = MappingProxyType({})
) -> Trust:
    """Fill in what the trust file points to: `found` has the bytes of URLs and files by the pointers of `sources`.
    `fetched_at` says when a URL last confirmed its bytes (Unix seconds), which check 2 then reports. What is None or
    missing in `found`, or malformed from a URL, counts as unavailable: checks that need it are `unknown`, and `absent`
    lists it. Raises FormatError with the pointer for what is malformed in a file or in the trust file itself."""
    return _Resolution(trust, found, fetched_at).trust()


def with_newest_lists(trust: Trust, before: Trust, now: int) -> Trust:
    """Return the trust with the revocation lists of an earlier reading where its own are older (`newest`)."""
    issuers = dict(trust.issuers)
    for name, issuer in trust.issuers.items():
        earlier = before.issuers.get(name)
        if issuer.revocations is not UNSET and earlier and earlier.revocations:
            listed, _ = newest(issuer.revocations, [earlier.revocations], now)
            issuers[name] = msgspec.structs.replace(issuer, revocations=listed)
    return msgspec.structs.replace(trust, issuers=issuers)


class _Resolution:
    """One resolution: what was read, and what turned out to be absent."""

    def __init__(self, trust: TrustFile, found: Mapping[str, bytes | None], fetched_at: Mapping[str, int]) -> None:
        self.file, self.found, self.fetched_at, self.sources = trust, found, fetched_at, sources(trust)
        self.absent: list[Absence] = []

    def trust(self) -> Trust:
        issuers = {
            entry.issuer: self.issuer(f"/issuers/{index}", entry) for index, entry in enumerate(self.file.issuers)
        }
        keyed = Trust(self.file.audience, issuers)
        token_keys = list(keyed.token_keys())
        receipt_keys = self.apart("/receipt_keys", token_keys)
        revocation_keys = self.apart("/revocation_keys", token_keys)
        for index, entry in enumerate(self.file.issuers):
            listed = self.revocations(f"/issuers/{index}/revocations", entry.issuer, revocation_keys)
            issuers[entry.issuer] = msgspec.structs.replace(issuers[entry.issuer], revocations=listed)
        return Trust(
            self.file.audience,
            issuers,
            self.file.max_token_life_s,
            receipt_keys,
            revocation_keys,
            frozenset(() if self.file.require is UNSET else self.file.require),
            self.file.digest,
            tuple(self.absent),
            None if self.file.max_attempt is UNSET else self.file.max_attempt,
            Tolerance(self.file.tolerance or {}),
        )

    def issuer(self, at: str, entry: IssuerSources) -> TrustedIssuer:
        frameworks = None if entry.frameworks is UNSET else frozenset(entry.frameworks)
        keys = self.read(f"{at}/keys", _parse_keys) or None
        archive = self.read(f"{at}/archive", parse_archive)
        keys_at, archive_at = (self.fetched_at.get(f"{at}/{name}") for name in ("keys", "archive"))
        log = None if entry.log is UNSET else self.log(f"{at}{_POLICY}", entry.log)
        return TrustedIssuer(entry.issuer, keys, frameworks, archive, UNSET, keys_at, archive_at, log=log)

    def log(self, pointer: str, entry: LogSource) -> TrustedLog | None:
        raw = raw_of(entry.policy, self.found.get(pointer)) or b""
        policy = self.read(pointer, _parse_policy)
        return TrustedLog(policy, jcs.digest_of_bytes(raw), entry.url or "") if policy else None

    def apart(self, pointer: str, token_keys: list[jose.Key]) -> jose.KeySet | UnsetType | None:
        """Read keys that must not be token keys, without those that are."""
        keys = self.read(pointer, _parse_keys)
        if not keys:
            return keys
        kept = without_token_keys(keys, token_keys)
        if len(kept.keys) < len(keys.keys):
            self.absent.append(Absence(pointer, "a key that signs tokens may not sign this, too: it is left out"))
        return kept

    def revocations(
        self, pointer: str, issuer: str, keys: jose.KeySet | UnsetType | None
    ) -> Revocations | UnsetType | None:
        if not keys:
            return None if pointer in self.sources else UNSET
        return self.read(pointer, lambda raw: parse_revocations(raw, issuer, keys))

    def read(self, pointer: str, parse: Callable[[bytes], T]) -> T | UnsetType | None:
        """Return what a pointer leads to: None where it is unavailable, UNSET where nothing is asked for."""
        source = self.sources.get(pointer)
        if source is None:
            return UNSET
        raw = raw_of(source, self.found.get(pointer))
        if raw is None:
            self.absent.append(Absence(pointer, "not to be had"))
            return None
        try:
            return parse(raw)
        except FormatError as error:
            if source.url is UNSET:
                # Without its line and column: they are in what the trust file names, not in the trust file.
                raise FormatError(error.code, error.detail, pointer + error.pointer) from None
            self.absent.append(Absence(pointer, error.detail))
            return None


def raw_of(source: TrustSource, found: bytes | None) -> bytes | None:
    """Return the bytes of a source: what was found, or what stands in the trust file itself."""
    return found if source.inline is UNSET else _inline_bytes(source)


def _inline_bytes(source: TrustSource) -> bytes:
    inline = source.inline
    return inline.encode() if isinstance(inline, str) else msgspec.json.encode(inline)
