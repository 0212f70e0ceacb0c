"""Assembly of a set of policies from the set before it and the change since. Pure.

`authoring` assembles a set from the files that it has read; other processes assemble the same set from the change. The
parts that a change does not touch are reused, so one changed file of ten thousand costs one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, KeysView, Mapping

import msgspec
from msgspec import Struct

from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.policy.compiled import BENCHMARKS, CompiledGrants, CompiledProvider
from issuer.policy.match import Key, PolicySet, key_of_identity
from issuer.policy.model import Policy, RegisteredBenchmarks, RegisteredFile
from issuer.policy.registration import Registration

# Returns whether an identity is allowed beside the earlier ones with the same key. Called in the order of the files.
Admits = Callable[[Registration, tuple[Registration, ...]], bool]


class PolicyBasis(Struct, frozen=True):
    """The parts of a folder that all its policies use: providers by id, and registered benchmarks with their files by
    path. `canonical` has the RFC 8785 bytes of each provider.
    """

    providers: Mapping[str, Provider]
    benchmarks: RegisteredBenchmarks
    files: Mapping[str, RegisteredFile]
    canonical: Mapping[str, bytes]

    @classmethod
    def of(
        cls, providers: Mapping[str, Provider], benchmarks: RegisteredBenchmarks, files: Mapping[str, RegisteredFile]
    ) -> PolicyBasis:
        """Make the canonical form of the providers."""
        canonical = {name: jcs.canonical(msgspec.to_builtins(provider)) for name, provider in providers.items()}
        return cls(providers, benchmarks, files, canonical)


class PolicyEntry(Struct, frozen=True):
    """One integration's policy without its tests, which have passed. `digests` has one digest for each provider id.

    `values` has the bytes of each digest, and `benchmarks` the registered files that they name, by digest: all that
    must be archived of a policy that decides (contract section 4). After that both may be empty.
    """

    policy: Policy
    digests: Mapping[str, str]
    values: Mapping[str, bytes] = {}
    benchmarks: Mapping[str, bytes] = {}

    @classmethod
    def of(cls, policy: Policy, basis: PolicyBasis) -> PolicyEntry:
        """Compute the digests of a policy together with everything else that decides."""
        text, named = jcs.canonical(msgspec.to_builtins(policy)), {each.provider for each in policy.identities}
        decisive = _decisive(basis, policy) if policy.grants.registered_only else {}
        registered = {name: file.digest for name, file in decisive.items()}
        part = b'"benchmarks":%b,' % jcs.canonical(registered) if policy.grants.registered_only else b""
        digests: dict[str, str] = {}
        values: dict[str, bytes] = {}
        for name in sorted(named & basis.providers.keys()):
            value = b'{%b"policy":%b,"provider":%b}' % (
                part,
                text,
                basis.canonical[name],
            )  # canonical, because its parts are
            digests[name] = jcs.digest_of_bytes(value)
            values[digests[name]] = value
        kept = {file.digest: file.raw for file in decisive.values()}
        return cls(msgspec.structs.replace(policy, tests=()), digests, values, kept)

    def without_values(self) -> PolicyEntry:
        """Return the entry for a process that has nothing left to archive."""
        return PolicyEntry(self.policy, self.digests)


def _decisive(basis: PolicyBasis, policy: Policy) -> dict[str, RegisteredFile]:
    """Return the registered files that can decide under these grants: the files of benchmarks that the lists allow."""
    granted, denied = policy.grants.benchmarks, policy.grants.deny.benchmarks
    return {
        name: file
        for name, file in basis.files.items()
        if all(check.passed for check in BENCHMARKS.check(granted, denied, file.repo))
    }


class Change(Struct, frozen=True):
    """A change of a set: the new `entries` in the order of their files, and the integrations that are `gone`. If the
    `basis` has changed, all entries are new and the set before is dropped."""

    basis: PolicyBasis
    entries: tuple[PolicyEntry, ...]
    gone: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The integrations that have changed or gone."""
        return self.gone.union(entry.policy.integration for entry in self.entries)


