"""The nginx of deploy/nginx, with this machine's paths and ports in place of an operator's."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import listens
from tests.support.shared import ROOT
from tests.support.tls import make_certificates
from tests.support.waiting import eventually

NGINX = ROOT / "deploy" / "nginx"


def nginx_folder(folder: Path, port: int, service: int, more: str = "") -> Path:
    """Write nginx's files for its own port and the service's, with more lines of its server, and a certificate of the CA
    in `ca.pem`."""
    place = folder / "nginx"
    place.mkdir()
    make_certificates(place, "issuer.example")
    changes = {
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl; {more}",
        "/etc/issuer/tls": str(place),
        "/run/": f"{place}/",
    }
    for name, replaced in {"nginx.conf": changes, "upstream.conf": {"127.0.0.1:8000": f"127.0.0.1:{service}"}}.items():
        text = (NGINX / name).read_text("utf-8")
        for shown, real in replaced.items():
            assert shown in text, shown
            text = text.replace(shown, real)
        (place / name).write_text(text)
    return place


@contextlib.contextmanager
def fronted(folder: Path, port: int, service: int, more: str = "") -> Iterator[Path]:
    """Run it until the block ends. Yields its folder."""
    place = nginx_folder(folder, port, service, more)
    command = ["nginx", "-c", str(place / "nginx.conf"), "-p", str(place), "-e", "stderr", "-g", "daemon off;"]
    with (place / "error.log").open("wb") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        until_it_listens(process, port, place / "error.log")
        yield place
    finally:
        process.terminate()
        process.wait(60)


def until_it_listens(process: subprocess.Popen[bytes], port: int, errors: Path) -> None:
    """Wait until a connection to the port is accepted."""

    def is_ready() -> bool:
        assert process.poll() is None, errors.read_text()
        return listens(port)

    eventually(is_ready)
