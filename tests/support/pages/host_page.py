"""deploy/HOST.md: a host with a name, a certificate and nginx before the service, and a job of another machine."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from issuer.dev.provider import LocalProvider
from issuer.dev.sandbox import SAMPLE_RUN, free_port, write_policies
from tests.support.fronted import fronted
from tests.support.pages.blocks import Block
from tests.support.pages.deploy_pages import serve_until_closed
from tests.support.pages.story import DONE, Story, World
from tests.support.runs import MODEL_COMMIT

LOCAL = {"ISSUER_DEVELOPMENT": "true", "ISSUER_STORE_EPOCH_LEEWAY_S": "0"}


@dataclass
class Host(World):
    """The ports of the service and of nginx, and the provider of the job's identity."""

    provider: LocalProvider = field(default_factory=LocalProvider)
    inside: int = field(default_factory=free_port)
    outside: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """The page's `https://issuer.example`."""
        return f"https://127.0.0.1:{self.outside}"


@contextmanager
def host(folder: Path) -> Iterator[World]:
    """Give an empty folder; clients trust the CA of nginx's certificate. The provider is on loopback, by plain http, which
    the service takes in development alone, and shares this machine's clock."""
    trusting = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE"), str(folder / "nginx" / "ca.pem"))
    world = Host(folder, env={"COMMIT": MODEL_COMMIT, **LOCAL, **trusting})
    world.here |= {"https://issuer.example": world.url, "--port 8000": f"--port {world.inside}"}
    with world.provider:
        yield world


def the_service_goes_on_running(world: Host, block: Block) -> object:
    """Start it, with a policy that is active and a provider that is here, and wait until it answers."""
    folder = world.folder / "host"
    shutil.rmtree(folder / "policies")
    write_policies(folder / "policies", world.provider.issuer)
    serve_until_closed(world, block, folder, world.inside)
    return DONE


def nginx_goes_on_running(world: Host, block: Block) -> object:
    """Start it with deploy/nginx/nginx.conf, and a certificate."""
    assert block.text == "nginx -c /etc/nginx/nginx.conf\n"
    world.closing.enter_context(fronted(world.folder, world.outside, world.inside))
    return DONE


def in_a_job(world: Host, block: Block) -> None:
    """Give the run that was made, and the job's identity."""
    run = SAMPLE_RUN.read_bytes().replace(b"mockllm/model", b"hf/acme/open-model")
    (world.folder / "host" / "run.json").write_bytes(run)
    world.env["ISSUER_ID_TOKEN"] = world.provider.token(world.url)


NOTES = {
    "the service goes on running": the_service_goes_on_running,
    "nginx goes on running": nginx_goes_on_running, "in a job": in_a_job,
}  # fmt: skip
STORIES = (Story("deploy/HOST.md", host, NOTES, long=True, tools=("curl", "nginx")),)