NOTHING = PolicySet({}, {}, {}, {}, "")


def touched(before: PolicySet, change: Change) -> KeysView[Key]:
    """Return the keys whose identities change, in the order of the files."""
    old = (before.policies[name] for name in sorted(change.names) if name in before.policies)
    policies = (*old, *(entry.policy for entry in change.entries))
    return dict.fromkeys(key for policy in policies for key in keys(policy, change.basis)).keys()


def keys(policy: Policy, basis: PolicyBasis) -> Iterator[Key]:
    """Yield the key of each identity of a policy, except those of an unknown provider."""
    for identity in policy.identities:
        if provider := basis.providers.get(identity.provider):
            yield key_of_identity(identity, provider)


def assemble(
    before: PolicySet, change: Change, admits: Admits = lambda _one, _others: True, digest: str = ""
) -> PolicySet:
    """Return the set `before` with the change, without identities that `admits` refuses. `digest` is the digest of the
    new set, if it is known."""
    basis, names = change.basis, change.names
    registrations = dict(before.registrations)
    old = [one for key in touched(before, change) for one in before.registrations.get(key, ())]
    new: list[Registration] = []
    for key, found in _buckets(before, change).items():
        bucket: tuple[Registration, ...] = ()
        for registration in found:
            if admits(registration, bucket):
                bucket = (*bucket, registration)
        if bucket:
            registrations[key] = bucket
        else:
            registrations.pop(key, None)
        new += bucket
    policies, digests, kept = dict(before.policies), dict(before.digests), dict(before.benchmarks)
    for name in names:
        policies.pop(name, None)
    for gone in _digests_of(names, before, change):
        digests.pop(gone, None)
    for entry in change.entries:
        policies[entry.policy.integration] = entry.policy
        digests.update({each: entry.values.get(each, b"") for each in entry.digests.values()})
        kept.update(entry.benchmarks)
    return PolicySet(
        providers={provider.issuer: provider for provider in basis.providers.values()},
        policies=policies,
        registrations=registrations,
        digests=digests,
        digest=digest or _digest(basis, digests),
        benchmarks=kept,
        named=before.named.replaced(old, new),
    )


def _buckets(before: PolicySet, change: Change) -> dict[Key, list[Registration]]:
    """Return all identities under each touched key, in the order of the files."""
    names = change.names
    buckets = {
        key: [one for one in before.registrations.get(key, ()) if one.policy.integration not in names]
        for key in touched(before, change)
    }
    rules = {name: CompiledProvider(provider) for name, provider in change.basis.providers.items()}
    for entry in change.entries:
        for key, registration in _compiled(entry, rules, change.basis):
            buckets[key].append(registration)
    for bucket in buckets.values():
        bucket.sort(key=lambda one: f"{one.policy.integration}.yaml")  # stable: keeps the order in each file
    return buckets


def _compiled(
    entry: PolicyEntry, rules: Mapping[str, CompiledProvider], basis: PolicyBasis
) -> Iterator[tuple[Key, Registration]]:
    policy = entry.policy
    grants = CompiledGrants(policy.grants)
    for identity in policy.identities:
        if name := entry.digests.get(identity.provider):
            of_provider = rules[identity.provider]
            registration = Registration.of(policy, identity, of_provider, grants, name, basis.benchmarks)
            yield key_of_identity(identity, of_provider.provider), registration


def _digests_of(names: Collection[str], before: PolicySet, change: Change) -> Iterator[str]:
    """Yield the digests that integrations with these names have in the set before."""
    for key in touched(before, change):
        yield from (one.digest for one in before.registrations.get(key, ()) if one.policy.integration in names)


def _digest(basis: PolicyBasis, digests: Collection[str]) -> str:
    whole: JSON = {
        "policies": sorted(digests),
        "providers": {name: jcs.digest_of_bytes(text) for name, text in basis.canonical.items()},
        "benchmarks": {name: file.digest for name, file in basis.files.items()},
    }
    return jcs.digest(whole)
