"""Read a directory of policies: `providers.yaml`, one `<integration>.yaml` per integration, and `benchmarks/`.

`stops.yaml` lies beside them and is none of them: it is read apart (stops.py).

The directory loads as a whole or not at all. Every broken rule is found, with file, line and column; then the tests in
the files are run. Reads files, and nothing else of the world.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from issuer import files
from issuer.codes import Code
from issuer.errors import Finding, InputError, Place
from issuer.formats import jcs
from issuer.formats.findings import Findings
from issuer.formats.strict_json import JSON, pointer_to
from issuer.formats.strict_yaml import MAX_BYTES, Document
from issuer.formats.strict_yaml import load as load_yaml
from issuer.identity.provider import Provider, ProvidersFile
from issuer.identity.table import check_token_prefixes, fill_in
from issuer.policy.authoring.benchmarks import RegisteredFile, read_registered
from issuer.policy.authoring.lint_identity import lint_identity
from issuer.policy.authoring.stops import STOPS_FILE
from issuer.policy.authoring.suite import Outcome, run_tests
from issuer.policy.compiled import CompiledGrants, CompiledProvider, is_unbounded
from issuer.policy.globs import glob_matches
from issuer.policy.match import PolicySet, are_disjoint
from issuer.policy.model import Grants, Identity, MetricGrant, Policy, RegisteredBenchmarks, TokenRules
from issuer.policy.registration import Registration

PROVIDERS_FILE = "providers.yaml"
BENCHMARKS_FOLDER = "benchmarks"
# Such a caller's request is compared with all of them, and the loader compares each with each.
MAX_SHARING = 100
_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_WORD_PATTERN = re.compile(r"[\x21-\x7e]{1,128}")
_REPO_PATTERN = re.compile(r"[A-Za-z0-9_.*-]+/[A-Za-z0-9_.*-]+")
_ID_RULE = "id is lowercase words joined by `-`"
_DATED = re.compile(r"/identities/[0-9]+/expires|/tests/[0-9]+/date")


def load_policies(directory: Path, issuer_url: str, *, development: bool = False) -> PolicySet:
    """Load a directory whose every rule holds and whose every test passes.

    `issuer_url` is this service's own: the default audience, and never a provider. `development` allows providers on
    plain http, at loopback addresses only. Raises InputError for the first error, saying how many more there are.
    """
    policies, findings = check_policies(directory, issuer_url, 0, development=development)
    if policies is None:
        first, *more = (finding for finding in findings if finding.severity == "error")
        others = f" (and {len(more)} more: run `issuer policy check`)" if more else ""
        raise InputError(first.code, first.detail + others, first.place, first.pointer)
    return policies


def check_policies(
    directory: Path, issuer_url: str, now: int, *, development: bool = False
) -> tuple[PolicySet | None, tuple[Finding, ...]]:
    """Check a directory at `now` (Unix seconds, for warnings only): every finding, by file and line.

    No PolicySet comes back where a finding is an error, a failed test among them.
    """
    findings = Findings()
    policies, _ = _read_all(directory, issuer_url, now, findings, development=development)
    return (None if findings.broken else policies), findings.in_order()


def try_policies(
    directory: Path, issuer_url: str, now: int, *, development: bool = False
) -> tuple[tuple[Outcome, ...], tuple[Finding, ...]]:
    """Return the outcome of each test, of files that neither have nor depend on another error; and all findings."""
    findings = Findings()
    _, outcomes = _read_all(directory, issuer_url, now, findings, development=development)
    return outcomes, findings.in_order()


def paths_that_decide(directory: Path) -> Iterator[Path]:
    """Yield all that is read of a directory, and the folders that the files are really in: who may write there decides
    what is signed."""
    yield directory
    here = [directory / PROVIDERS_FILE, *_policy_files(directory, Findings())]
    for path in (*here, *(directory / BENCHMARKS_FOLDER).rglob("*")):
        if path.exists():  # else `load_policies` says what is missing
            yield path
            yield path.resolve().parent


def read_each(directory: Path) -> dict[str, Policy | None] | None:
    """Read each integration's file by itself: its policy where that fits its type and names itself, else None.

    For `policy.narrow`: the rules between members, files and providers are not asked. None for a folder that is not
    there as a whole: it may be a volume that is not mounted.
    """
    findings = Findings()
    paths = _policy_files(directory, findings)
    if str(directory) in findings.broken or not (directory / PROVIDERS_FILE).exists():
        return None
    return {path.stem: _read_alone(path) for path in paths}


def _read_alone(path: Path) -> Policy | None:
    findings = Findings()
    document = _read(path, findings)
    policy = findings.convert(document, Policy) if document else None
    if policy is None or policy.integration != path.stem or not all(map(_is_dated, policy.identities)):
        return None
    return policy


def _is_dated(identity: Identity) -> bool:
    try:
        return identity.expires is UNSET or date.fromisoformat(identity.expires).isoformat() == identity.expires
    except ValueError:
        return False


# By id; None for an entry with an error.
Providers = Mapping[str, Provider | None]


class _Read(Struct, frozen=True):
    """A policy file that breaks no rule; its tests have not been run."""

    document: Document
    policy: Policy


def _read_all(
    directory: Path, issuer_url: str, now: int, findings: Findings, *, development: bool
) -> tuple[PolicySet, tuple[Outcome, ...]]:
    """Return the sound part of the directory as a set, and the outcomes of its tests."""
    providers = _read_providers(directory / PROVIDERS_FILE, issuer_url, findings, development=development)
    benchmarks, files = read_registered(directory / BENCHMARKS_FOLDER, findings)
    testable = not findings.broken  # every test depends on these
    candidates = [_read_policy(path, providers, now, findings) for path in _policy_files(directory, findings)]
    read = [item for item in candidates if item is not None]
    policies = _assemble(read, providers or {}, benchmarks, files, findings)
    _doubt_shared_frameworks(read, findings)
    sound = [item for item in read if testable and item.document.name not in findings.broken]
    outcomes = [outcome for item in sound for outcome in run_tests(policies, item.policy, item.document, findings)]
    return policies, tuple(outcomes)


def _assemble(
    read: list[_Read], providers: Providers, benchmarks: RegisteredBenchmarks, files: Mapping[str, RegisteredFile],
    findings: Findings,
) -> PolicySet:  # fmt: skip
    """Index what was read; `files` are those of the registered benchmarks."""
    sound = {name: provider for name, provider in providers.items() if provider is not None}
    canonical = {name: jcs.canonical(msgspec.to_builtins(provider)) for name, provider in sound.items()}
    rules = {name: CompiledProvider(provider) for name, provider in sound.items()}
    digests: dict[str, bytes] = {}
    kept: dict[str, bytes] = {}
    registrations: list[tuple[Document, int, Registration]] = []
    for document, policy in ((item.document, item.policy) for item in read):
        text, grants = jcs.canonical(msgspec.to_builtins(policy)), CompiledGrants(policy.grants)
        decisive = _decisive(files, grants) if policy.grants.registered_only else {}
        kept.update({file.digest: file.raw for file in decisive.values()})
        registered = {name: file.digest for name, file in decisive.items()}
        part = b'"benchmarks":%b,' % jcs.canonical(registered) if policy.grants.registered_only else b""
        under: dict[str, str] = {}
        for name in sound.keys() & dict.fromkeys(identity.provider for identity in policy.identities):
            value = b'{%b"policy":%b,"provider":%b}' % (part, text, canonical[name])  # canonical, as its parts are
            under[name] = jcs.digest_of_bytes(value)
            digests[under[name]] = value
        for index, identity in enumerate(policy.identities):
            if (name := identity.provider) in under:
                registration = Registration.of(policy, identity, rules[name], grants, under[name], benchmarks)
                registrations.append((document, index, registration))
    whole: JSON = {
        "policies": sorted(digests),
        "providers": {name: jcs.digest_of_bytes(text) for name, text in canonical.items()},
        "benchmarks": {name: file.digest for name, file in files.items()},
    }
    return PolicySet(
        providers={provider.issuer: provider for provider in sound.values()},
        policies={item.policy.integration: item.policy for item in read},
        registrations=_index(registrations, findings),
        digests=digests,
        digest=jcs.digest(whole),
        benchmarks=kept,
    )


def _decisive(files: Mapping[str, RegisteredFile], grants: CompiledGrants) -> dict[str, RegisteredFile]:
    """Return the registered files that can decide under these grants: those of benchmarks that the lists allow."""
    return {name: file for name, file in files.items() if grants.benchmarks.allows(file.repo)}


def _policy_files(directory: Path, findings: Findings) -> list[Path]:
    try:
        # Dot files are editors' locks and backups, or a mounted volume's own.
        named = (path for path in directory.iterdir() if not path.name.startswith("."))
        paths = sorted(path for path in named if path.suffix.lower() in {".yml", ".yaml"})
    except OSError as error:
        findings.refuse(InputError(Code.FILE_UNREADABLE, str(error.strerror), Place(str(directory))))
        return []
    for path in (path for path in paths if path.suffix != ".yaml"):
        rule = "policies end in .yaml; this file would be overlooked"
        findings.refuse(InputError(Code.FILE_RULE, rule, Place(str(path))))
    return [path for path in paths if path.suffix == ".yaml" and path.name not in {PROVIDERS_FILE, STOPS_FILE}]


def _read(path: Path, findings: Findings) -> Document | None:
    try:
        return load_yaml(files.read(path, MAX_BYTES), str(path), bare_dates=lambda at: _DATED.fullmatch(at) is not None)
    except InputError as error:
        findings.refuse(error)
    return None


# -- providers --------------------------------------------------------------------------------------------------------


def _read_providers(path: Path, issuer_url: str, findings: Findings, *, development: bool) -> Providers | None:
    """Read the table of providers; None where it cannot be read at all."""
    document = _read(path, findings)
    file = findings.convert(document, ProvidersFile) if document else None
    if document is None or file is None:
        return None
    providers: dict[str, Provider | None] = {}
    taken: set[str] = set()
    for name, entry in file.providers.items():
        at = pointer_to("/providers", name)
        findings.demand(document, at, _ID.fullmatch(name), "a provider's id is lowercase words joined by `-`")
        provider = fill_in(findings, document, name, entry, issuer_url, development=development)
        if provider is not None:
            new = provider.rules.prefix or provider.issuer not in taken  # of those there is one each, see below
            findings.demand(document, f"{at}/issuer", new, "another provider already has this issuer")
            taken.add(provider.issuer)
        providers[name] = provider
    check_token_prefixes(findings, document, [provider for provider in providers.values() if provider is not None])
    return providers


# -- policies ---------------------------------------------------------------------------------------------------------


def _read_policy(path: Path, providers: Providers | None, now: int, findings: Findings) -> _Read | None:
    """Read one integration's file; None where it has an error."""
    document = _read(path, findings)
    policy = findings.convert(document, Policy) if document else None
    if document is None or policy is None:
        return None
    integration, file = policy.integration, f"this integration's file is {policy.integration}.yaml"
    if findings.demand(document, "/integration", _ID.fullmatch(integration), f"an integration's {_ID_RULE}"):
        findings.demand(document, "/integration", path.stem == integration, file)
    _check_identities(findings, document, policy, providers, now)
    _check_grants(findings, document, policy.grants)
    _check_token(findings, document, policy.token)
    return None if document.name in findings.broken else _Read(document, policy)


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
            continue  # the table is at fault, and reported; not the policies that name its entries
        rule = f"not a provider of {PROVIDERS_FILE}; there are {', '.join(sorted(providers))}"
        findings.demand(document, f"{at}/provider", identity.provider in providers, rule)
        if provider := providers.get(identity.provider):
            lint_identity(findings, document, at, identity, provider, now)


