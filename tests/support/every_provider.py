"""A real provider of each profile, with its own keys, that signs tokens of the documented shape; for tests."""

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET

from issuer.dev.provider import LocalProvider, ProviderKey, make_key
from issuer.identity.profiles import PROFILES
from issuer.service.signing.keyring import generate
from tests.support.samples import SAMPLES, Sample, policy_of, text_of

_numbers = itertools.count(1)
# The algorithms that they document, where these are not RS256 alone; Jenkins and clusters are configurable.
ALGORITHMS = {
    "aws": ("RS256", "ES384"),
    "jenkins": ("RS256", "EdDSA"),
    "kubernetes": ("RS256", "ES256"),
    "oidc": ("RS256", "ES256"),
    "spiffe": ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"),
}
TYPES = {"spiffe": ("JWT", "JOSE")}
# Further members in `providers.yaml`: these algorithms, and other uses than the profile's.
ENTRIES: dict[str, dict[str, Any]] = {
    **{name: {"algorithms": [*ALGORITHMS[name]]} for name in ("jenkins", "kubernetes")},
    "google": {"uses": "single"},
    "azure": {"uses": {"bounded": 3}},
}
WORKLOADS = [sample for sample in SAMPLES if PROFILES[sample.profile].kind == "identity-token"]
# A job has one token for all that it gets signed.
FIXED = [sample for sample in WORKLOADS if PROFILES[sample.profile].uses > 1]


def algorithms_of(sample: Sample) -> tuple[str, ...]:
    """Return the algorithms that a sample's provider is registered with."""
    return ALGORITHMS.get(sample.profile, ("RS256",))


@dataclass
class Providers:
    """The signers: a local provider by profile, and the keys of each by algorithm."""

    locals: Mapping[str, LocalProvider]
    keys: Mapping[str, Mapping[str, ProviderKey]]

    def write(self, folder: Path, samples: Sequence[Sample], policy: Mapping[str, Any] = {}) -> None:
        """Make keys, and policies under which each sample's token passes; `policy` has further members."""
        entries: dict[str, Any] = {}
        for sample in samples:
            changes = ENTRIES.get(sample.profile, {})
            entries |= sample.providers(issuer=self.locals[sample.profile].issuer, **changes)
        identities = [{**sample.identity(), "id": sample.profile} for sample in samples]
        (folder / "policies").mkdir()
        (folder / "policies" / "providers.yaml").write_text(text_of(entries), "utf-8")
        text = json.dumps({**json.loads(policy_of(*identities)), **policy})
        (folder / "policies" / "inspect-ai.yaml").write_text(text, "utf-8")
        generate(folder / "keys", "active")

    def claims(self, sample: Sample, audience: object, **changes: Any) -> dict[str, Any]:
        """Return the claims of an unused token: the sample's, with changes; `UNSET` removes one.

        A sample without a documented `jti` gets none; Azure's `uti` then tells it from the others.
        """
        now, name = int(time.time()), "jti" if "jti" in sample.claims else "uti"
        said = {"iss": self.locals[sample.profile].issuer, "aud": audience, "iat": now, "exp": now + 300,
                **sample.claims, name: f"token-{next(_numbers)}", **changes}  # fmt: skip
        return {name: value for name, value in said.items() if value is not UNSET}

    def sign(self, sample: Sample, claims: Mapping[str, Any], alg: str = "RS256", **header: Any) -> str:
        """Sign claims by the key of an algorithm; `header` adds or replaces members."""
        key = self.keys[sample.profile][alg]
        return self.locals[sample.profile].sign({"alg": alg, "kid": key.kid, **header}, claims, key)


@contextmanager
def providers_of(samples: Sequence[Sample]) -> Iterator[Providers]:
    """Run the providers, each with a key for every algorithm that it is registered with, and others."""
    with ExitStack() as stack:
        found = {sample.profile: stack.enter_context(LocalProvider()) for sample in samples}
        for sample in samples:
            more = {"EdDSA", *algorithms_of(sample)} - {"RS256", "ES256"}  # which every local provider has
            found[sample.profile].published += [make_key(alg) for alg in sorted(more)]
        yield Providers(found, {name: {key.alg: key for key in local.published} for name, local in found.items()})
