"""A private key in AWS KMS (key spec ECC_NIST_EDWARDS25519), by botocore. Nobody can copy it, AWS itself included.

Credentials come the way botocore finds them: environment, profile, or the role of container or machine.
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
    """`backend: "aws-kms"`: the key's id or ARN, and region and endpoint where the environment says neither."""

    version: Literal[1]
    backend: Literal["aws-kms"]
    key: Text
    region: Text | UnsetType = UNSET
    endpoint: Text | UnsetType = UNSET
    kid: Text | UnsetType = UNSET

    def fault(self) -> tuple[str, str] | None:
        """Demand a key by its id: an alias may come to mean another one."""
        if not _KEY.fullmatch(self.key):
            return "/key", "key is the key's id or ARN, not an alias: that may come to mean another key"
        try:
            split_url(self.endpoint or "https://kms", http="loopback")
        except UrlError:
            return "/endpoint", "endpoint is an https URL"
        return None

    def open(self) -> AwsKmsKey:
        """Find credentials and ask for the public half. Raises KeyFault."""
        return AwsKmsKey(self)


class AwsKmsKey:
    """A key that AWS KMS signs with. One call asks once: who retries is the caller of the service."""

    max_message_bytes = KMS_MESSAGE_BYTES
    at_once = SIGNER_CALLS

    def __init__(self, file: AwsKmsFile) -> None:
        self._key = file.key
        self._client, self._errors = _connect(file)
        self._public = self._published()

    def public_key(self) -> Ed25519PublicKey:
        """Return its public half."""
        return self._public

    def sign(self, message: bytes) -> bytes:
        """Sign a message as it is, not its digest. Raises KeyFault."""
        answer = self._ask(
            self._client.sign, KeyId=self._key, Message=message, MessageType="RAW", SigningAlgorithm=_ALGORITHM
        )
        return bytes(answer["Signature"])

    def _published(self) -> Ed25519PublicKey:
        answer = self._ask(self._client.get_public_key, KeyId=self._key)
        if _ALGORITHM not in answer.get("SigningAlgorithms", ()):
            raise KeyFault("the key is not for signing with Ed25519: make one of the key spec ECC_NIST_EDWARDS25519")
        try:
            public = load_der_public_key(answer["PublicKey"])
        except ValueError:
            public = None
        if not isinstance(public, Ed25519PublicKey):
            raise KeyFault("what AWS KMS calls the key's public half is no Ed25519 key")
        return public

    def _ask(self, operation: Any, **parameters: object) -> dict[str, Any]:
        try:
            return dict(operation(**parameters))
        except self._errors as error:
            raise KeyFault(_explain(error)) from None


def _connect(file: AwsKmsFile) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a client, which threads may share, and the errors that it raises. Raises KeyFault."""
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
        user_agent="eval-token-issuer",  # botocore's own takes a tenth of a call to put together
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
    """Read botocore's descriptions of services once: that takes a tenth of a second."""
    from botocore.loaders import create_loader  # type: ignore[import-untyped]

    return create_loader()


def _explain(error: Exception) -> str:
    """Say which error it is, by its name alone: its text may quote what was sent."""
    name = getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__)
    if not re.fullmatch(r"[A-Za-z.]{1,64}", name):
        name = "an error without a name"
    return f"AWS KMS: {name}" + (f": {_NEXT[name]}" if name in _NEXT else "")


_NEXT = {
    "AccessDeniedException": "the service's role needs kms:Sign and kms:GetPublicKey on this key",
    "ConnectTimeoutError": "look whether KMS can be reached from here",
    "DisabledException": "enable the key, or take its file away",
    "EndpointConnectionError": "look whether KMS can be reached from here",
    "KMSInvalidStateException": "the key is being deleted, or is not ready: cancel that, or take its file away",
    "NoCredentialsError": "give the service a role, or credentials in its environment",
    "NoRegionError": "name the region in the file",
    "NotFoundException": "no such key in this region and account",
    "ThrottlingException": "the account's quota of KMS requests is used up: ask AWS for a larger one",
    "UnrecognizedClientException": "the credentials are not valid",
}
