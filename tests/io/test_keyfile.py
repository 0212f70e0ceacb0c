"""Key files: closed to others, never replaced, and with exactly one good Ed25519 key."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.formats import jose
from issuer.io import keyfile
from tests.support import make


def refusal(path: Path, passphrase: bytes | None = None) -> SetupError:
    with pytest.raises(SetupError) as caught:
        keyfile.read(path, passphrase)
    return caught.value


def stored(path: Path, raw: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(raw)
    path.chmod(mode)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "key.pem"
    keyfile.write(file, make.KEY)
    return file


def test_a_written_key_is_read_back_and_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    for name, bits in (("open", 0), ("closed", 0o277)):
        before = os.umask(bits)
        try:
            keyfile.write(tmp_path / name, make.KEY)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert keyfile.read(tmp_path / name).private_bytes_raw() == make.KEY.private_bytes_raw()


def test_an_existing_file_is_never_replaced_nor_a_link_followed(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        keyfile.write(path, keyfile.generate())
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        keyfile.write(tmp_path / "link", make.KEY)
    assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()


def test_only_a_file_that_its_owner_alone_may_open_is_read(path: Path) -> None:
    for mode in (0o600, 0o400, 0o700):
        path.chmod(mode)
        keyfile.read(path)
    for mode in (0o640, 0o604, 0o610, 0o601, 0o620, 0o602):
        path.chmod(mode)
        error = refusal(path)
        assert error.code is Code.KEY_UNSAFE
        assert f"chmod 600 {path}" in error.detail
    path.chmod(0o600)
    if os.geteuid() == 0:  # only root can give files away
        os.chown(path, 12345, -1)
        assert "another user" in refusal(path).detail


def test_a_path_that_is_not_a_plain_file_is_refused_without_waiting(path: Path, tmp_path: Path) -> None:
    link, fifo, folder = tmp_path / "link", tmp_path / "fifo", tmp_path / "folder"
    link.symlink_to(path)
    os.mkfifo(fifo, 0o600)
    folder.mkdir(mode=0o700)
    before = len(os.listdir("/proc/self/fd"))
    for other in (link, fifo, folder, tmp_path / "gone", Path("/dev/null")):
        assert refusal(other).code is Code.KEY_UNSAFE
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_encrypted_key_needs_its_passphrase_and_no_other_takes_one(path: Path, tmp_path: Path) -> None:
    encrypted = tmp_path / "encrypted.pem"
    keyfile.write(encrypted, make.KEY, b"a long passphrase")
    assert b"ENCRYPTED PRIVATE KEY" in encrypted.read_bytes()
    assert keyfile.read(encrypted, b"a long passphrase").private_bytes_raw() == make.KEY.private_bytes_raw()
    for passphrase, what in ((None, "give its passphrase"), (b"", "encrypted"), (b"wrong", "the passphrase is wrong")):
        error = refusal(encrypted, passphrase)
        assert error.code is Code.KEY_UNUSABLE
        assert what in error.detail
    assert "not encrypted" in refusal(path, b"a passphrase").detail
    for passphrase in (b"", b"x" * 1024):
        with pytest.raises(SetupError) as caught:
            keyfile.write(tmp_path / "unwritten.pem", make.KEY, passphrase)
        assert caught.value.code is Code.KEY_UNUSABLE
    assert not (tmp_path / "unwritten.pem").exists()


def test_a_file_without_exactly_one_key_of_the_kind_is_refused_and_not_shown(path: Path, tmp_path: Path) -> None:
    rsa_key: PrivateKeyTypes = rsa.generate_private_key(65537, 2048)
    others = (
        ec.generate_private_key(ec.SECP256R1()),
        ed448.Ed448PrivateKey.generate(),
        x25519.X25519PrivateKey.generate(),
    )
    plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    for index, key in enumerate((rsa_key, *others)):
        assert "not an Ed25519 key" in refusal(stored(tmp_path / str(index), key.private_bytes(*plain))).detail
    public = make.KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = path.read_bytes()
    for index, raw in enumerate([b"", b"s3cret", public, good[:40], b"\xff\x00", good.replace(b"M", b"!")]):
        error = refusal(stored(tmp_path / str(index), raw))
        assert error.code is Code.KEY_UNUSABLE
        assert "s3cret" not in str(error)
    keyfile.write(tmp_path / "other", keyfile.generate())
    for second in (good, (tmp_path / "other").read_bytes()):
        assert "more than one key" in refusal(stored(tmp_path / "both", good + second)).detail


def test_no_command_mistakes_a_generated_kid_for_an_option() -> None:
    kids = (str(jose.public_jwk(keyfile.generate().public_key())["kid"]) for _ in range(1000))
    assert [kid for kid in kids if kid.startswith("-")] == []
