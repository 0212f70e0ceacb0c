"""The loader of a directory of policies: `providers.yaml`, one `<integration>.yaml` each, and `benchmarks/`.

The directory loads as a whole or not at all. The loader reports every broken rule with file, line and column, then runs
the tests in the files. A second load reads only the files that have changed, and those whose rules or tests depend on
them; verdicts are kept in memory, never on the disk. `stops.py` reads `stops.yaml`. Files are the only effect here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Hashable, Iterable, KeysView, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.formats.findings import Findings
from issuer.formats.strict_json import pointer_to
from issuer.formats.strict_yaml import MAX_BYTES, Document
from issuer.formats.strict_yaml import load as load_yaml
from issuer.identity.table import Provider, ProvidersFile, check_token_prefixes, fill_in
from issuer.io import files
from issuer.limits.rate import DEFAULT_CEILINGS, NO_CEILINGS, Ceilings
from issuer.policy.assemble import NOTHING, Admits, Change, PolicyBasis, PolicyEntry, assemble, keys, touched
from issuer.policy.authoring.benchmarks import read_registered
from issuer.policy.authoring.lint import lint_abuse, lint_ceilings, lint_identity
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.authoring.suite import PolicyTestOutcome, doubt_tests, run_tests
from issuer.policy.compiled import is_unbounded
from issuer.policy.match import Key, PolicySet, are_disjoint
from issuer.policy.model import Grants, Identity, MetricGrant, Policy, PolicyTest, RegisteredBenchmarks, TokenRules
from issuer.policy.patterns import glob_matches, matches_one
from issuer.policy.registration import Registration
from issuer.results.benchmark import faults_of_definitions

PROVIDERS_FILE = "providers.yaml"
BENCHMARKS_FOLDER = "benchmarks"
# The most identities that may share a first pin. A request is compared with all of them, and the loader compares each
# with each.
MAX_SHARING = 100
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_WORD_PATTERN = re.compile(r"[\x21-\x7e]{1,128}")
_REPO_PATTERN = re.compile(r"[A-Za-z0-9_.*-]+/[A-Za-z0-9_.*-]+")
_ID_RULE = "id is lowercase words joined by `-`"
_DATED = re.compile(r"/identities/[0-9]+/expires|/tests/[0-9]+/date")

# Fingerprints of files by path. An equal fingerprint means that the file was not written in between.
Looks = Mapping[str, Hashable]


class PolicySource(Struct, frozen=True):
    """A directory, and the options of its rules.

    `issuer_url` is the URL of this service: the default audience, and never a provider. `development` allows providers
    on plain http at loopback addresses. A file above the operator's `ceilings` has an error.
    """

    directory: Path
    issuer_url: str
    development: bool = False
    ceilings: Ceilings = DEFAULT_CEILINGS


class Known(Struct, frozen=True, gc=False):
    """Facts about a good policy file: its fingerprint, the SHA-256 of its bytes, and its integration.

    `asked` has the keys of its identities, and of the identities in its tests. While the identities under these keys do
    not change, its rules hold and its tests pass.
    """

    look: Hashable
    digest: bytes
    integration: str
    asked: frozenset[Key]


class FolderStep(Struct, frozen=True):
    """The change from one good state of a directory to the next, complete enough to repeat it in another process.

    `basis` is None if it has not changed; a new basis replaces the whole state. `looks` has the fingerprints of the
    basis' files, `known` the files that were read, `lost` the files that are gone. `digest` is the digest of the new
    policies, or "" if it is not known yet.
    """

    basis: PolicyBasis | None
    looks: Looks
    entries: tuple[PolicyEntry, ...]
    gone: frozenset[str]
    known: Mapping[str, Known]
    lost: frozenset[str]
    digest: str = ""

    @property
    def changes(self) -> bool:
        """Whether a policy or the basis has changed, even if only in its wording."""
        return bool(self.basis or self.entries or self.gone)

    def decided(self) -> FolderStep:
        """Return the step without the facts about files."""
        return replace(self, looks={}, known={}, lost=frozenset())

    def without_values(self) -> FolderStep:
        """Return the step for a process that has nothing left to archive."""
        return replace(self, entries=tuple(entry.without_values() for entry in self.entries))


class Folder(Struct, frozen=True):
    """A good state of a directory: its policies, and the facts that save reading its files again."""

    policies: PolicySet = NOTHING
    basis: PolicyBasis | None = None
    looks: Looks = {}
    known: Mapping[str, Known] = {}

    def after(self, step: FolderStep, admits: Admits = lambda _one, _others: True) -> Folder:
        """Return the next state."""
        before = Folder() if step.basis else self
        basis = step.basis or self.basis
        assert basis is not None  # noqa: S101 (the first step brings one)
        known = dict(before.known)
        for path in step.lost:
            known.pop(path, None)
        policies = assemble(before.policies, Change(basis, step.entries, step.gone), admits, step.digest)
        known.update(step.known)
        return Folder(policies, basis, step.looks, known)

    def doubted(self) -> Folder:
        """Return the state without fingerprints, so that every file is read again."""
        return replace(self, looks={}, known={path: replace(each, look=None) for path, each in self.known.items()})

    def decided(self) -> Folder:
        """Return the state for a process that reads no files, and only applies steps."""
        return Folder(replace(self.policies, digests={}), self.basis)

    def without_values(self) -> Folder:
        """Return the state for a process that has archived its values."""
        digests = dict.fromkeys(self.policies.digests, b"")
        return replace(self, policies=replace(self.policies, digests=digests, benchmarks={}))


def load_policies(directory: Path, issuer_url: str, *, development: bool = False) -> PolicySet:
    """Load a directory in which every rule holds, except the operator's ceilings, and every test passes; the arguments
    are those of `PolicySource`. Raises InputError for the first error, with the number of further ones."""
    folder, _ = load_folder(PolicySource(directory, issuer_url, development, NO_CEILINGS), Folder(), {})
    return folder.policies


def load_for_plan(
    directory: Path, issuer_url: str, *, development: bool = False
) -> tuple[PolicySet, tuple[Finding, ...]]:
    """Load a directory as `load_policies` does, and return its failing tests instead of raising."""
    reading = _Reading(PolicySource(directory, issuer_url, development, NO_CEILINGS), Folder(), {})
    folder, _ = reading.run()
    errors = [finding for finding in reading.findings.in_order() if finding.severity == "error"]
    _refuse_first([finding for finding in errors if finding.code is not Code.POLICY_TEST_FAILED])
    return folder.policies, tuple(errors)


def _refuse_first(errors: list[Finding]) -> None:
    if not errors:
        return
    first, *more = errors
    others = f" (and {len(more)} more: run `issuer policy check`)" if more else ""
    raise InputError(first.code, first.detail + others, first.place, first.pointer)


def load_folder(
    source: PolicySource, before: Folder, looks: Looks, note: Callable[[], object] = lambda: None
) -> tuple[Folder, FolderStep]:
    """Load a directory as `load_policies` does, starting from the state `before`; `note` is called for each file.

    A file with the same fingerprint in `looks` is not read; a file with the same bytes is not judged again.
    """
    reading = _Reading(source, before, looks, note=note)
    folder, step = reading.run()
    if reading.findings.broken:
        _refuse_first([finding for finding in reading.findings.in_order() if finding.severity == "error"])
    return folder, step


def check_policies(
    directory: Path,
    issuer_url: str,
    now: int,
    *,
    development: bool = False,
    ceilings: Ceilings = DEFAULT_CEILINGS,
    tell: Callable[[Iterable[PolicyTestOutcome]], object] = lambda _: None,
) -> tuple[PolicySet | None, tuple[Finding, ...]]:
    """Check a directory at `now` (Unix seconds, for warnings only), and return every finding by file and line.

    The PolicySet is None if a finding is an error; a failed test is one. `tell` gets the outcome of each test in
    files without other errors.
    """
    reading = _Reading(PolicySource(directory, issuer_url, development, ceilings), Folder(), {}, now)
    folder, _ = reading.run(tell)
    reading.doubt()
    return (None if reading.findings.broken else folder.policies), reading.findings.in_order()


def try_policies(
    directory: Path, issuer_url: str, now: int, *, development: bool = False, ceilings: Ceilings = DEFAULT_CEILINGS
) -> tuple[tuple[PolicyTestOutcome, ...], tuple[Finding, ...]]:
    """Return the outcome of each test, as in `check_policies`, and all findings."""
    outcomes: list[PolicyTestOutcome] = []
    _, findings = check_policies(
        directory, issuer_url, now, development=development, ceilings=ceilings, tell=outcomes.extend
    )
    return tuple(outcomes), findings


def decides(directory: Path, path: str) -> bool:
    """Return whether write access to this path decides what is signed: the directory, and the files read in it."""
    folder, _, name = path.rpartition("/")
    if folder == str(directory):
        return name == PROVIDERS_FILE or _is_policy(name)
    return path == str(directory) or path.startswith(f"{directory / BENCHMARKS_FOLDER}/")


def read_each(
    directory: Path, before: Folder | None = None, looks: Looks | None = None
) -> dict[str, Policy | None] | None:
    """Read each integration's file alone. Its policy is None if the file is invalid or names another integration.

    `restriction.narrow` needs no more: the rules between members, files and providers are not applied. The result is
    None if the folder is missing: a volume may be unmounted. A file with the same fingerprint as `before` is not read.
    """
    findings, before, looks = Findings(), before or Folder(), looks or {}
    paths = _policy_files(directory, findings)
    if str(directory) in findings.broken or not (directory / PROVIDERS_FILE).exists():
        return None
    found: dict[str, Policy | None] = {}
    for path in paths:
        known = before.known.get(path)
        if known is not None and known.look is not None and looks.get(path) == known.look:
            found[known.integration] = before.policies.policies[known.integration]
        else:
            found[_stem(path)] = _read_alone(path)
    return found


def _read_alone(path: str) -> Policy | None:
    findings = Findings()
    raw = _read(path, findings)
    document = _parse(path, raw, findings) if raw is not None else None
    policy = findings.convert(document, Policy) if document else None
    if policy is None or policy.integration != _stem(path) or not all(map(_is_dated, policy.identities)):
        return None
    return policy


def _is_dated(identity: Identity) -> bool:
    try:
        return identity.expires is UNSET or date.fromisoformat(identity.expires).isoformat() == identity.expires
    except ValueError:
        return False


# Providers by id; None for an entry with an error.
Providers = Mapping[str, Provider | None]


class _Text(Document, frozen=True, eq=False, dict=True):
    """A document without its value and its nodes, which are a hundred times larger than its text. They are read again
    when a place in it is needed."""

    raw: bytes = b""

    @cached_property
    def _again(self) -> Document:
        return load_yaml(self.raw, self.name, bare_dates=_may_be_bare)

    def place(self, pointer: str) -> Place:
        return self._again.place(pointer)


class _Read(Struct, frozen=True):
    """A policy file that breaks no rule alone; its tests have not been run.

    `tests` are encoded. In ten thousand files they would take the most memory, in small pieces between the others.
    """

    path: str
    document: Document
    entry: PolicyEntry
    tests: bytes
    digest: bytes

    @property
    def policy(self) -> Policy:
        """The policy, with its tests."""
        return replace(self.entry.policy, tests=msgspec.msgpack.decode(self.tests, type=tuple[PolicyTest, ...]))


class _Reading:
    """One reading of a directory, starting from the state `before` for the files with the same `looks`."""

    def __init__(
        self,
        source: PolicySource,
        before: Folder,
        looks: Looks,
        now: int = 0,
        note: Callable[[], object] = lambda: None,
    ) -> None:
        self.findings = Findings()
        self._source = source
        self._before = before
        self._looks = looks
        self._now = now
        self._note = note
        self._basis = before.basis or PolicyBasis.of({}, RegisteredBenchmarks(), {})
        self._providers: Providers | None = {}
        self._read: list[_Read] = []
        self._again: list[_Read] = []
        self._testable: list[_Read] = []

    def run(self, tell: Callable[[Iterable[PolicyTestOutcome]], object] = lambda _: None) -> tuple[Folder, FolderStep]:
        """Return the sound part of the directory, and the step to it; `tell` gets the outcomes of the tests."""
        findings = self.findings
        looks = self._read_basis()
        basis = self._basis
        testable = not findings.broken  # every test depends on the basis
        if basis is not self._before.basis:
            self._before = Folder()
        before = self._before
        paths = _policy_files(self._source.directory, findings)
        known = self._read_changed(paths)
        lost = frozenset(before.known.keys() - paths)
        broken = findings.broken & before.known.keys()  # ignored in the tests of other files
        gone = frozenset(before.known[path].integration for path in lost | broken)
        entries = tuple(each.entry for each in self._read)
        step = FolderStep(None if basis is before.basis else basis, looks, entries, gone, known, lost)
        self._read_dependent(touched(before.policies, Change(basis, entries, gone)), lost)
        folder = before.after(step, self._admits)
        sound = (each for each in self._read + self._again if testable and each.document.name not in findings.broken)
        self._testable = list(sound)
        for each in self._testable:
            self._note()
            policy = each.policy
            outcomes = run_tests(folder.policies, policy, each.document, findings)
            tell(outcomes)
            asked = frozenset((*keys(policy, basis), *(outcome.asked for outcome in outcomes)))
            known[each.path] = Known(self._looks.get(each.path), each.digest, policy.integration, asked)
        return replace(folder, known={**folder.known, **known}), replace(step, digest=folder.policies.digest)

    def doubt(self) -> None:
        """Add the warnings that need all files together, and warnings of weak tests."""
        _doubt_shared_frameworks(self._read, self.findings)
        for each in self._testable:
            doubt_tests(each.policy, each.document, self.findings)

    def _read_basis(self) -> Looks:
        """Read providers and registered benchmarks unless their fingerprints are the same; return the fingerprints."""
        source, before, findings = self._source, self._before, self.findings
        table, folder = str(source.directory / PROVIDERS_FILE), str(source.directory / BENCHMARKS_FOLDER)
        looks = {path: look for path, look in self._looks.items() if path == table or path.startswith(folder)}
        if before.basis is not None and looks and looks == before.looks:
            self._providers = before.basis.providers
            return looks
        self._providers = providers = _read_providers(source, findings)
        benchmarks, registered = read_registered(source.directory / BENCHMARKS_FOLDER, findings)
        sound = {name: each for name, each in (providers or {}).items() if each is not None}
        basis = PolicyBasis.of(sound, benchmarks, registered)
        self._basis = before.basis if before.basis == basis else basis
        return looks

    def _read_changed(self, paths: Iterable[str]) -> dict[str, Known]:
        """Read the files with new fingerprints; return the facts about those with the same bytes as before."""
        unchanged: dict[str, Known] = {}
        for path in paths:
            known, look = self._before.known.get(path), self._looks.get(path)
            if known is not None and look is not None and look == known.look:
                continue
            raw = _read(path, self.findings)
            if raw is None:
                continue
            digest = hashlib.sha256(raw).digest()
            if known is not None and digest == known.digest:
                unchanged[path] = replace(known, look=look)
            elif read := self._judge(path, raw, digest):
                self._read.append(read)
        return unchanged

    def _read_dependent(self, changed: KeysView[Key], lost: frozenset[str]) -> None:
        """Read the unchanged files whose rules or tests depend on a change."""
        skip = {each.path for each in self._read} | lost | self.findings.broken
        for path, before in self._before.known.items():
            if path in skip or changed.isdisjoint(before.asked):
                continue
            raw = _read(path, self.findings)
            if raw is not None and (read := self._judge(path, raw, before.digest)):
                self._again.append(read)

    def _judge(self, path: str, raw: bytes, digest: bytes) -> _Read | None:
        """Judge one integration's file alone; return None if it has an error."""
        self._note()
        findings = self.findings
        document = _parse(path, raw, findings)
        policy = findings.convert(document, Policy) if document else None
        if document is None or policy is None:
            return None
        integration, file = policy.integration, f"this integration's file is {policy.integration}.yaml"
        if findings.demand(document, "/integration", _ID.fullmatch(integration), f"an integration's {_ID_RULE}"):
            findings.demand(document, "/integration", _stem(path) == integration, file)
        _check_identities(findings, document, policy, self._providers, self._now)
        _check_grants(findings, document, policy.grants)
        _check_token(findings, document, policy.token)
        _check_abuse(findings, document, policy)
        lint_ceilings(findings, document, policy, self._source.ceilings)
        if path in findings.broken:
            return None
        tests = msgspec.msgpack.encode(policy.tests)
        return _Read(path, _Text(path, None, raw=raw), PolicyEntry.of(policy, self._basis), tests, digest)

    @cached_property
    def _documents(self) -> dict[str, _Read]:
        return {each.entry.policy.integration: each for each in self._read + self._again}

    def _admits(self, registration: Registration, others: tuple[Registration, ...]) -> bool:
        """Demand that no token can match this identity and another one."""
        rule = _fault_beside(registration, others)
        if rule:
            read = self._documents[registration.policy.integration]
            at = [each.id for each in read.entry.policy.identities].index(registration.identity.id)
            self.findings.demand(read.document, f"/identities/{at}", False, rule)
        return not rule