def _check_grants(findings: Findings, document: Document, grants: Grants) -> None:
    for index, framework in enumerate(grants.frameworks):
        at = f"/grants/frameworks/{index}/versions"
        ranged = _is_specifier(framework.versions)
        findings.demand(document, at, ranged, "must be a PEP 440 range, as `>=0.3,<0.4`")
    for part, lists in (("/grants", grants), ("/grants/deny", grants.deny)):
        for kind in ("benchmarks", "models"):
            for index, pattern in enumerate(getattr(lists, kind)):
                fits = _REPO_PATTERN.fullmatch(pattern)
                findings.demand(document, f"{part}/{kind}/{index}", fits, _REPO_RULE)
        for index, pattern in enumerate(lists.tasks):
            findings.demand(document, f"{part}/tasks/{index}", _WORD_PATTERN.fullmatch(pattern), _WORD_RULE)
    _check_metrics(findings, document, grants.metrics)


_REPO_RULE = "must be `owner/name`; each side may hold `*`, which never crosses `/`"
_WORD_RULE = "must be 1 to 128 printable ASCII characters without space, as the ids are: nothing else is ever met"


def _check_metrics(findings: Findings, document: Document, grants: tuple[str | MetricGrant, ...]) -> None:
    whole = [grant if isinstance(grant, str) else grant.id for grant in grants if is_unbounded(grant)]
    for index, grant in enumerate(grants):
        at = f"/grants/metrics/{index}"
        fits = _WORD_PATTERN.fullmatch(grant if isinstance(grant, str) else grant.id)
        findings.demand(document, at, fits, _WORD_RULE)
        if isinstance(grant, str) or is_unbounded(grant):
            continue
        ordered = grant.min is UNSET or grant.max is UNSET or grant.min <= grant.max
        findings.demand(document, at, ordered, "`min` is above `max`: no value lies between them")
        for pattern in whole:
            if glob_matches(pattern, grant.id):
                findings.warn(document, at, Code.LINT_SHADOWED, f"{pattern} already grants these metrics every value")


