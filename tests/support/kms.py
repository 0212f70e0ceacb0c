"""A local AWS KMS of our own, over real HTTP, for one Ed25519 key; for tests. moto knows no Ed25519.

It judges each request by botocore's own description of the service (operation, members, types, lengths, enumerations)
and by its SigV4 signature, which is computed here once more from AWS' description. `faults` says what was wrong with
any request. It signs with a real key, and can be made to answer as a broken or hostile service would. While it runs,
this process's environment has credentials for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import botocore.session  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

REGION, ACCESS_KEY, SECRET = "eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
ARN = f"arn:aws:kms:{REGION}:111122223333:key/{KEY_ID}"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
ALGORITHM = "ED25519_SHA_512"


@dataclass
class LocalKms:
    """A KMS on loopback. `signs_with` is the key that signs, where it is not the one that is published.

    `refuses` is an error code that every signature is refused with; `random`: it signs as ECDSA does, each time anew.
    """

    key: Ed25519PrivateKey
    signs_with: Ed25519PrivateKey | None = None
    key_spec: str = "ECC_NIST_EDWARDS25519"
    refuses: str = ""
    random: bool = False
    delay_s: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    url: str = ""
    most_at_once: int = 0
    _under_way: int = 0

    def __enter__(self) -> Self:
        kms, _Handler.model = self, _service_model()
        self._environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)

        class Handler(_Handler):
            def answer(self, operation: str, sent: dict[str, Any], came: float) -> tuple[int, dict[str, Any]]:
                return kms.answer(operation, sent, came)

            def fault(self, what: str) -> None:
                kms.faults.append(what)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name, value in self._environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

    def file(self, **members: str) -> str:
        """Write the YAML file of this key, with other or further members; one that is empty is left out."""
        return file_of(self.url, **members)

    def answer(self, operation: str, sent: dict[str, Any], came: float) -> tuple[int, dict[str, Any]]:
        """Answer a request that was good, and that `came` then, by the monotonic clock."""
        self.asked[operation] += 1
        if sent["KeyId"] not in (ARN, KEY_ID):
            return 400, {"__type": "NotFoundException", "message": "x"}
        if operation == "GetPublicKey":
            der = self.key.public_key().public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            algorithms = [ALGORITHM, "ED25519_PH_SHA_512"] if "EDWARDS" in self.key_spec else ["ECDSA_SHA_256"]
            return 200, {
                "KeyId": ARN, "PublicKey": base64.b64encode(der).decode(), "KeySpec": self.key_spec,
                "KeyUsage": "SIGN_VERIFY", "SigningAlgorithms": algorithms,
            }  # fmt: skip
        self._under_way += 1
        self.most_at_once = max(self.most_at_once, self._under_way)
        time.sleep(max(0.0, came + self.delay_s - time.monotonic()))
        self._under_way -= 1
        if self.refuses:
            return 400, {"__type": self.refuses, "message": f"secret detail about {ARN}"}
        if (sent["MessageType"], sent["SigningAlgorithm"]) != ("RAW", ALGORITHM):
            return 400, {"__type": "InvalidKeyUsageException", "message": "x"}
        message, key = base64.b64decode(sent["Message"]), self.signs_with or self.key
        signature = sign_anew(key, message) if self.random else key.sign(message)
        return 200, {
            "KeyId": ARN, "Signature": base64.b64encode(signature).decode(), "SigningAlgorithm": ALGORITHM,
        }  # fmt: skip


def file_of(url: str, **members: str) -> str:
    """Write the YAML file of the key of a KMS at this URL; see `LocalKms.file`."""
    said = {"backend": "aws-kms", "key": ARN, "region": REGION, "endpoint": url, **members}
    return "version: 1\n" + "".join(f'{name}: "{value}"\n' for name, value in said.items() if value)


def sign_anew(key: Ed25519PrivateKey, message: bytes) -> bytes:
    """Sign as RFC 8032 5.1.6 says, but with a nonce that is random: it verifies, and is another each time."""
    order = 2**252 + 27742317777372353535851937790883648493
    nonce = Ed25519PrivateKey.generate()  # its public half is the nonce times the base point
    point, public = nonce.public_key().public_bytes_raw(), key.public_key().public_bytes_raw()
    challenge = int.from_bytes(hashlib.sha512(point + public + message).digest(), "little")
    return point + ((_scalar(nonce) + challenge * _scalar(key)) % order).to_bytes(32, "little")


def _scalar(key: Ed25519PrivateKey) -> int:
    digest = hashlib.sha512(key.private_bytes_raw()).digest()[:32]
    return int.from_bytes(digest, "little") & ((1 << 254) - 8) | (1 << 254)


# -- a request --------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no fault of the server."""


