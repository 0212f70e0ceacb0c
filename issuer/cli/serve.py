"""`issuer serve` and `issuer dev`: the service, and a throw-away one with everything that it needs."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from issuer.cli.terminal import say
from issuer.dev.sandbox import REQUEST_URL, Sandbox, sandbox
from issuer.service.bounds import MAX_WORKERS
from issuer.service.server import serve as run
from issuer.service.settings import read_settings
from issuer.wire import JWKS_PATH


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="A YAML file of settings; ISSUER_* variables win.")
@click.option(
    "--workers",
    type=click.IntRange(1, MAX_WORKERS),
    default=1,
    show_default=True,
    help="Processes on one port and one store.",
)
def serve(config: Path | None, workers: int) -> None:
    """Run the service until SIGTERM. Settings: deploy/README.md."""
    run(read_settings(config), workers=workers)


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="The port to listen on."
)
def dev(port: int) -> None:
    """Run a throw-away issuer: embedded Valkey, fresh key, sample policies, local identity provider. Ctrl-C ends it."""
    with sandbox(port) as box:
        say(_welcome(box))
        run(box.settings)


def _welcome(box: Sandbox) -> str:
    url, provider = box.settings.url, box.provider
    return f"""issuer   {url}
metadata {url}/.well-known/eval-token-issuer
keys     {url}{JWKS_PATH}
errors   {url}/errors
provider {provider.issuer}  (stands in for GitHub Actions)
folder   {box.folder}  (removed at the end)

An identity token, as a CI job would ask for it, and a verify token for it:

TOKEN=$(curl -s -H 'Authorization: bearer {provider.request_token}' \\
  '{provider.environment[REQUEST_URL]}&audience={url}' | sed 's/.*"value": *"\\([^"]*\\)".*/\\1/')
curl -s {url}/tokens -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' -d '
{{"claims": {{
  "model_repo": "acme/open-model", "model_revision": "9f3c2c9a1c4e6d1e0b7a5f4d3c2b1a0987654321",
  "benchmark_repo": "openai/gsm8k", "benchmark_revision": "5503434ddd753f426f4b38109466949a1217c2bb",
  "task_id": "gsm8k", "metrics": [{{"metric_id": "accuracy", "value": 0.625}}],
  "framework": {{"name": "inspect-ai", "version": "0.3.285"}}}}}}'
"""
