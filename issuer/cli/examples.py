"""What the help of each command ends with: an example or two that can be typed, and the page that tells more."""

from __future__ import annotations

import click
from msgspec import Struct


class Shown(Struct, frozen=True):
    """The examples of one command, without `issuer`, and where its page lies in the source."""

    page: str
    examples: tuple[str, ...]


_POLICIES, _KEYS, _OPERATIONS = "policies/README.md", "keys/README.md", "deploy/README.md"
_CLIENT, _READER, _ADAPTERS = "issuer/client/README.md", "issuer/relying/README.md", "issuer/adapters/README.md"
_RESULTS, _LOG, _BOARD = "issuer/results/README.md", "issuer/relying/LOG.md", "issuer/relying/LEADERBOARD.md"
_PAGE = "issuer/page/README.md"
_ROOT = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_FROM = "2026-11-21T09:00:00Z"

SHOWN = {
    "abuse": Shown(_OPERATIONS, ("abuse list",)),
    "abuse across": Shown(_OPERATIONS, ("abuse across audit.jsonl --commits 20",)),
    "abuse list": Shown(_OPERATIONS, ("abuse list", "abuse list --json")),
    "abuse quarantine": Shown(_OPERATIONS, ("abuse quarantine inspect-ai main --for 12h --reason 'copied'",)),
    "abuse release": Shown(_OPERATIONS, ("abuse release inspect-ai main --for 7d --reason 'a sweep'",)),
    "abuse show": Shown(_OPERATIONS, ("abuse show inspect-ai main",)),
    "audit": Shown(_OPERATIONS, ("audit verify audit.jsonl",)),
    "audit find": Shown(_OPERATIONS, ("audit find audit.jsonl --integration inspect-ai --verdict refused",)),
    "audit tail": Shown(_OPERATIONS, ("audit tail audit.jsonl --lines 20",)),
    "audit verify": Shown(_OPERATIONS, ("audit verify audit.jsonl --heads heads.jsonl",)),
    "benchmark": Shown(_RESULTS, ("benchmark lint eval.yaml",)),
    "benchmark init": Shown(
        _RESULTS,
        ("benchmark init --name GSM8K --description 'School mathematics.' --higher accuracy=Accuracy --task gsm8k",),
    ),
    "benchmark lint": Shown(_RESULTS, ("benchmark lint eval.yaml",)),
    "check": Shown(
        _CLIENT,
        ("check --issuer https://issuer.example --framework-name inspect-ai --benchmark-repo openai/gsm8k",),
    ),
    "completion": Shown("README.md", ("completion bash > ~/.local/share/bash-completion/completions/issuer",)),
    "config": Shown(_OPERATIONS, ("config check --config settings.yaml",)),
    "config check": Shown(_OPERATIONS, ("config check --config settings.yaml",)),
    "config schema": Shown(_OPERATIONS, ("config schema > settings.schema.json",)),
    "config show": Shown(_OPERATIONS, ("config show --origin --config settings.yaml",)),
    "demo": Shown("README.md", ("demo", "demo --keep open-model")),
    "dev": Shown(_POLICIES, ("dev", "dev --policies policies --port 8080")),
    "dev env": Shown(_POLICIES, ("dev env --provider gitlab-ci",)),
    "dev token": Shown(_POLICIES, ("dev token --branch experiment", "dev token --claim ref=refs/heads/other")),
    "doctor": Shown(_CLIENT, ("doctor --issuer https://issuer.example", "doctor --server --config settings.yaml")),
    "help": Shown("README.md", ("help exit-codes", "help environment", "help credentials")),
    "init": Shown(
        _OPERATIONS,
        (
            "init issuer --url https://issuer.example",
            "init issuer --url https://issuer.example --store unix:///run/valkey.sock",
        ),
    ),
    "keys": Shown(_KEYS, ("keys generate", "keys list")),
    "keys generate": Shown(_KEYS, ("keys generate --dir keys --data data",)),
    "keys list": Shown(_KEYS, ("keys list --json",)),
    "keys public": Shown(_KEYS, ("keys public > keys.json",)),
    "keys revoke": Shown(_KEYS, (f"keys revoke KID --from {_FROM} --reason 'a laptop was stolen'",)),
    "keys rotate": Shown(_KEYS, ("keys rotate --plan", "keys rotate")),
    "leaderboard": Shown(_BOARD, ("leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks",)),
    "leaderboard build": Shown(
        _BOARD,
        (
            "leaderboard build models -o site --trust trust.yaml --benchmarks benchmarks",
            "leaderboard build models -o site --trust trust.yaml --metric accuracy=higher --best",
        ),
    ),
    "log": Shown(_LOG, ("log verify https://issuer.example/log --policy policy.txt",)),
    "log accept": Shown(_OPERATIONS, (f"log accept --size 42 --reason 'the newest backup' --root {_ROOT}",)),
    "log export": Shown(_LOG, ("log export copy --from https://issuer.example/log --policy policy.txt",)),
    "log init": Shown(_OPERATIONS, ("log init --config settings.yaml",)),
    "log monitor": Shown(_LOG, ("log monitor https://issuer.example/log --policy policy.txt --state seen.json",)),
    "log proof": Shown(
        _LOG, ("log proof https://issuer.example/log --policy policy.txt --for .eval_results/gsm8k.yaml#0",)
    ),
    "log restore": Shown(_OPERATIONS, ("log restore copy --config settings.yaml",)),
    "log verify": Shown(_LOG, ("log verify https://issuer.example/log --policy policy.txt",)),
    "page": Shown(_PAGE, ("page export site",)),
    "page export": Shown(_PAGE, ("page export site",)),
    "pat": Shown(_OPERATIONS, ("pat list",)),
    "pat create": Shown(_OPERATIONS, ("pat create --account nightly --expires 30",)),
    "pat list": Shown(_OPERATIONS, ("pat list --json",)),
    "pat revoke": Shown(_OPERATIONS, ("pat revoke ID",)),
    "policy": Shown(_POLICIES, ("policy check policies", "policy test policies")),
    "policy check": Shown(_POLICIES, ("policy check policies --url https://issuer.example",)),
    "policy explain": Shown(
        _POLICIES,
        (
            "policy explain policies --identity-claims-file ci.json --claims run.json",
            "policy explain policies --identity-token-file token --url https://issuer.example",
        ),
    ),
    "policy fmt": Shown(_POLICIES, ("policy fmt policies/*.yaml",)),
    "policy new": Shown(_POLICIES, ("policy new inspect-ai --from-token token",)),
    "policy plan": Shown(_POLICIES, ("policy plan policies new-policies --audit audit.jsonl",)),
    "policy schema": Shown(_POLICIES, ("policy schema providers > providers.schema.json",)),
    "policy test": Shown(_POLICIES, ("policy test policies --integration inspect-ai",)),
    "reproduce": Shown(_READER, ("reproduce compare first.json second.json",)),
    "reproduce compare": Shown(_READER, ("reproduce compare first.json second.json --tolerance accuracy=0.5",)),
    "results": Shown(_RESULTS, ("results lint .eval_results",)),
    "results build": Shown(_ADAPTERS, ("results build logs --out .eval_results --model-repo acme/open-model",)),
    "results diff": Shown(_RESULTS, ("results diff old.yaml new.yaml",)),
    "results digest": Shown(_RESULTS, ("results digest .eval_results/gsm8k.yaml --repo acme/open-model",)),
    "results export": Shown(
        _RESULTS,
        (
            "results export .eval_results/gsm8k.yaml --to eee --repo acme/open-model --benchmark eval.yaml "
            "--out records --source-type evaluation_run --organization Acme --evaluator first_party",
        ),
    ),
    "results fmt": Shown(_RESULTS, ("results fmt --check .eval_results",)),
    "results lint": Shown(_RESULTS, ("results lint .eval_results --format github",)),
    "results schema": Shown(_RESULTS, ("results schema > run.schema.json",)),
    "resume": Shown(_OPERATIONS, ("resume everything", "resume integration:inspect-ai")),
    "revocations": Shown(_OPERATIONS, ("revocations show",)),
    "revocations init": Shown(_OPERATIONS, ("revocations init --url https://issuer.example",)),
    "revocations renew": Shown(_OPERATIONS, ("revocations renew --days 2",)),
    "revocations show": Shown(_OPERATIONS, ("revocations show --json",)),
    "revoke": Shown(
        _OPERATIONS,
        (
            "revoke --jti 412EiTbPsKYxIqZyMRZSIA --reason 'the run was wrong'",
            f"revoke --sub inspect-ai --from {_FROM} --reason 'its runner was taken over'",
        ),
    ),
    "serve": Shown(_OPERATIONS, ("serve --config settings.yaml --workers 4",)),
    "stop": Shown(_OPERATIONS, ("stop integration:inspect-ai --reason 'it signs nonsense'",)),
    "stops": Shown(_OPERATIONS, ("stops",)),
    "submit": Shown(
        _CLIENT,
        (
            "submit logs/run.json --issuer https://issuer.example --model-repo acme/open-model --dry-run",
            "submit logs --issuer https://issuer.example --map runs.yaml",
        ),
    ),
    "token": Shown(_CLIENT, ("token request --issuer https://issuer.example --claims run.json",)),
    "token inspect": Shown(_CLIENT, ("token inspect .eval_results/gsm8k.yaml", "token inspect -")),
    "token request": Shown(
        _CLIENT,
        (
            "token request --issuer https://issuer.example --claims run.json --out .eval_results/gsm8k.yaml",
            "token request --issuer https://issuer.example --claims run.json --dry-run",
        ),
    ),
    "verify": Shown(
        _READER,
        (
            "verify .eval_results/gsm8k.yaml --repo acme/open-model --trust trust.yaml",
            "verify models --trust trust.yaml --json",
            "verify models --trust trust.yaml --to results.parquet",
        ),
    ),
    "witness": Shown(_LOG, ("witness serve --dir witness --logs logs.txt",)),
    "witness init": Shown(_LOG, ("witness init --dir witness --name witness.example/1",)),
    "witness serve": Shown(_LOG, ("witness serve --dir witness --logs logs.txt",)),
}


HELP_NAMES = ["-h", "--help"]
_WIDEST = 80


def _fit(line: str) -> str:
    """Break a command that is too wide for a terminal before an option, as a shell takes it."""
    cut = line.rfind(" --", 8, _WIDEST - 2)
    if len(line) <= _WIDEST or cut < 0:
        return line
    return f"{line[:cut]} \\\n{_fit('     ' + line[cut:])}"


def with_examples(command: click.Command, path: str) -> click.Command:
    """End the help of a command, and of those in it, with its examples; `path` is what is typed after `issuer`."""
    command.context_settings.setdefault("help_option_names", HELP_NAMES)
    if shown := SHOWN.get(path):
        lines = "\n".join(_fit(f"  issuer {example}") for example in shown.examples)
        command.epilog = f"\b\nExamples:\n{lines}\n\nLearn more: {shown.page}"
    for name, inner in getattr(command, "commands", {}).items():
        with_examples(inner, f"{path} {name}")
    return command