class _Handler(BaseHTTPRequestHandler, ABC):
    protocol_version = "HTTP/1.1"
    model: Any

    @abstractmethod
    def answer(self, operation: str, sent: dict[str, Any], came: float) -> tuple[int, dict[str, Any]]:
        """Answer an operation with a status and a body."""

    @abstractmethod
    def fault(self, what: str) -> None:
        """Note what is wrong with a request."""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self) -> None:
        came, body = time.monotonic(), self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value.strip() for name, value in self.headers.items()}
        if (what := sigv4_fault(headers, body)) or (what := request_fault(self.model, self.path, headers, body)):
            self.fault(what)
            status, said = 400, {"__type": what.partition(":")[0], "message": what}
        else:
            status, said = self.answer(headers["x-amz-target"].partition(".")[2], json.loads(body), came)
        raw = json.dumps(said).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: {len(raw)}\r\n\r\n"
        self.wfile.write(head.encode() + raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@cache
def _service_model() -> Any:
    return botocore.session.Session().get_service_model("kms")


def request_fault(model: Any, path: str, headers: dict[str, str], body: bytes) -> str:
    """Say what botocore's description of the service does not allow; empty where it allows the request."""
    prefix, _, operation = headers.get("x-amz-target", "").partition(".")
    if path != "/" or prefix != model.metadata["targetPrefix"] or operation not in model.operation_names:
        return f"UnknownOperationException: {path} {prefix} {operation}"
    if headers.get("content-type") != f"application/x-amz-json-{model.metadata['jsonVersion']}":
        return f"SerializationException: {headers.get('content-type')}"
    shape, sent = model.operation_model(operation).input_shape, json.loads(body)
    for name, value in sent.items():
        if (member := shape.members.get(name)) is None:
            return f"ValidationException: {operation} has no {name}"
        if getattr(member, "enum", None) and value not in member.enum:
            return f"ValidationException: {name} is not one of its values"
        if member.type_name == "blob":
            sent[name] = base64.b64decode(value, validate=True)
        if len(sent[name]) > member.metadata.get(
            "max", len(sent[name])
        ):  # botocore's validator asks for the least alone
            return f"ValidationException: {name} is longer than {member.metadata['max']}"
    report = ParamValidator().validate(sent, shape)
    return f"ValidationException: {report.generate_report()}" if report.has_errors() else ""


def sigv4_fault(headers: dict[str, str], body: bytes) -> str:
    """Compute Signature Version 4 anew, and say what is wrong with the one that came."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    said = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    if scheme != "AWS4-HMAC-SHA256" or said.keys() != {"Credential", "SignedHeaders", "Signature"}:
        return "MissingAuthenticationTokenException: no SigV4 header"
    when, signed = headers["x-amz-date"], said["SignedHeaders"].split(";")
    scope = f"{when[:8]}/{REGION}/kms/aws4_request"
    if said["Credential"] != f"{ACCESS_KEY}/{scope}":
        return "UnrecognizedClientException: another credential or scope"
    if not {"host", "x-amz-date", "x-amz-target", "content-type"} <= set(signed):
        return "InvalidSignatureException: a header that counts is not signed"
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in signed]
    canonical = "\n".join(["POST", "/", "", *lines, "", ";".join(signed), hashlib.sha256(body).hexdigest()])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    right = hmac.new(key, to_sign.encode(), "sha256").hexdigest()
    return "" if hmac.compare_digest(right, said["Signature"]) else "InvalidSignatureException: not by this secret"


if __name__ == "__main__":  # a process of its own, for measuring: the seconds that it takes, the key's 32 bytes in hex
    with LocalKms(
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sys.argv[2])), delay_s=float(sys.argv[1])
    ) as local:
        print(local.url, flush=True)
        sys.stdin.read()
        os._exit(len(local.faults) > 0)
