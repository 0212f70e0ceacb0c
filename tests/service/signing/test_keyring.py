"""Keys on disk become a signer and a published key set, or the service does not start."""

import json
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats import jose
from issuer.service.signing import keyring as keyring_module
from issuer.service.signing.keyring import KeyringSigner, Opener, find_keys, generate
from issuer.service.signing.lifecycle import STATES, KeyState
from issuer.service.signing.remote_key import KeyFault
from tests.support.keyrings import load_keyring
from tests.support.kms import LocalKms
from tests.support.processes import in_child, take_descriptors

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


async def test_a_generated_key_signs_and_is_published_by_its_thumbprint(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "keys"
    path, keyring = generate(folder, "active"), load_keyring(folder)
    path.rename(path.with_name("signing.pem"))
    assert (keyring.active_kid, keyring.usable_kids) == (path.stem, (path.stem,))
    first, second = await keyring.sign(keyring.active_kid, (b"one", b"two"))
    assert verified(keyring, keyring.active_kid, b"one", first)
    assert verified(keyring, keyring.active_kid, b"two", second)
    assert not verified(keyring, keyring.active_kid, b"two", first)
    for kid in ("", "unknown", "../active", "\x00"):
        with pytest.raises(Undecided) as error:
            await keyring.sign(kid, (b"x",))
        assert error.value.code is Code.DEPENDENCY_SIGNER
    assert load_keyring(folder).jwks == keyring.jwks, "always the same bytes, whatever the file is called"
    (key,) = json.loads(keyring.jwks)["keys"]
    assert set(key) == {"kty", "crv", "x", "alg", "use", "kid"}, "public members only"
    assert (key["alg"], key["use"], key["kid"]) == ("EdDSA", "sig", jose.thumbprint(key))


def test_keys_of_all_states_are_published_and_one_is_active(tmp_path: Path) -> None:
    states: tuple[KeyState, ...] = ("next", "active", "retiring", "retiring")
    paths = [generate(tmp_path, state) for state in states]
    keyring = load_keyring(tmp_path)
    assert keyring.active_kid == paths[1].stem
    assert set(keyring.usable_kids) == {path.stem for path in paths}
    assert keyring.states == dict(zip((path.stem for path in paths), states, strict=True))
    assert {key["kid"] for key in json.loads(keyring.jwks)["keys"]} == {path.stem for path in paths}


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


def test_what_is_no_private_ed25519_key_of_its_own_file_is_refused(tmp_path: Path) -> None:
    ec_key = ec.generate_private_key(ec.SECP256R1())
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = generate(tmp_path / "keys", "active")
    copy = tmp_path / "keys" / "next" / "copy.pem"
    copy.parent.mkdir()
    copy.touch(mode=0o600)
    copy.write_bytes(path.read_bytes())
    assert refused(tmp_path / "keys").detail == "the same key is in two folders; remove one of its files"
    assert len(find_keys(tmp_path / "keys", lambda: None).keys) == 2
    copy.unlink()
    for pem in (b"", b"not a key", ec_key.private_bytes(serialization.Encoding.PEM, form, plain)):
        path.write_bytes(pem)
        assert refused(tmp_path / "keys").code is Code.KEY_UNUSABLE
    path.unlink()
    path.symlink_to(generate(tmp_path / "elsewhere", "active"))
    assert refused(tmp_path / "keys").code is Code.KEY_UNSAFE


def test_a_file_that_is_no_key_hides_no_other_and_one_elsewhere_stays_unjudged(tmp_path: Path) -> None:
    broken, active = generate(tmp_path, "next"), generate(tmp_path, "active")
    broken.write_bytes(b"not a key")
    found = find_keys(tmp_path, lambda: None)
    assert ([key.kid for key in found.keys], found.unjudged) == ([active.stem], frozenset())
    assert isinstance(found.error, SetupError)
    elsewhere = broken.rename(broken.with_suffix(".yaml"))
    assert find_keys(tmp_path, lambda: None).unjudged == {elsewhere}


def test_nothing_is_known_of_keys_that_no_descriptor_is_free_for(tmp_path: Path) -> None:
    path = generate(tmp_path, "active")

    def found() -> str:
        keys = find_keys(tmp_path, take_descriptors)
        return f"{type(keys.error)} {keys.keys} {keys.unjudged}"

    assert in_child(found) == f"{OSError} () {frozenset({path})}"


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


def test_any_exception_of_a_driver_is_the_fault_of_its_key() -> None:
    class Driver:
        def open(self) -> None:
            raise ArithmeticError

    with pytest.raises(KeyFault, match="its backend raised ArithmeticError"):
        keyring_module._open(Driver())  # type: ignore[arg-type]


def test_a_key_that_others_may_touch_or_a_folder_that_they_may_write_to_is_refused(tmp_path: Path) -> None:
    states: tuple[KeyState, ...] = ("active", "next", "retiring")
    for path in [generate(tmp_path, state) for state in states]:
        for mode in (0o640, 0o604, 0o644, 0o660, 0o606, 0o620, 0o602, 0o610, 0o601):
            path.chmod(mode)
            error = refused(tmp_path)
            assert (error.code, f"chmod 600 {path}" in error.detail) == (Code.KEY_UNSAFE, True), (path, mode)
        path.chmod(0o600)
    folder = tmp_path / "active"
    for state in ("", *STATES):
        each = tmp_path / state
        each.mkdir(exist_ok=True)
        each.chmod(0o702)
        error = refused(tmp_path)
        assert (error.code, error.detail.partition(":")[0]) == (Code.KEY_UNSAFE, str(each))
        each.chmod(0o700)
    if os.geteuid() == 0:  # only root gives a folder to any group
        os.chown(folder, -1, 8)
        folder.chmod(0o770)
        assert refused(tmp_path).code is Code.KEY_UNSAFE


def test_a_generated_key_and_its_folders_are_their_owner_s_and_not_behind_a_link(tmp_path: Path) -> None:
    for umask in (0o000, 0o022, 0o077):
        before = os.umask(umask)
        try:
            path = generate(tmp_path / str(umask), "active")
        finally:
            os.umask(before)
        modes = [each.stat().st_mode & 0o777 for each in (path, path.parent, tmp_path / str(umask))]
        assert modes == [0o600, 0o700, 0o700]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "keys").symlink_to("elsewhere")
    with pytest.raises(OSError, match="not followed"):
        generate(tmp_path / "keys", "active")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_encrypted_key_opens_with_its_passphrase_only_and_a_plain_one_with_none(tmp_path: Path) -> None:
    path = generate(tmp_path / "encrypted", "active", b"correct horse")
    assert b"ENCRYPTED" in path.read_bytes()
    assert load_keyring(tmp_path / "encrypted", b"correct horse").active_kid == path.stem
    for passphrase in (b"wrong", None, b""):
        error = refused(tmp_path / "encrypted", passphrase)
        assert (error.code, "correct horse" in error.detail) == (Code.KEY_UNUSABLE, False)
    generate(tmp_path / "plain", "active")
    assert "not encrypted" in refused(tmp_path / "plain", b"passphrase").detail
    with pytest.raises(SetupError, match="a passphrase must have 1 to 1023 bytes"):
        generate(tmp_path / "none", "active", b"")
    assert list((tmp_path / "none").rglob("*.pem")) == []


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


async def test_readiness_signs_no_token_and_fails_where_the_published_set_lacks_the_key(tmp_path: Path) -> None:
    # No JWS signing input begins with a zero byte: it begins with base64url (contract section 4).
    assert keyring_module._READINESS == b"\x00issuer-readiness"
    assert not jose.signing_input({}, b"").startswith(b"\x00")
    generate(tmp_path, "active")
    keyring = load_keyring(tmp_path)
    await keyring.check(NOW)
    other = jose.public_jwk(Ed25519PrivateKey.generate().public_key())
    for jwks in ([], [{**other, "kid": keyring.active_kid}]):
        keyring.jwks = json.dumps({"keys": jwks}).encode()
        with pytest.raises(Undecided) as error:
            await keyring.check(NOW)
        assert error.value.code is Code.DEPENDENCY_SIGNER
