"""TLS without the system's roots, which take 20 ms to read, and certificates that a test makes."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

# Reading the system's roots takes 20 ms, which each of a hundred fetches would pay.
NO_ROOTS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def certificate(name: str, folder: Path) -> ssl.SSLContext:
    """Make a self-signed certificate for a name, and the server's TLS with it."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(signed.public_bytes(encoding))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(private.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
