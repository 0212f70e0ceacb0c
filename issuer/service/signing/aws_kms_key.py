"""A private key in AWS KMS (key spec ECC_NIST_EDWARDS25519), through botocore. It cannot be copied, not even by AWS.

botocore finds the credentials: in the environment, in a profile, or from the role of the container or machine.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from msgspec import UNSET, Struct, UnsetType

from issuer.formats.strict_json import Text
from issuer.formats.url import UrlError, split_url
from issuer.service.signing.bounds import KMS_MESSAGE_BYTES, SIGNER_CALLS, SIGNER_S
from issuer.service.signing.remote_key import KeyFault

_UUID = r"(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_KEY = re.compile(rf"(?:arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{{12}}:key/)?{_UUID}")
_ALGORITHM = "ED25519_SHA_512"


class AwsKmsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A key file with `backend: "aws-kms"`. The environment has the region and endpoint if the file has none."""

    version: Literal[1]
    backend: Literal["aws-kms"]
    key: Text
    region: Text | UnsetType = UNSET
    endpoint: Text | UnsetType = UNSET
    kid: Text | UnsetType = UNSET

    def fault(self) -> tuple[str, str] | None:
        """Return the JSON pointer and the text of the first broken rule."""
        if not _KEY.fullmatch(self.key):
            return "/key", "key must be the key's id or ARN, not an alias: an alias can be moved to another key"
        try:
            split_url(self.endpoint or "https://kms", http="loopback")
        except UrlError:
            return "/endpoint", "endpoint must be an https URL"
        return None

    def open(self) -> AwsKmsKey:
        """Find credentials and fetch the public half. Raises KeyFault."""
        return AwsKmsKey(self)


class AwsKmsKey:
    """A key that AWS KMS signs with. It makes each request once: retries are up to the callers of the service."""

    max_message_bytes = KMS_MESSAGE_BYTES
    at_once = SIGNER_CALLS

    def __init__(self, file: AwsKmsFile) -> None:
        self._key = file.key
        self._client, self._errors = _connect(file)
        self.public = self._published()

    def sign(self, message: bytes) -> bytes:
        """Sign the message itself, not its digest. Raises KeyFault."""
        answer = self._ask(
            self._client.sign, KeyId=self._key, Message=message, MessageType="RAW", SigningAlgorithm=_ALGORITHM
        )
        return bytes(answer["Signature"])

    def _published(self) -> Ed25519PublicKey:
        answer = self._ask(self._client.get_public_key, KeyId=self._key)
        if _ALGORITHM not in answer.get("SigningAlgorithms", ()):
            raise KeyFault("the key cannot sign with Ed25519: make one with the key spec ECC_NIST_EDWARDS25519")
        try:
            public = load_der_public_key(answer["PublicKey"])
        except ValueError:
            public = None
        if not isinstance(public, Ed25519PublicKey):
            raise KeyFault("AWS KMS returned a public half that is not an Ed25519 key")
        return public

    def _ask(self, operation: Any, **parameters: object) -> dict[str, Any]:
        try:
            return dict(operation(**parameters))
        except self._errors as error:
            raise KeyFault(_explain(error)) from None


def _connect(file: AwsKmsFile) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a client that threads may share, and the errors that it raises. Raises KeyFault."""
    try:
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError:
        raise KeyFault("botocore is not installed: in the checkout, run `pip install '.[aws]'`") from None
    config = Config(
        connect_timeout=SIGNER_S,
        read_timeout=SIGNER_S,
        retries={"total_max_attempts": 1},
        max_pool_connections=SIGNER_CALLS,
        user_agent="eval-token-issuer",  # botocore would spend a tenth of each call on building its own
    )
    region, endpoint = file.region or None, file.endpoint or None
    session = Session()
    session.register_component("data_loader", _loader())
    try:
        return session.create_client("kms", region, endpoint_url=endpoint, config=config), (BotoCoreError, ClientError)
    except BotoCoreError as error:
        raise KeyFault(_explain(error)) from None


@cache
def _loader() -> Any:
    """Read botocore's descriptions of services once, because that takes a tenth of a second."""
    from botocore.loaders import create_loader  # type: ignore[import-untyped]

    return create_loader()


def _explain(error: Exception) -> str:
    """Return the error's name and the next step, without the error's text, which may quote the request."""
    response = getattr(error, "response", None) or {}  # None in an error without an answer, such as a timeout
    name = response.get("Error", {}).get("Code", type(error).__name__)
    if not re.fullmatch(r"[A-Za-z.]{1,64}", name):
        name = "an error without a name"
    return f"AWS KMS: {name}" + (f": {_NEXT[name]}" if name in _NEXT else "")


_NEXT = {
    "AccessDeniedException": "the service's role needs kms:Sign and kms:GetPublicKey on this key",
    "ConnectTimeoutError": "check that this machine can reach KMS",
    "DisabledException": "enable the key, or remove its file",
    "EndpointConnectionError": "check that this machine can reach KMS",
    "KMSInvalidStateException": "the key is pending deletion or not ready: cancel the deletion, or remove its file",
    "NoCredentialsError": "give the service a role, or credentials in its environment",
    "NoRegionError": "name the region in the file",
    "NotFoundException": "this region and account have no such key: correct the file",
    "ReadTimeoutError": "check that KMS answers this machine in time",
    "ThrottlingException": "the account's quota of KMS requests is used up: ask AWS for a larger one",
    "UnrecognizedClientException": "the credentials are not valid: replace them",
}
