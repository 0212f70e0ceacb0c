"""The secret's file: how it is made, and which files are refused."""

import os
from pathlib import Path

import pytest

from issuer.codes import Code
from issuer.errors import SetupError
from issuer.issuance.steps import StoreSecret
from issuer.service.admission.secret_file import make_secret, read_secret

ONE, TWO = "0123456789abcdef" * 4, "f" * 64
RECORD, DIGEST = "a" * 64, "b" * 64


def written(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.touch(mode)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_a_secret_that_is_made_is_random_private_and_stays(tmp_path: Path) -> None:
    first, second = tmp_path / "new" / "one", tmp_path / "new" / "two"
    make_secret(first)
    make_secret(second)
    before = first.read_bytes()
    make_secret(first)
    assert first.read_bytes() == before != second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600
    sealed = read_secret(first).seal(RECORD, DIGEST, b"template")
    assert read_secret(first).unseal(RECORD, DIGEST, sealed) == b"template"
    assert read_secret(second).unseal(RECORD, DIGEST, sealed) is None
    with pytest.raises(SetupError) as refused:
        make_secret(first / "secret")  # in a file
    assert refused.value.code is Code.MACHINE_FAILED


def test_the_first_line_seals_and_a_second_one_is_accepted(tmp_path: Path) -> None:
    one, two = StoreSecret(bytes.fromhex(ONE)), StoreSecret(bytes.fromhex(TWO))
    for text in (ONE, f"{ONE}\n", f"{ONE}\r\n{TWO}\r\n", f"{ONE}\n{TWO}"):
        secret = read_secret(written(tmp_path, text))
        assert one.unseal(RECORD, DIGEST, secret.seal(RECORD, DIGEST, b"t")) == b"t"
        assert secret.unseal(RECORD, DIGEST, two.seal(RECORD, DIGEST, b"t")) == (b"t" if TWO in text else None)
        assert secret.bucket("x") == one.bucket("x")


def test_anything_else_is_refused_and_not_shown(tmp_path: Path) -> None:
    for text in (
        "", "\n", ONE[:-1], ONE + "0", ONE + TWO[:-1], ONE.upper(), f"{ONE}\n{ONE}", f"{ONE}\n{TWO}\n{'e' * 64}", f" {ONE}",
        f"{ONE}\n\n{TWO}", f"{ONE} {TWO}", "g" * 64, b"\xff" * 64, "0" * 2000,
    ):  # fmt: skip
        with pytest.raises(SetupError) as refused:
            read_secret(written(tmp_path, text))
        assert (refused.value.code, ONE in str(refused.value)) == (Code.SETTINGS_INVALID, False)


def test_a_secret_that_others_may_read_is_a_link_or_is_not_there_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ONE, 0o640)
    os.symlink(path, tmp_path / "link")
    for bad, why in ((path, "chmod 600"), (tmp_path / "link", "symbolic link"), (tmp_path / "none", "No such file")):
        with pytest.raises(SetupError) as refused:
            read_secret(bad)
        assert why in str(refused.value)
