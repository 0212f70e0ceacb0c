"""A relying party's trust file, and the keys and lists that it points to. Pure.

A trust file without an issuer or without an audience is an error, not a permissive default (contract section 6). The
fetcher calls `sources` to learn what to fetch, and passes the bytes to `resolve`. An archive of keys (contract section
6, `jwks-archive.json`) is a JWK set whose members also state in Unix seconds when the key signed.
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
from issuer.results.benchmark import AcceptedDefinitions, Commits, faults_of_definitions
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
    """A key, the window in which it signed (`active_from` to `last_token_exp`, None if it still does), and the time
    from which it is revoked."""

    key: jose.Key
    active_from: int
    last_token_exp: int | None
    revoked_from: int | None

    def covers(self, moment: int, leeway_s: int = 0) -> bool:
        """Say whether a moment is in the window; `leeway_s` is how far the issuer's clock may run ahead."""
        return self.active_from - leeway_s <= moment and (self.last_token_exp is None or moment <= self.last_token_exp)


Archive = Mapping[str, ArchivedKey]


def parse_archive(raw: bytes) -> Archive:
    """Read an archive of at most 1 MiB and 1024 keys, by kid. Raises FormatError if it is malformed, repeats a kid, or
    has a key that must not verify (jose.parse_key) or that has no valid window. Bad keys are not skipped, because a
    skipped key could be a revoked one."""
    value = loads(raw, max_bytes=MAX_BYTES, max_depth=8)
    members = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(members, list) or len(members) > MAX_ARCHIVED:
        raise FormatError(Code.FILE_SCHEMA, f"not a JWK set with a list `keys` of at most {MAX_ARCHIVED}")
    archive: dict[str, ArchivedKey] = {}
    for index, member in enumerate(members):
        try:
            archived = _read(member)
        except FormatError as error:
            raise error.within(f"/keys/{index}") from None
        if archived.key.kid in archive:
            raise FormatError(Code.FILE_RULE, "this kid occurs twice", f"/keys/{index}/kid")
        archive[archived.key.kid] = archived
    return archive


def _read(member: JSON) -> ArchivedKey:
    window = convert(member, _Window)
    if (key := jose.parse_key(member)) is None:
        raise FormatError(Code.FILE_RULE, "this key must not verify anything")
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
    """A source of keys or lists: exactly one of a URL, a file beside the trust file, or the inline value. Inline, a JWK
    set is a map and a revocation list is text."""

    url: Text | UnsetType = UNSET
    file: Text | UnsetType = UNSET
    inline: dict[str, Any] | str | UnsetType = UNSET


