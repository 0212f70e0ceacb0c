"""TLS without the system's roots, and certificates that a test makes."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

# Reading the system's roots takes 20 ms, which each of a hundred fetches would pay.
NO_ROOTS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_ENCODING = serialization.Encoding.PEM


def certificate(name: str, folder: Path) -> ssl.SSLContext:
    """Make a self-signed certificate for a name (`cert.pem` and `key.pem`), and the server's TLS with it."""
    private, subject = ec.generate_private_key(ec.SECP256R1()), _named(name)
    own = x509.BasicConstraints(ca=True, path_length=None)
    usage = x509.SubjectAlternativeName([x509.DNSName(name)])
    (folder / "cert.pem").write_bytes(_signed(subject, private, subject, private, own, usage))
    _write_key(folder / "key.pem", private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def make_certificates(folder: Path, *names: str) -> None:
    """Make a CA, `ca.pem`, and its certificate for names and 127.0.0.1, as `fullchain.pem` and `key.pem`."""
    authority, own, root = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
        _named("a CA"),
    )
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    usage = x509.SubjectAlternativeName([*map(x509.DNSName, names), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    (folder / "ca.pem").write_bytes(_signed(root, authority, root, authority, constraints))
    (folder / "fullchain.pem").write_bytes(_signed(x509.Name([]), own, root, authority, usage))
    _write_key(folder / "key.pem", own)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, by: ec.EllipticCurvePrivateKey,
    *extensions: x509.ExtensionType,
) -> bytes:  # fmt: skip
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - hour).not_valid_after(now + 24 * hour)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(by, hashes.SHA256()).public_bytes(_ENCODING)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(_ENCODING, form, plain))
