"""A set of policies, put together from the set before it and what has changed since. Pure.

Every set is made here: one that was read from a folder (`authoring`), and the same one in a process that is told of the
change alone. What a change does not touch is taken over as it is, so that one file of ten thousand costs one file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, KeysView, Mapping

import msgspec
from msgspec import Struct

from issuer.formats import jcs
from issuer.formats.strict_json import JSON
from issuer.identity.table import Provider
from issuer.policy.compiled import BENCHMARKS, CompiledGrants, CompiledProvider
from issuer.policy.interning import shared
from issuer.policy.match import Key, PolicySet, key_of_identity
from issuer.policy.model import Policy, RegisteredBenchmarks, RegisteredFile
from issuer.policy.registration import Registration

# May this identity stand beside those that are found under the same key? Asked in the order of the files.
Admits = Callable[[Registration, tuple[Registration, ...]], bool]


class Basis(Struct, frozen=True):
    """What all policies of a folder stand on: providers by id, and registered benchmarks with their files by path.

    `canonical` are the RFC 8785 bytes of each provider.
    """

    providers: Mapping[str, Provider]
    benchmarks: RegisteredBenchmarks
    files: Mapping[str, RegisteredFile]
    canonical: Mapping[str, bytes]

    @classmethod
    def of(
        cls, providers: Mapping[str, Provider], benchmarks: RegisteredBenchmarks, files: Mapping[str, RegisteredFile]
    ) -> Basis:
        """Make the canonical form of the providers."""
        canonical = {name: jcs.canonical(msgspec.to_builtins(provider)) for name, provider in providers.items()}
        return cls(providers, benchmarks, files, canonical)


class Entry(Struct, frozen=True):
    """One integration's policy, without its tests: they have been run. `digests` is one for each provider id.

    `values` are what the digests are of, and `benchmarks` the registered files that these name, by their digests: all
    that must be kept of a policy that decides (contract section 4). Once it is kept, both may be empty.
    """

    policy: Policy
    digests: Mapping[str, str]
    values: Mapping[str, bytes] = {}
    benchmarks: Mapping[str, bytes] = {}

    @classmethod
    def of(cls, policy: Policy, basis: Basis) -> Entry:
        """Digest a policy with everything that decides beside it."""
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
            )  # canonical, as its parts are
            digests[name] = jcs.digest_of_bytes(value)
            values[digests[name]] = value
        kept = {file.digest: file.raw for file in decisive.values()}
        return cls(shared(msgspec.structs.replace(policy, tests=())), digests, values, kept)

    def without_values(self) -> Entry:
        """Return the same for a process in which nothing has to be kept any more."""
        return Entry(self.policy, self.digests)


def _decisive(basis: Basis, policy: Policy) -> dict[str, RegisteredFile]:
    """Return the registered files that can decide under these grants: those of benchmarks that the lists allow."""
    granted, denied = policy.grants.benchmarks, policy.grants.deny.benchmarks
    return {
        name: file
        for name, file in basis.files.items()
        if all(check.passed for check in BENCHMARKS.check(granted, denied, file.repo))
    }


class Change(Struct, frozen=True):
    """What is different from the set before it: `entries` in the order of their files, and the integrations that are
    `gone`. On another `basis` all entries are new, and nothing of the set before stays."""

    basis: Basis
    entries: tuple[Entry, ...]
    gone: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The integrations of which nothing is as it was."""
        return self.gone.union(entry.policy.integration for entry in self.entries)


NOTHING = PolicySet({}, {}, {}, {}, "")


def touched(before: PolicySet, change: Change) -> KeysView[Key]:
    """Return under which keys other identities are found than before, in the order of the files."""
    old = (before.policies[name] for name in sorted(change.names) if name in before.policies)
    policies = (*old, *(entry.policy for entry in change.entries))
    return dict.fromkeys(key for policy in policies for key in keys(policy, change.basis)).keys()


def keys(policy: Policy, basis: Basis) -> Iterator[Key]:
    """Yield under which key each identity of a policy is found; nothing for one of an unknown provider."""
    for identity in policy.identities:
        if provider := basis.providers.get(identity.provider):
            yield key_of_identity(identity, provider)


def assemble(
    before: PolicySet, change: Change, admits: Admits = lambda _one, _others: True, digest: str = ""
) -> PolicySet:
    """Return the set `before` with the change; an identity that is not admitted is left out. `digest` is the set's,
    where that is known."""
    entries = tuple(msgspec.structs.replace(entry, policy=shared(entry.policy)) for entry in change.entries)
    change = msgspec.structs.replace(change, entries=entries)
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
    """Return all identities under each key that is touched, in the order of the files."""
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
        bucket.sort(key=lambda one: f"{one.policy.integration}.yaml")  # stable: a file's own keep their order
    return buckets


def _compiled(entry: Entry, rules: Mapping[str, CompiledProvider], basis: Basis) -> Iterator[tuple[Key, Registration]]:
    policy = entry.policy
    grants = CompiledGrants(policy.grants)
    for identity in policy.identities:
        if name := entry.digests.get(identity.provider):
            of_provider = rules[identity.provider]
            registration = Registration.of(policy, identity, of_provider, grants, name, basis.benchmarks)
            yield key_of_identity(identity, of_provider.provider), registration


def _digests_of(names: Collection[str], before: PolicySet, change: Change) -> Iterator[str]:
    """Yield the digests, in the set before it, of integrations of which nothing stays."""
    for key in touched(before, change):
        yield from (one.digest for one in before.registrations.get(key, ()) if one.policy.integration in names)


def _digest(basis: Basis, digests: Collection[str]) -> str:
    whole: JSON = {
        "policies": sorted(digests),
        "providers": {name: jcs.digest_of_bytes(text) for name, text in basis.canonical.items()},
        "benchmarks": {name: file.digest for name, file in basis.files.items()},
    }
    return jcs.digest(whole)