class LogSource(Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer's transparency log: the witness policy (c2sp.org/tlog-policy), whose `log` lines are the log's origins
    and keys, and a URL that serves its proofs."""

    policy: TrustSource
    url: Text | UnsetType = UNSET


class IssuerSources(Struct, frozen=True, forbid_unknown_fields=True):
    """One issuer of a trust file; `frameworks` lists the `framework.name`s that it may speak for."""

    issuer: Text
    keys: TrustSource
    archive: TrustSource | UnsetType = UNSET
    revocations: TrustSource | UnsetType = UNSET
    frameworks: Annotated[list[Text], Meta(min_length=1)] | UnsetType = UNSET
    log: LogSource | UnsetType = UNSET


class TrustFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A trust file as written. `audience` is this relying party; `max_token_life_s` bounds exp - iat. `max_attempt` is
    the highest trusted attempt of tokens that state one. A token states 64 for every higher attempt, too, so 64 trusts
    them all. `receipt_keys` sign this relying party's receipts and `revocation_keys` the issuers' revocation lists;
    neither may sign tokens. `require` makes check 10 (`benchmark`) or 11 (`log`) due; with `attempt`, a token that
    states no attempt fails check 4. `definitions` has, by benchmark, the commits whose `eval.yaml` this party accepts:
    one, a list, or `any`, the default; at another commit, check 10 fails. `tolerance` is by metric id how far the
    numbers of a reproduction may differ, in the metric's unit; without it they must be equal. No check depends on
    it."""

    version: Literal[1]
    audience: Text
    issuers: Annotated[list[IssuerSources], Meta(min_length=1)]
    max_token_life_s: TokenLife = MAX_TTL_S
    max_attempt: MaxAttempt | UnsetType = UNSET
    receipt_keys: TrustSource | UnsetType = UNSET
    revocation_keys: TrustSource | UnsetType = UNSET
    require: list[Requirement] | UnsetType = UNSET
    definitions: dict[Text, Commits] | UnsetType = UNSET
    tolerance: dict[Text, Annotated[float, Meta(ge=0)]] | UnsetType = UNSET

    @property
    def digest(self) -> str:
        """The digest by which receipts name the trust file. It covers the content, not the layout."""
        return jcs.digest(msgspec.to_builtins(self))


class TrustedLog(Struct, frozen=True):
    """An issuer's log. `digest` is the digest of the policy file: a checkpoint that passed under one policy may fail
    under another. `url` serves its proofs ("" if none). The log that a token names is compared, never fetched."""

    policy: WitnessPolicy
    digest: str
    url: str = ""

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the policy's logs. The policy names the next log before the issuer changes to it."""
        return frozenset(log.verifier.name for log in self.policy.logs)


class TrustedIssuer(Struct, frozen=True):
    """An issuer with its keys. None: unavailable. UNSET: the trust file does not name it. `keys_fetched_at` and
    `archive_fetched_at` (Unix seconds) are when the URL last confirmed them; None for files, which have no server to
    confirm them. `unpublished`: the issuer answered that it publishes no revocations."""

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
        """Say whether the issuer confirmed its keys, and its archive if the trust file names one, after `moment`."""
        fetched = [self.keys_fetched_at] if self.archive is UNSET else [self.keys_fetched_at, self.archive_fetched_at]
        return all(at is not None and at > moment for at in fetched)


class Absence(Struct, frozen=True):
    """A pointer in the trust file whose target is unavailable or unusable."""

    pointer: str
    reason: str


class Trust(Struct, frozen=True):
    """The issuers, keys and rules that `issuer.verify` judges by. Issuers are compared byte for byte."""

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
    definitions: AcceptedDefinitions = AcceptedDefinitions()

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The issuers without `frameworks`, if several issuers are trusted. Each can pass off its own numbers as those
        of a framework that another issuer vouches for."""
        free = tuple(name for name, issuer in self.issuers.items() if issuer.frameworks is None)
        return free if len(self.issuers) > 1 else ()

    def token_keys(self) -> Iterator[jose.Key]:
        """Yield every key with which a trusted issuer signs or has signed tokens."""
        for issuer in self.issuers.values():
            yield from issuer.keys.keys.values() if issuer.keys else ()
            yield from (archived.key for archived in (issuer.archive or {}).values())


def read_trust_file(raw: bytes, name: str) -> TrustFile:
    """Read a trust file. Raises InputError with file, line and column."""
    document = load(raw, name)
    trust = document.convert(TrustFile)
    names = [entry.issuer for entry in trust.issuers]
    for index, entry in enumerate(trust.issuers):
        if names.count(entry.issuer) > 1:
            raise document.error(Code.FILE_RULE, f"/issuers/{index}/issuer", "this issuer occurs twice")
        if "log" in (trust.require or ()) and entry.log is UNSET:
            rule = "`require` has `log`, so each issuer needs one: `log: {policy: {file: NAME}}`"
            raise document.error(Code.FILE_RULE, f"/issuers/{index}", rule)
        if entry.revocations is not UNSET and trust.revocation_keys is UNSET:
            rule = "a revocation list needs `revocation_keys`, or its signature cannot be checked"
            raise document.error(Code.FILE_RULE, f"/issuers/{index}/revocations", rule)
    for at, rule in faults_of_definitions(trust.definitions or {}):
        raise document.error(Code.FILE_RULE, f"/definitions{at}", rule)
    for pointer, source in sources(trust).items():
        _check_source(document, pointer, source)
    return trust


def _check_source(document: Document, pointer: str, source: TrustSource) -> None:
    if sum(part is not UNSET for part in (source.url, source.file, source.inline)) != 1:
        raise document.error(Code.FILE_RULE, pointer, "give exactly one of `url`, `file` and `inline`")
    if source.url is not UNSET and pointer.endswith(_POLICY):
        rule = "give `file` or `inline`: you decide which log and which witnesses to trust, not a server"
        raise document.error(Code.FILE_RULE, pointer, rule)
    if source.inline is not UNSET:
        try:
            check_found(pointer, raw_of(source, None) or b"")
        except FormatError as error:
            raise document.locate(error, f"{pointer}/inline") from None


def sources(trust: TrustFile) -> dict[str, TrustSource]:
    """Return every source that the trust file names, by its JSON pointer there."""
    found = {}
    for index, entry in enumerate(trust.issuers):
        for name in ("keys", "archive", "revocations"):
            found[f"/issuers/{index}/{name}"] = getattr(entry, name)
        found[f"/issuers/{index}{_POLICY}"] = UNSET if entry.log is UNSET else entry.log.policy
    for name in ("receipt_keys", "revocation_keys"):
        found[f"/{name}"] = getattr(trust, name)
    return {pointer: source for pointer, source in found.items() if source is not UNSET}


def check_found(pointer: str, raw: bytes) -> None:
    """Raise FormatError if the bytes do not have the format that belongs at this pointer; such bytes need not be
    cached. Of a revocation list only the form is checked, because `resolve` has the keys for its signature."""
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
        raise FormatError(Code.FILE_RULE, "the key set has no usable key")
    return keys


def _parse_policy(raw: bytes) -> WitnessPolicy:
    try:
        policy = parse_policy(raw, "the policy")
    except InputError as error:
        # An error that is raised later has its place in the trust file, so the message gives the line in the policy.
        line = f" (line {error.place.line} of the policy)" if error.place.line else ""
        raise FormatError(error.code, f"{error.detail}{line}") from None
    if not policy.logs:
        raise FormatError(Code.LOG_POLICY, "it has no `log` line, so it names no log")
    return policy


def resolve(
    trust: TrustFile, found: Mapping[str, bytes | None], fetched_at: Mapping[str, int] = MappingProxyType({})
) -> Trust:
    """Return the trust with all its keys and lists. `found` has the bytes of URLs and files by the pointers of
    `sources`. `fetched_at` says when a URL last confirmed its bytes (Unix seconds), which check 2 then reports. A
    source that `found` lacks, or that came malformed from a URL, counts as unavailable: `absent` lists it, and checks
    that need it are `unknown`. Raises FormatError with the pointer if a file or an inline value is malformed."""
    return _Resolution(trust, found, fetched_at).trust()


def with_newest_lists(trust: Trust, before: Trust, now: int) -> Trust:
    """Return the trust with the revocation lists of an earlier reading, if they are newer (see `newest`)."""
    issuers = dict(trust.issuers)
    for name, issuer in trust.issuers.items():
        earlier = before.issuers.get(name)
        if issuer.revocations is not UNSET and earlier and earlier.revocations:
            listed, _ = newest(issuer.revocations, [earlier.revocations], now)
            issuers[name] = msgspec.structs.replace(issuer, revocations=listed)
    return msgspec.structs.replace(trust, issuers=issuers)


class _Resolution:
    """One call of `resolve`: the sources, and those that turned out to be absent."""

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
        file = self.file
        return Trust(
            file.audience, issuers, file.max_token_life_s, receipt_keys, revocation_keys, frozenset(file.require or ()),
            file.digest, tuple(self.absent), file.max_attempt or None, Tolerance(file.tolerance or {}),
            AcceptedDefinitions.of(file.definitions or {}),
        )  # fmt: skip

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
        """Read a key set and leave out keys that also sign tokens."""
        keys = self.read(pointer, _parse_keys)
        if not keys:
            return keys
        kept = without_token_keys(keys, token_keys)
        if len(kept.keys) < len(keys.keys):
            self.absent.append(Absence(pointer, "a key that signs tokens must not sign this as well: it is ignored"))
        return kept

    def revocations(
        self, pointer: str, issuer: str, keys: jose.KeySet | UnsetType | None
    ) -> Revocations | UnsetType | None:
        if not keys:
            return None if pointer in self.sources else UNSET
        return self.read(pointer, lambda raw: parse_revocations(raw, issuer, keys))

    def read(self, pointer: str, parse: Callable[[bytes], T]) -> T | UnsetType | None:
        """Return the parsed source at a pointer: None if unavailable, UNSET if the trust file does not name it."""
        source = self.sources.get(pointer)
        if source is None:
            return UNSET
        raw = raw_of(source, self.found.get(pointer))
        if raw is None:
            self.absent.append(Absence(pointer, "unavailable"))
            return None
        try:
            return parse(raw)
        except FormatError as error:
            if source.url is UNSET:
                # The error drops its line and column: they are places in the other file, not in the trust file.
                raise FormatError(error.code, error.detail, pointer + error.pointer) from None
            self.absent.append(Absence(pointer, error.detail))
            return None


def raw_of(source: TrustSource, found: bytes | None) -> bytes | None:
    """Return the bytes of a source: the inline value, or else those that were found."""
    inline = source.inline
    if inline is UNSET:
        return found
    return inline.encode() if isinstance(inline, str) else msgspec.json.encode(inline)
