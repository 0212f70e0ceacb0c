"""A local AWS KMS over real HTTP for one Ed25519 key. moto lacks Ed25519.

It judges each request by botocore's description of the service (operation, members, types, lengths, enumerations) and by
its SigV4 signature, computed here from AWS' description. `faults` has the faults of all requests. It signs with a real
key, and can play a broken or hostile service. While it runs, this process's environment has credentials for it.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import botocore.session  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.support.answering import Handler, serving

REGION, ACCESS_KEY, SECRET = "eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
ARN = f"arn:aws:kms:{REGION}:111122223333:key/{KEY_ID}"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
ALGORITHM = "ED25519_SHA_512"


@dataclass
class LocalKms:
    """A KMS on loopback. `signs_with` is the key that signs, if it is not the published one.

    `refuses` is the error code of every signature; `random` makes each signature differ, as ECDSA's do.
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
        self._environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)

        _service_model()  # takes seconds, which a caller would not wait
        self._stack = ExitStack()
        self.url = self._stack.enter_context(serving(type("Request", (_Request,), {"kms": self})))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for name, value in self._environment.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

    def file(self, **members: str) -> str:
        """Write the YAML file of this key, with changed members; an empty one is left out."""
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
        time.sleep(max(0.0, came + self.delay_s - time.monotonic()))  # a slow peer
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
    """Sign as RFC 8032 5.1.6 says, but with a random nonce: the signature is valid and differs each time."""
    order = 2**252 + 27742317777372353535851937790883648493
    nonce = Ed25519PrivateKey.generate()  # its public half is the nonce times the base point
    point, public = nonce.public_key().public_bytes_raw(), key.public_key().public_bytes_raw()
    challenge = int.from_bytes(hashlib.sha512(point + public + message).digest(), "little")
    return point + ((_scalar(nonce) + challenge * _scalar(key)) % order).to_bytes(32, "little")


def _scalar(key: Ed25519PrivateKey) -> int:
    digest = hashlib.sha512(key.private_bytes_raw()).digest()[:32]
    return int.from_bytes(digest, "little") & ((1 << 254) - 8) | (1 << 254)


class _Request(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for an answer
    kms: LocalKms

    def answer(self) -> None:
        came, body = time.monotonic(), self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value.strip() for name, value in self.headers.items()}
        if fault := sigv4_fault(headers, body) or request_fault(_service_model(), self.path, headers, body):
            self.kms.faults.append(fault)
            status, answer = 400, {"__type": fault.partition(":")[0], "message": fault}
        else:
            status, answer = self.kms.answer(headers["x-amz-target"].partition(".")[2], json.loads(body), came)
        self.reply(status, json.dumps(answer).encode(), Content_Type="application/x-amz-json-1.1")


@cache
def _service_model() -> Any:
    return botocore.session.Session().get_service_model("kms")


def request_fault(model: Any, path: str, headers: dict[str, str], body: bytes) -> str:
    """Return the fault of a request by botocore's description of the service, "" for a good one."""
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
        # botocore's validator checks the least length only.
        if len(sent[name]) > member.metadata.get("max", len(sent[name])):
            return f"ValidationException: {name} is longer than {member.metadata['max']}"
    report = ParamValidator().validate(sent, shape)
    return f"ValidationException: {report.generate_report()}" if report.has_errors() else ""


def sigv4_fault(headers: dict[str, str], body: bytes) -> str:
    """Compute Signature Version 4, and return the fault of the received one, "" for a good one."""
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


if __name__ == "__main__":  # a separate process, for benchmarks: its delay in seconds, the key's 32 bytes in hex
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sys.argv[2]))
    with LocalKms(key, delay_s=float(sys.argv[1])) as local:
        print(local.url, flush=True)
        sys.stdin.read()
        os._exit(len(local.faults) > 0)