def _doubt_shared_frameworks(read: list[_Read], findings: Findings) -> None:
    """Warn where two integrations may both speak for one framework, or for names that differ in capitals alone."""
    first: dict[str, str] = {}
    for document, policy in ((item.document, item.policy) for item in read):
        for index, framework in enumerate(policy.grants.frameworks):
            other = first.setdefault(framework.name.casefold(), policy.integration)
            if other != policy.integration:
                detail = f"{other} may speak for this framework, too: a token of either passes as the framework's"
                at = f"/grants/frameworks/{index}/name"
                findings.warn(document, at, Code.LINT_FRAMEWORK_SHARED, detail)


def _check_token(findings: Findings, document: Document, token: TokenRules) -> None:
    for index, audience in enumerate(token.audiences):
        new = audience not in token.audiences[:index]
        findings.demand(document, f"/token/audiences/{index}", new, "this audience stands here twice")


def _is_specifier(text: object) -> bool:
    if text is UNSET:
        return True
    try:
        return len(SpecifierSet(str(text))) > 0  # "," is a specifier set of none, which every version meets
    except InvalidSpecifier:
        return False


def _index(
    registrations: list[tuple[Document, int, Registration]], findings: Findings
) -> dict[tuple[str, str], tuple[Registration, ...]]:
    """Index identities by provider and first pin, without any that a token could match together with another."""
    index: dict[tuple[str, str], tuple[Registration, ...]] = {}
    for document, position, registration in registrations:
        key = (registration.provider.id, registration.identity.pins[registration.provider.rules.pins[0]])
        bucket = index.get(key, ())
        full = f"more than {MAX_SHARING} identities have the first pin of this one: join some with `any_of` or a glob"
        room = findings.demand(document, f"/identities/{position}", len(bucket) < MAX_SHARING, full)
        if room and all(
            _demand_apart(findings, document, f"/identities/{position}", registration, other) for other in bucket
        ):
            index[key] = (*bucket, registration)
    return index


def _demand_apart(
    findings: Findings, document: Document, at: str, registration: Registration, other: Registration
) -> bool:
    overlap = f"overlaps {other.policy.integration}/{other.identity.id}: one token could match both"
    rule = f"{overlap}; tell them apart by a pin, an exact value or `any_of`"
    return findings.demand(document, at, are_disjoint(registration.identity, other.identity), rule)
