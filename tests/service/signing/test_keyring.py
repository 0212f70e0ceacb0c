"""Keys on disk become a signer and a published key set, or the service does not start."""

import json
import os
import resource
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats import jose
from issuer.service.signing import keyring as keyring_module
from issuer.service.signing.bounds import SIGNER_CHECK_S
from issuer.service.signing.keyring import KeyringSigner, Opener, SigningKey, find_keys, generate, read_key_file
from issuer.service.signing.lifecycle import STATES, KeyState
from issuer.service.signing.remote_key import RemoteKey
from tests.support.clock import Clock
from tests.support.keyrings import load_keyring
from tests.support.kms import LocalKms

NOW = 1_795_251_600


def refused(folder: Path, passphrase: bytes | None = None) -> SetupError:
    with pytest.raises(SetupError) as error:
        load_keyring(folder, passphrase)
    return error.value


def verified(keyring: KeyringSigner, kid: str, signed: bytes, signature: bytes) -> bool:
    """Verify as a relying party does: through the published set, with a library's own arithmetic."""
    published = {key["kid"]: key for key in json.loads(keyring.jwks)["keys"]}
    raw = jose.base64url_decode(published[kid]["x"])
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, signed)
    except Exception:  # noqa: BLE001
        return False
    return True


# -- loading -------------------------------------------------------------------------------------------------------------