def _fault_beside(registration: Registration, others: tuple[Registration, ...]) -> str:
    """Return the fault of an identity beside the others with the same first pin, or "" for no fault."""
    if len(others) >= MAX_SHARING:
        return f"more than {MAX_SHARING} identities share the first pin of this one: join some with `any_of` or a glob"
    for other in others:
        if not are_disjoint(registration.identity, other.identity):
            overlap = f"overlaps {other.policy.integration}/{other.identity.id}: one token could match both"
            return f"{overlap}; tell them apart by a pin, an exact value or `any_of`"
    return ""


def _policy_files(directory: Path, findings: Findings) -> list[str]:
    """Return the paths of the policy files, in order."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        findings.refuse(InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(directory))))
        return []
    inside = str(directory / "x").removesuffix("x")
    for name in sorted(filter(_is_overlooked, names)):
        rule = "the name of a policy file ends in .yaml: rename this file"
        findings.refuse(InputError(Code.FILE_RULE, rule, Place(inside + name)))
    return [inside + name for name in sorted(filter(_is_policy, names))]


# Dot files are locks and backups of editors, or belong to a mounted volume.
def _is_policy(name: str) -> bool:
    return name.endswith(".yaml") and not name.startswith(".") and name not in {PROVIDERS_FILE, STOPS_FILE}


def _is_overlooked(name: str) -> bool:
    return not name.endswith(".yaml") and not name.startswith(".") and name.lower().endswith((".yml", ".yaml"))


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".yaml")


def _read(path: str, findings: Findings) -> bytes | None:
    try:
        return files.read(path, MAX_BYTES)
    except InputError as error:
        findings.refuse(error)
    return None


def _parse(path: str, raw: bytes, findings: Findings) -> Document | None:
    try:
        return load_yaml(raw, path, bare_dates=_may_be_bare)
    except InputError as error:
        findings.refuse(error)
    return None


def _may_be_bare(at: str) -> bool:
    return _DATED.fullmatch(at) is not None


# -- providers --------------------------------------------------------------------------------------------------------


def _read_providers(source: PolicySource, findings: Findings) -> Providers | None:
    """Read the table of providers; None if it is unreadable."""
    path = str(source.directory / PROVIDERS_FILE)
    raw = _read(path, findings)
    document = _parse(path, raw, findings) if raw is not None else None
    file = findings.convert(document, ProvidersFile) if document else None
    if document is None or file is None:
        return None
    providers: dict[str, Provider | None] = {}
    taken: set[str] = set()
    for name, entry in file.providers.items():
        at = pointer_to("/providers", name)
        findings.demand(document, at, _ID.fullmatch(name), "a provider's id is lowercase words joined by `-`")
        provider = fill_in(findings, document, name, entry, source.issuer_url, development=source.development)
        if provider is not None:
            new = (
                provider.rules.prefix or provider.issuer not in taken
            )  # `check_token_prefixes` judges providers with a prefix
            findings.demand(document, f"{at}/issuer", new, "another provider already has this issuer")
            taken.add(provider.issuer)
        providers[name] = provider
    check_token_prefixes(findings, document, [provider for provider in providers.values() if provider is not None])
    return providers


# -- policies ---------------------------------------------------------------------------------------------------------


def _check_identities(
    findings: Findings, document: Document, policy: Policy, providers: Providers | None, now: int
) -> None:
    seen: set[str] = set()
    for index, identity in enumerate(policy.identities):
        at = f"/identities/{index}"
        findings.demand(document, f"{at}/id", _ID.fullmatch(identity.id), f"an identity's {_ID_RULE}")
        findings.demand(document, f"{at}/id", identity.id not in seen, "another identity of this file has this id")
        seen.add(identity.id)
        if providers is None:
            continue  # the error of the table is reported; the policies are not at fault
        rule = f"not a provider of {PROVIDERS_FILE}, which has {', '.join(sorted(providers))}"
        findings.demand(document, f"{at}/provider", identity.provider in providers, rule)
        if provider := providers.get(identity.provider):
            lint_identity(findings, document, at, identity, provider, now)


def _check_grants(findings: Findings, document: Document, grants: Grants) -> None:
    for index, framework in enumerate(grants.frameworks):
        at = f"/grants/frameworks/{index}/versions"
        ranged = _is_specifier(framework.versions)
        findings.demand(document, at, ranged, "must be a PEP 440 range such as `>=0.3,<0.4`")
    for part, lists in (("/grants", grants), ("/grants/deny", grants.deny)):
        for kind in ("benchmarks", "models"):
            for index, pattern in enumerate(getattr(lists, kind)):
                fits = _REPO_PATTERN.fullmatch(pattern)
                findings.demand(document, f"{part}/{kind}/{index}", fits, _REPO_RULE)
        for index, pattern in enumerate(lists.tasks):
            findings.demand(document, f"{part}/tasks/{index}", _WORD_PATTERN.fullmatch(pattern), _WORD_RULE)
    _check_definitions(findings, document, grants)
    _check_metrics(findings, document, grants.metrics)


def _check_definitions(findings: Findings, document: Document, grants: Grants) -> None:
    stated = grants.definitions or {}
    for at, rule in faults_of_definitions(stated):
        findings.demand(document, f"/grants/definitions{at}", False, rule)
    globs = tuple(glob.lower() for glob in grants.benchmarks)
    for repo in stated:
        rule = "`benchmarks` does not grant this benchmark, so its definitions would decide nothing"
        granted = matches_one(globs, repo.lower())
        findings.demand(document, pointer_to("/grants/definitions", repo), granted, rule)


_REPO_RULE = "must be `owner/name`; each side may have `*`, which never matches `/`"
_WORD_RULE = "must be 1 to 128 printable ASCII characters without space: ids have no others"


def _check_metrics(findings: Findings, document: Document, grants: tuple[str | MetricGrant, ...]) -> None:
    whole = [grant if isinstance(grant, str) else grant.id for grant in grants if is_unbounded(grant)]
    for index, grant in enumerate(grants):
        at = f"/grants/metrics/{index}"
        fits = _WORD_PATTERN.fullmatch(grant if isinstance(grant, str) else grant.id)
        findings.demand(document, at, fits, _WORD_RULE)
        if isinstance(grant, str) or is_unbounded(grant):
            continue
        ordered = grant.min is UNSET or grant.max is UNSET or grant.min <= grant.max
        findings.demand(document, at, ordered, "`min` is above `max`: no value is in the range")
        for pattern in whole:
            if glob_matches(pattern, grant.id):
                findings.warn(
                    document, at, Code.LINT_SHADOWED, f"{pattern} already grants every value of these metrics"
                )


def _doubt_shared_frameworks(read: list[_Read], findings: Findings) -> None:
    """Warn of two integrations that may speak for one framework, or for names that differ only in capitals."""
    first: dict[str, str] = {}
    for document, policy in ((item.document, item.entry.policy) for item in read):
        for index, framework in enumerate(policy.grants.frameworks):
            other = first.setdefault(framework.name.casefold(), policy.integration)
            if other != policy.integration:
                detail = f"{other} may speak for this framework, too: readers cannot tell their tokens apart"
                at = f"/grants/frameworks/{index}/name"
                findings.warn(document, at, Code.LINT_FRAMEWORK_SHARED, detail)


def _check_token(findings: Findings, document: Document, token: TokenRules) -> None:
    for index, audience in enumerate(token.audiences):
        new = audience not in token.audiences[:index]
        findings.demand(document, f"/token/audiences/{index}", new, "this audience is listed twice")


def _check_abuse(findings: Findings, document: Document, policy: Policy) -> None:
    for index, pattern in enumerate(policy.abuse.attempts.ignore):
        fits = _WORD_PATTERN.fullmatch(pattern)
        findings.demand(document, f"/abuse/attempts/ignore/{index}", fits, _WORD_RULE)
    lint_abuse(findings, document, policy)


def _is_specifier(text: object) -> bool:
    if text is UNSET:
        return True
    try:
        return len(SpecifierSet(str(text))) > 0  # "," is an empty set of specifiers, which matches every version
    except InvalidSpecifier:
        return False
