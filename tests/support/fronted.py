"""deploy/nginx as it stands, with this machine's paths and ports in the place of an operator's; for tests."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.shared import ROOT

NGINX = ROOT / "deploy" / "nginx"


def nginx_folder(folder: Path, port: int, service: int) -> Path:
    """Write nginx's files for a port of its own and the service's, and a certificate, which `ca.pem` vouches for."""
    place = folder / "nginx"
    place.mkdir()
    make_certificates(place, "issuer.example")
    text = (NGINX / "nginx.conf").read_text("utf-8")
    for shown, real in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/issuer/tls", str(place)),
        ("/run/", f"{place}/"),
    ):
        assert shown in text, shown
        text = text.replace(shown, real)
    (place / "nginx.conf").write_text(text)
    upstream = (NGINX / "upstream.conf").read_text("utf-8")
    assert "127.0.0.1:8000" in upstream
    (place / "upstream.conf").write_text(upstream.replace(":8000", f":{service}"))
    return place


def make_certificates(place: Path, *names: str) -> None:
    """Make a CA, `ca.pem`, and a certificate of it for names and 127.0.0.1, as `fullchain.pem` and `key.pem`."""
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a CA of a test")])
    now = datetime.datetime.now(datetime.UTC)

    def signed(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(root, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(
            now + datetime.timedelta(days=1)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    usage = x509.SubjectAlternativeName([*map(x509.DNSName, names), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    (place / "ca.pem").write_bytes(signed(root, authority, x509.BasicConstraints(ca=True, path_length=0)))
    (place / "fullchain.pem").write_bytes(signed(x509.Name([]), own, usage))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (place / "key.pem").write_bytes(own.private_bytes(serialization.Encoding.PEM, form, plain))


@contextlib.contextmanager
def fronted(folder: Path, port: int, service: int) -> Iterator[Path]:
    """Run it until the block ends. Yields its folder."""
    place = nginx_folder(folder, port, service)
    with (place / "error.log").open("wb") as errors:
        process = subprocess.Popen(
            ["nginx", "-c", place / "nginx.conf", "-p", place, "-e", "stderr", "-g", "daemon off;"],
            stdout=errors, stderr=errors,
        )  # fmt: skip
    try:
        until_it_listens(process, port, place / "error.log")
        yield place
    finally:
        process.terminate()
        process.wait(60)


def until_it_listens(process: subprocess.Popen[bytes], port: int, errors: Path) -> None:
    """Wait until a connection to the port is taken."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            return
        time.sleep(0.02)
    raise AssertionError(errors.read_text())