async def test_a_generated_key_signs_and_is_published(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "keys"
    path, keyring = generate(folder, "active"), load_keyring(folder)
    assert keyring.active_kid == path.stem
    assert keyring.usable_kids == (path.stem,)
    first, second = await keyring.sign(keyring.active_kid, (b"one", b"two"))
    assert verified(keyring, keyring.active_kid, b"one", first)
    assert verified(keyring, keyring.active_kid, b"two", second)
    assert not verified(keyring, keyring.active_kid, b"two", first)


def test_keys_of_all_states_are_published_and_one_is_active(tmp_path: Path) -> None:
    states: tuple[KeyState, ...] = ("next", "active", "retiring", "retiring")
    paths = [generate(tmp_path, state) for state in states]
    keyring = load_keyring(tmp_path)
    assert keyring.active_kid == paths[1].stem
    assert set(keyring.usable_kids) == {path.stem for path in paths}
    assert keyring.states == dict(zip((path.stem for path in paths), states, strict=True))
    assert {key["kid"] for key in json.loads(keyring.jwks)["keys"]} == {path.stem for path in paths}


def test_the_key_set_holds_public_members_only_and_is_always_the_same_bytes(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    keyring, again = load_keyring(tmp_path), load_keyring(tmp_path)
    assert keyring.jwks == again.jwks
    (key,) = json.loads(keyring.jwks)["keys"]
    assert set(key) == {"kty", "crv", "x", "alg", "use", "kid"}
    assert (key["alg"], key["use"], key["kid"]) == ("EdDSA", "sig", jose.thumbprint(key))
    generate(tmp_path, "next")
    assert load_keyring(tmp_path).jwks != keyring.jwks


def test_the_kid_is_the_thumbprint_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = generate(tmp_path, "active")
    path.rename(path.with_name("signing.pem"))
    assert load_keyring(tmp_path).active_kid == path.stem


def test_there_is_exactly_one_active_key(tmp_path: Path) -> None:
    folders: list[list[KeyState]] = [[], ["next"], ["retiring"], ["next", "retiring"], ["active", "active"]]
    for number, states in enumerate(folders):
        folder = tmp_path / str(number)
        for state in states:
            generate(folder, state)
        error = refused(folder)
        assert error.code is Code.KEY_UNUSABLE
        count = states.count("active")
        wanted = f"exactly one active key; there are {count}" if states else f"`issuer keys generate --dir {folder}`"
        assert wanted in error.detail


def test_the_same_key_in_two_folders_is_refused(tmp_path: Path) -> None:
    path = generate(tmp_path, "active")
    copy = tmp_path / "next" / "copy.pem"
    copy.parent.mkdir()
    copy.touch(mode=0o600)
    copy.write_bytes(path.read_bytes())
    assert refused(tmp_path).detail == "the same key is in two folders; remove one of its files"
    assert len(find_keys(tmp_path, lambda: None).keys) == 2


def test_a_key_that_others_may_touch_is_refused(tmp_path: Path) -> None:
    states: tuple[KeyState, ...] = ("active", "next", "retiring")
    for path in [generate(tmp_path, state) for state in states]:
        for mode in (0o640, 0o604, 0o644, 0o660, 0o606, 0o620, 0o602, 0o610, 0o601):
            path.chmod(mode)
            error = refused(tmp_path)
            assert (error.code, f"chmod 600 {path}" in error.detail) == (Code.KEY_UNSAFE, True), (path, mode)
        path.chmod(0o600)


def test_a_link_to_a_key_is_refused(tmp_path: Path) -> None:
    path = generate(tmp_path / "elsewhere", "active")
    (tmp_path / "active").mkdir()
    (tmp_path / "active" / "key.pem").symlink_to(path)
    assert refused(tmp_path).code is Code.KEY_UNSAFE


def test_what_is_no_private_ed25519_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "active").mkdir()
    path = tmp_path / "active" / "key.pem"
    path.touch(mode=0o600)
    for pem in (b"", b"not a key", pem_of(ec.generate_private_key(ec.SECP256R1()))):
        path.write_bytes(pem)
        assert refused(tmp_path).code is Code.KEY_UNUSABLE


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_file_that_is_no_key_hides_no_other(tmp_path: Path) -> None:
    generate(tmp_path, "next").write_bytes(b"not a key")
    active = generate(tmp_path, "active")
    found = find_keys(tmp_path, lambda: None)
    assert ([key.kid for key in found.keys], found.unjudged) == ([active.stem], frozenset())
    assert isinstance(found.error, SetupError)


def test_nothing_is_known_of_a_key_that_lies_elsewhere_and_does_not_open(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    path = tmp_path / "active" / "elsewhere.yaml"
    path.touch(0o600)
    assert find_keys(tmp_path, lambda: None).unjudged == {path}


def test_nothing_is_known_of_keys_that_no_descriptor_is_free_for(tmp_path: Path) -> None:
    path, (soft, hard) = generate(tmp_path, "active"), resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        found = find_keys(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(found.error, OSError)
    assert (found.keys, found.unjudged) == ((), frozenset({path}))


def test_a_remote_key_is_opened_once_and_dropped_when_its_file_is_gone(tmp_path: Path) -> None:
    opener, path = Opener(), tmp_path / "active" / "key.yaml"
    path.parent.mkdir(0o700)
    path.touch(0o600)
    with LocalKms(Ed25519PrivateKey.generate()) as kms:
        path.write_text(kms.file(), "utf-8")
        (one,), (again,) = (find_keys(tmp_path, lambda: None, opener).keys for _ in range(2))
        assert again.private is one.private
        path.rename(path.with_suffix(".away"))
        assert find_keys(tmp_path, lambda: None, opener).keys == ()
        path.with_suffix(".away").rename(path)
        (anew,) = find_keys(tmp_path, lambda: None, opener).keys
        assert (anew.kid, anew.private is one.private) == (one.kid, False)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    for state in ("", *STATES):
        folder = tmp_path / state
        folder.mkdir(exist_ok=True)
        folder.chmod(0o702)
        error = refused(tmp_path)
        assert (error.code, error.detail.partition(":")[0]) == (Code.KEY_UNSAFE, str(folder))
        folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a folder to any group")
def test_a_folder_that_a_group_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = generate(tmp_path, "active").parent
    os.chown(folder, -1, 8)
    folder.chmod(0o770)
    assert refused(tmp_path).code is Code.KEY_UNSAFE


# -- generating ----------------------------------------------------------------------------------------------------------


def test_a_generated_key_and_its_folders_are_their_owner_s_alone(tmp_path: Path) -> None:
    for umask in (0o000, 0o022, 0o077):
        before = os.umask(umask)
        try:
            path = generate(tmp_path / str(umask), "active")
        finally:
            os.umask(before)
        modes = [each.stat().st_mode & 0o777 for each in (path, path.parent, tmp_path / str(umask))]
        assert modes == [0o600, 0o700, 0o700]


def test_an_encrypted_key_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    path = generate(tmp_path, "active", b"correct horse")
    assert b"ENCRYPTED" in path.read_bytes()
    assert load_keyring(tmp_path, b"correct horse").active_kid == path.stem
    for passphrase in (b"wrong", None, b""):
        error = refused(tmp_path, passphrase)
        assert error.code is Code.KEY_UNUSABLE
        assert "correct horse" not in error.detail


def test_a_passphrase_for_a_key_that_is_not_encrypted_is_refused(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    assert "not encrypted" in refused(tmp_path, b"passphrase").detail


def test_an_empty_passphrase_does_not_make_a_plain_key(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as error:
        generate(tmp_path, "active", b"")
    assert "a passphrase must have 1 to 1023 bytes" in error.value.detail
    assert list(tmp_path.rglob("*.pem")) == []


def test_no_key_is_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "keys").symlink_to("elsewhere")
    with pytest.raises(OSError, match="not followed"):
        generate(tmp_path / "keys", "active")
    assert list((tmp_path / "elsewhere").iterdir()) == []


# -- signing -------------------------------------------------------------------------------------------------------------


async def test_a_key_that_is_gone_cannot_sign(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    keyring = load_keyring(tmp_path)
    for kid in ("", "unknown", "../active", "\x00"):
        with pytest.raises(Undecided) as error:
            await keyring.sign(kid, (b"x",))
        assert error.value.code is Code.DEPENDENCY_SIGNER


async def test_a_keyring_without_its_active_key_only_signs_retries(tmp_path: Path) -> None:
    _, retiring = (generate(tmp_path, state).stem for state in ("active", "retiring"))
    part = KeyringSigner(tuple(key for key in load_keyring(tmp_path).keys if key.kid == retiring))
    (signature,) = await part.sign(retiring, (b"x",))
    assert verified(part, retiring, b"x", signature)
    assert part.usable_kids == (retiring,)
    with pytest.raises(Undecided) as begun:
        _ = part.active_kid
    with pytest.raises(Undecided) as ready:
        await part.check(NOW)
    assert {begun.value.code, ready.value.code} == {Code.DEPENDENCY_SIGNER}


async def test_readiness_asks_a_key_that_lies_elsewhere(tmp_path: Path) -> None:
    private, clock = Ed25519PrivateKey.generate(), Clock()
    kid = str(jose.public_jwk(private.public_key())["kid"])
    with LocalKms(private) as kms:
        path = tmp_path / "key.yaml"
        path.write_text(kms.file(), "utf-8")
        key = RemoteKey(read_key_file(path.read_bytes(), str(path)).open(), kid, clock=clock)
        keyring = KeyringSigner((SigningKey.of(key, "active"),))
        kms.refuses = "DisabledException"
        clock.s += SIGNER_CHECK_S
        with pytest.raises(Undecided) as error:
            await keyring.check(NOW)
    assert error.value.code is Code.DEPENDENCY_SIGNER


async def test_readiness_fails_where_the_published_set_lacks_the_key(tmp_path: Path) -> None:
    generate(tmp_path, "active")
    keyring = load_keyring(tmp_path)
    await keyring.check(NOW)
    other = jose.public_jwk(Ed25519PrivateKey.generate().public_key())
    for jwks in ([], [{**other, "kid": keyring.active_kid}]):
        keyring.jwks = json.dumps({"keys": jwks}).encode()
        with pytest.raises(Undecided) as error:
            await keyring.check(NOW)
        assert error.value.code is Code.DEPENDENCY_SIGNER


def test_a_readiness_signature_can_never_be_a_token_s() -> None:
    """No JWS signing input begins with a zero byte: it begins with base64url (contract section 4)."""
    assert keyring_module._READINESS == b"\x00issuer-readiness"
    assert not jose.signing_input({}, b"").startswith(b"\x00")
