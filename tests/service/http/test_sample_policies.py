"""Each sample policy, from a finished run to a token that verifies."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import asdict

from issuer import adapters
from issuer.adapters import Supplied
from issuer.client.tokens import request_of
from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import AUDIENCE, SAMPLE_POLICIES
from issuer.formats import jose, strict_yaml
from issuer.policy.model import Policy
from issuer.results.entry import read_entries
from issuer.service.signing.keyring import generate
from issuer.verify import Context, verify_entries
from issuer.verify.trust import Trust, TrustedIssuer
from tests.support.running import Running, running
from tests.support.runs import ALL, DATA
from tests.support.samples import BY_NAME, text_of

SAMPLES = {
    path.stem: strict_yaml.load(path.read_bytes(), path.name, bare_dates=lambda _: True).convert(Policy)
    for path in SAMPLE_POLICIES.glob("*.yaml")
    if path.name != "providers.yaml"
}
# The log of each sample's framework, and the metric of its claims.
RUNS = {
    "inspect-ai": ("inspect_two_scorers.json", "", {"accuracy": "match/accuracy"}),
    "lm-eval": ("lm_eval_dummy.json", "choice_mini", {"acc": "none/acc"}),
}


@dataclass
class Stage:
    live: Running
    providers: dict[str, LocalProvider]

    def identity(self, policy: Policy) -> str:
        """Sign the identity that the policy's own first test grants."""
        granted = policy.tests[0]
        assert granted.expect == "granted"
        test: dict[str, Any] = asdict(granted)
        profile, now = test["provider"], int(time.time())
        site = self.providers[profile]
        claims = {**BY_NAME[profile].claims, **test["identity"]}
        return site.sign(
            {"alg": "RS256", "kid": site.rs256.kid},
            {**claims, "iss": site.issuer, "aud": self.live.url, "iat": now, "exp": now + 300},
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The samples, without the day on which one of them expires and the tests that depend on it."""
    folder = tmp_path_factory.mktemp("samples")
    with ExitStack() as stack:
        sites = {name: stack.enter_context(LocalProvider()) for name in ("github-actions", "gitlab-ci")}
        (folder / "policies").mkdir()
        entries = {name: {"profile": name, "issuer": site.issuer} for name, site in sites.items()}
        (folder / "policies" / "providers.yaml").write_text(text_of(entries), "utf-8")
        for name in SAMPLES:
            text = (SAMPLE_POLICIES / f"{name}.yaml").read_text("utf-8").partition("\ntests:")[0]
            lines = [line for line in text.splitlines() if not line.strip().startswith("expires:")]
            (folder / "policies" / f"{name}.yaml").write_text("\n".join(lines) + "\n", "utf-8")
        generate(folder / "keys", "active")
        live = stack.enter_context(running(folder, sites["github-actions"]))
        yield Stage(live, sites)


def claims_of(integration: str) -> adapters.Built:
    """Build the claims of a real run; only what the run lacks is supplied."""
    file, task, metrics = RUNS[integration]
    run = adapters.read(DATA / file, task=task)
    lacking = {name: text for name, text in asdict(ALL).items() if getattr(run, name, ...) is None}
    return run.claims(Supplied(**{**lacking, "metrics": metrics}), allow_mock=True)


def test_a_run_is_signed_under_the_sample_of_its_framework_and_verifies(stage: Stage) -> None:
    assert SAMPLES.keys() == RUNS.keys()
    path = ".eval_results/gsm8k.yaml"
    keys = jose.parse_key_set(stage.live.http.get("/.well-known/jwks.json").content)
    trust = Trust(AUDIENCE, {stage.live.url: TrustedIssuer(stage.live.url, keys)})
    for integration in RUNS:
        built = claims_of(integration)
        answer = stage.live.post(stage.identity(SAMPLES[integration]), request_of(built))
        assert answer.status_code == 201, answer.text
        issued = answer.json()
        assert issued["integration"] == integration == built.claims.framework.name
        entries, now = read_entries(issued["entry"].encode(), "gsm8k.yaml"), int(time.time())
        (report,) = verify_entries(entries, built.claims.model_repo, path, trust, now, Context(now))
        assert report.verdict == "verified", report


def test_a_run_of_another_framework_is_refused(stage: Stage) -> None:
    answer = stage.live.post(stage.identity(SAMPLES["lm-eval"]), request_of(claims_of("inspect-ai")))
    assert (answer.status_code, answer.json()["code"]) == (403, "policy.framework")
