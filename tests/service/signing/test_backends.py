"""Every backend keeps one contract: a key in a file, in a PKCS #11 token, and in AWS KMS."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pkcs11 import TokenFlag
from structlog.testing import capture_logs

from issuer.codes import Code
from issuer.errors import SetupError, Undecided
from issuer.formats import jose
from issuer.io import keyfile
from issuer.io.bounds import COUNT_S
from issuer.service.signing import bounds
from issuer.service.signing.aws_kms_key import AwsKmsFile
from issuer.service.signing.keyring import KeyringSigner, Opener, generate, read_key_file
from issuer.service.signing.lifecycle import KeyState
from issuer.service.signing.pkcs11_key import demand_a_try
from issuer.service.signing.remote_key import KeyFault, RemoteKey
from tests.support.clock import Clock
from tests.support.key_hosts import KeyHost, Seconds
from tests.support.keyrings import load_keyring
from tests.support.kms import ARN, SECRET, LocalKms
from tests.support.shared import ROOT
from tests.support.softhsm import PIN, SoftToken, make_token

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
SOFTHSM = pytest.param("pkcs11", marks=pytest.mark.needs_tool("softhsm2-util"))


def kid_of(key: Ed25519PrivateKey) -> str:
    return str(jose.public_jwk(key.public_key())["kid"])


def put(folder: Path, text: str, state: KeyState = "active", name: str = "key.yaml") -> Path:
    """Write a file of a key into its folder, readable by its owner alone."""
    path = folder / state / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(text, "utf-8")
    return path


def refused(folder: Path) -> str:
    with pytest.raises(SetupError) as error:
        load_keyring(folder)
    assert error.value.code is Code.KEY_UNUSABLE
    return error.value.detail.removeprefix(f"{folder}/")


async def undecided(keyring: KeyringSigner, *messages: bytes) -> str:
    """Have messages not signed, and return the reason that the log stream tells."""
    with capture_logs() as told, pytest.raises(Undecided) as error:
        await keyring.sign(kid_of(KEY), messages or (b"x",))
    assert error.value.code is Code.DEPENDENCY_SIGNER
    (reason,) = {line["reason"] for line in told if line["event"] == "key did not sign" and line["kid"] == kid_of(KEY)}
    return str(reason)


# -- what holds for each of them --------------------------------------------------------------------------------------


@dataclass
class Place:
    """A folder of keys whose active key is KEY, which lies where `backend` says."""

    backend: str
    keys: Path
    path: Path
    largest: int


@pytest.fixture(params=["file", SOFTHSM, "aws-kms"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    keys, backend = tmp_path / "keys", str(request.param)
    with ExitStack() as stack:
        if backend == "file":
            path = put(keys, "", name="key.pem")
            path.unlink()
            keyfile.write(path, KEY)
        elif backend == "pkcs11":
            path = put(keys, make_token(tmp_path, KEY).file())
        else:
            kms = stack.enter_context(LocalKms(KEY))
            path = put(keys, kms.file())
            stack.callback(lambda: pytest.fail(str(kms.faults)) if kms.faults else None)
        yield Place(backend, keys, path, 4096 if backend == "aws-kms" else jose.MAX_TOKEN_BYTES)


async def test_its_public_half_is_published_under_its_thumbprint(place: Place) -> None:
    keyring = load_keyring(place.keys)
    assert (keyring.active_kid, keyring.usable_kids) == (kid_of(KEY), (kid_of(KEY),))
    assert json.loads(keyring.jwks) == {"keys": [jose.public_jwk(KEY.public_key())]}


async def test_it_signs_every_message_up_to_its_largest_as_rfc_8032_says(place: Place) -> None:
    keyring = load_keyring(place.keys)
    assert keyring.max_message_bytes(kid_of(KEY)) == place.largest
    messages = (b"m", jose.signing_input({"alg": "EdDSA"}, b"{}"), b"\x00" * place.largest)
    assert await keyring.sign(kid_of(KEY), messages) == tuple(map(KEY.sign, messages))


async def test_one_message_has_one_signature_whoever_opened_the_key(place: Place) -> None:
    one, other = load_keyring(place.keys), load_keyring(place.keys)
    assert await one.sign(kid_of(KEY), (b"x", b"x")) == await other.sign(kid_of(KEY), (b"x", b"x"))


async def test_a_batch_and_many_requests_at_once_are_each_answered_with_their_own(place: Place) -> None:
    keyring = load_keyring(place.keys)
    batch = tuple(b"%d" % number for number in range(100))
    singles = [(b"s%d" % number,) for number in range(50)]
    answers = await asyncio.gather(*(keyring.sign(kid_of(KEY), messages) for messages in (batch, *singles)))
    assert answers == [tuple(map(KEY.sign, messages)) for messages in (batch, *singles)]


async def test_readiness_signs_with_it(place: Place) -> None:
    await load_keyring(place.keys).check(1_795_251_600)


async def test_a_key_that_was_taken_away_signs_nothing() -> None:
    without = KeyringSigner(())
    with pytest.raises(Undecided):
        await without.sign(kid_of(KEY), (b"x",))
    with pytest.raises(Undecided):
        await without.check(1_795_251_600)


async def test_a_rotation_is_a_move_of_its_file(place: Place) -> None:
    generate(place.keys, "next")
    opener = Opener()
    before = load_keyring(place.keys, opener=opener)
    (place.keys / "retiring").mkdir(0o700)
    place.path.rename(place.keys / "retiring" / place.path.name)
    new = next((place.keys / "next").iterdir())
    new.rename(place.keys / "active" / new.name)
    after = load_keyring(place.keys, opener=opener)
    assert after.states == {kid_of(KEY): "retiring", new.stem: "active"}
    assert await after.sign(kid_of(KEY), (b"x",)) == await before.sign(kid_of(KEY), (b"x",)) == (KEY.sign(b"x"),)


@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_file_that_others_may_touch_is_refused(place: Place, mode: int) -> None:
    place.path.chmod(mode)
    with pytest.raises(SetupError) as error:
        load_keyring(place.keys)
    assert error.value.code is Code.KEY_UNSAFE
    assert f"chmod 600 {place.path}" in error.value.detail


# -- AWS KMS that is wrong at the start -------------------------------------------------------------------------------


@pytest.fixture
def kms() -> Iterator[LocalKms]:
    with LocalKms(KEY) as local:
        yield local


def answers(**members: Any) -> Callable[[LocalKms], None]:
    def change(kms: LocalKms) -> None:
        for name, value in members.items():
            assert hasattr(kms, name)
            setattr(kms, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (answers(random=True), "it has two signatures for one message"),
        (answers(signs_with=OTHER), "the published key does not verify its signature"),
        (answers(key=OTHER, signs_with=KEY), "the published key does not verify its signature"),
        (answers(key_spec="ECC_NIST_P256"), "the key cannot sign with Ed25519: make one with the key spec"),
        (answers(refuses="DisabledException"), "AWS KMS: DisabledException: enable the key"),
        (answers(refuses="ThrottlingException"), "AWS KMS: ThrottlingException: the account's quota"),
        (answers(refuses="Nobody <knows>"), "AWS KMS: an error without a name"),
    ],
)
def test_a_key_that_does_not_prove_itself_is_refused_at_the_start(
    tmp_path: Path, kms: LocalKms, change: Callable[[LocalKms], None], why: str
) -> None:
    put(tmp_path, kms.file())
    change(kms)
    said = refused(tmp_path)
    assert said.startswith(f"active/key.yaml: {why}")
    assert "secret detail" not in said
    assert kms.faults == []


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"kid": kid_of(OTHER)}, f": it says kid '{kid_of(OTHER)}', but the key has '{kid_of(KEY)}'"),
        ({"key": "alias/signing"}, ":3:6: file.rule: key must be the key's id or ARN, not an alias"),
        (
            {"key": ARN.replace("1234", "4321")},
            ": AWS KMS: NotFoundException: this region and account have no such key",
        ),
        ({"endpoint": "http://kms.example"}, ":5:11: file.rule: endpoint must be an https URL"),
        (
            {"endpoint": "http://127.0.0.1:1"},
            ": AWS KMS: EndpointConnectionError: check that this machine can reach KMS",
        ),
        ({"region": ""}, ": AWS KMS: NoRegionError: name the region in the file"),
        ({"region": "us-east-1"}, ": AWS KMS: UnrecognizedClientException: the credentials are not valid"),
        ({"regoin": "x"}, ":6:9: file.unknown_member"),
        ({"key": ""}, ":1:1: file.schema: object missing required field `key`"),
        ({"backend": "gcp-kms"}, ":2:10: file.rule: backend must be one of aws-kms, pkcs11"),
        ({"kid": 'x"\nkid: "y'}, "file.duplicate_key"),
    ],
)
def test_a_fault_in_a_file_is_told_with_its_place(
    tmp_path: Path, kms: LocalKms, members: dict[str, str], why: str
) -> None:
    put(tmp_path, kms.file(**members))
    assert why in refused(tmp_path)


@pytest.mark.parametrize("text", ["", "[", "- x\n", "pkcs11\n", "version: 2\nbackend: aws-kms\n", "x" * 20_000])
def test_what_is_no_file_of_a_key_is_refused(tmp_path: Path, text: str) -> None:
    put(tmp_path, text)
    with pytest.raises(SetupError):
        load_keyring(tmp_path)


def test_the_examples_of_the_page_are_taken() -> None:
    page = (ROOT / "keys" / "README.md").read_text("utf-8")
    examples = re.findall(r"```yaml\n(version: 1\nbackend: .*?)```", page, re.DOTALL)
    files = [read_key_file(text.encode(), "key.yaml") for text in examples]
    assert [type(file).__name__ for file in files] == ["Pkcs11File", "AwsKmsFile"]


def test_without_its_library_a_backend_says_how_to_get_it_and_nothing_else_needs_one(tmp_path: Path) -> None:
    page = (ROOT / "keys" / "README.md").read_text("utf-8")
    pkcs11, aws_kms = re.findall(r"```yaml\n(version: 1\nbackend: .*?)```", page, re.DOTALL)
    put(tmp_path, pkcs11, "active")
    put(tmp_path, aws_kms, "retiring")
    generate(tmp_path, "next")
    program = (
        "import sys; from pathlib import Path; import issuer.service.app; from issuer.service.signing import keyring;"
        "assert not {'pkcs11', 'botocore'} & sys.modules.keys(); sys.modules.update(pkcs11=None, botocore=None);"
        "found = keyring.find_keys(Path(sys.argv[1]), lambda: None); print(len(found.keys), len(found.unjudged));"
        "[print(keyring.find_keys(path.parents[1], lambda: None).error) or path.unlink()"
        " for path in sorted(found.unjudged)]"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert said[0] == "1 2", done.stderr
    assert {text.partition("run ")[2] for text in said[1:]} == {
        "`pip install '.[pkcs11]'`",
        "`pip install '.[aws]'`",
    }


def test_its_kid_may_be_named_and_is_then_compared(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file(kid=kid_of(KEY)))
    assert load_keyring(tmp_path).active_kid == kid_of(KEY)


@pytest.mark.parametrize(("name", "value"), [("AWS_SECRET_ACCESS_KEY", "another"), ("AWS_ACCESS_KEY_ID", "another")])
def test_our_kms_takes_no_request_that_is_not_signed_by_its_secret(
    tmp_path: Path, kms: LocalKms, name: str, value: str
) -> None:
    os.environ[name] = value  # as it was, when the KMS ends
    put(tmp_path, kms.file())
    refused(tmp_path)
    assert len(kms.faults) == 1


# -- AWS KMS that goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (answers(signs_with=OTHER), "the published key does not verify its signature"),
        (answers(refuses="ThrottlingException"), "AWS KMS: ThrottlingException"),
        (answers(refuses="DisabledException"), "AWS KMS: DisabledException"),
        (answers(refuses="AccessDeniedException"), "AWS KMS: AccessDeniedException: the service's role needs kms:Sign"),
    ],
)
async def test_a_key_that_goes_wrong_signs_nothing_and_goes_on_when_it_is_right_again(
    tmp_path: Path, kms: LocalKms, change: Callable[[LocalKms], None], why: str
) -> None:
    put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    change(kms)
    said = await undecided(keyring, b"one", b"two", b"three")
    assert said.startswith(why)
    assert not any(secret in said for secret in (SECRET, ARN, "secret detail"))
    answers(signs_with=None, refuses="")(kms)
    assert await keyring.sign(kid_of(KEY), (b"one", b"two")) == (KEY.sign(b"one"), KEY.sign(b"two"))


async def test_a_slow_key_holds_nobody_up_for_longer_than_its_deadline(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    kms.delay_s = bounds.SIGNER_S * 2
    began = asyncio.get_running_loop().time()
    many = asyncio.gather(*(keyring.sign(kid_of(KEY), (b"x",)) for _ in range(30)), return_exceptions=True)  # fmt: skip
    turns = 0
    while not many.done():  # the event loop is free
        turns += 1
        await asyncio.sleep(0.01)
    assert turns > 20
    assert asyncio.get_running_loop().time() - began < bounds.SIGNER_S * 2
    assert {type(found) for found in await many} == {Undecided}
    assert kms.asked["Sign"] == 2 + bounds.SIGNER_CALLS, "what waited for too long was not asked for"


async def test_where_more_is_wanted_than_a_key_signs_nothing_is_begun_that_would_be_late(kms: LocalKms) -> None:
    key = remote(kms, Clock())
    kms.delay_s = 0.2
    found = await asyncio.gather(*(key.sign_all((b"x",)) for _ in range(60)), return_exceptions=True)
    signed = sum(answer == (KEY.sign(b"x"),) for answer in found)
    assert {type(answer) for answer in found} == {tuple, Undecided}
    assert signed == kms.asked["Sign"] >= bounds.SIGNER_CALLS


async def test_a_batch_takes_its_turn_with_others(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    kms.delay_s = 0.01
    batch = asyncio.create_task(keyring.sign(kid_of(KEY), (b"b",) * 100))
    for _ in range(3):
        await keyring.sign(kid_of(KEY), (b"x",))
    assert not batch.done()
    assert kms.asked["Sign"] < 60, "they did not wait until the batch was signed"
    assert await batch == (KEY.sign(b"b"),) * 100


def test_a_message_that_is_larger_than_the_largest_is_one_that_kms_does_not_sign(kms: LocalKms) -> None:
    key = remote(kms, Clock())
    with pytest.raises(KeyFault, match="ValidationException"):
        key.sign(b"x" * (key.max_message_bytes + 1))


@pytest.mark.long
async def test_a_batch_of_a_slow_key_has_a_deadline_of_its_own(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    kms.delay_s = 0.3
    said = await undecided(keyring, *(b"%d" % number for number in range(100)))
    assert said == f"not all of 100 signatures within {bounds.SIGNED_S} s"


async def test_a_reason_is_told_once_a_second_with_its_count(tmp_path: Path, kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    kms.refuses = "ThrottlingException"
    with capture_logs() as told:
        for seconds in (0, 0, 0, COUNT_S):
            clock.s += seconds
            with pytest.raises(Undecided):
                await key.sign_all((b"x",))
    assert [line["count"] for line in told] == [1, 3]


def remote(kms: LocalKms, clock: Callable[[], float]) -> RemoteKey:
    file = read_key_file(kms.file().encode(), "key.yaml")
    assert isinstance(file, AwsKmsFile)
    return RemoteKey(file.open(), kid_of(KEY), clock)


# -- readiness --------------------------------------------------------------------------------------------------------


async def test_readiness_asks_once_a_minute_and_not_where_somebody_has(kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    for _ in range(60):
        clock.s += 1
        await key.check(b"\x00x")
    assert kms.asked["Sign"] == 1
    for _ in range(10):
        clock.s += bounds.SIGNER_CHECK_S - 1
        await key.sign_all((b"x",))
        await key.check(b"\x00x")
    assert kms.asked["Sign"] == 11


async def test_a_key_that_does_not_sign_is_not_ready_until_it_does(kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    kms.refuses = "DisabledException"
    clock.s += bounds.SIGNER_CHECK_S
    for _ in range(5):
        with pytest.raises(Undecided):
            await key.check(b"\x00x")
        clock.s += 1
    assert kms.asked["Sign"] == 1
    kms.refuses = ""
    await key.sign_all((b"x",))
    await key.check(b"\x00x")
    assert kms.asked["Sign"] == 2


# -- PKCS #11 ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def token(tmp_path: Path) -> SoftToken:
    return make_token(tmp_path, KEY)


@pytest.mark.needs_tool("softhsm2-util")
class TestPkcs11:
    async def test_a_token_that_is_removed_signs_nothing_and_signs_again_when_it_is_back(
        self, tmp_path: Path, token: SoftToken
    ) -> None:
        put(tmp_path / "keys", token.file())
        keyring = load_keyring(tmp_path / "keys")
        token.remove()
        assert (await undecided(keyring)).startswith("no token has this label")
        token.put_back()
        deadline = asyncio.get_running_loop().time() + 60
        signed: tuple[bytes, ...] = ()
        while not signed and asyncio.get_running_loop().time() < deadline:
            try:
                signed = await keyring.sign(kid_of(KEY), (b"x",))
            except Undecided:
                await asyncio.sleep(0.05)
        assert signed == (KEY.sign(b"x"),)

    def test_a_wrong_pin_is_tried_once(self, tmp_path: Path, token: SoftToken) -> None:
        put(tmp_path / "keys", token.file())
        token.pin_file.write_text("0000")
        for tried in (True, False):
            token.forget_wrong_pins()
            assert refused(tmp_path / "keys").startswith("active/key.yaml: the PIN is wrong, and the service will not")
            assert token.remembers_a_wrong_pin is tried
        token.pin_file.write_text(f"{PIN}\r\n")
        assert load_keyring(tmp_path / "keys").active_kid == kid_of(KEY)

    @pytest.mark.parametrize(
        ("members", "why"),
        [
            ({"token": "nobody's"}, ": no token has this label"),
            ({"key": "another"}, ": the token lacks a private or a public Ed25519 key with this label"),
            ({"module": "/nowhere/libsofthsm2.so"}, ": `module` cannot be loaded"),
            ({"module": "libsofthsm2.so"}, ":3:9: file.rule: module must be a path that begins with /"),
            ({"pin_file": "pin"}, ":6:11: file.rule: pin_file must be a path that begins with /"),
            ({"pin": PIN}, ":7:6: file.unknown_member"),
            ({"kid": kid_of(OTHER)}, f": it says kid '{kid_of(OTHER)}', but the key has '{kid_of(KEY)}'"),
        ],
    )
    def test_a_fault_in_a_file_is_told_with_its_place(
        self, tmp_path: Path, token: SoftToken, members: dict[str, str], why: str
    ) -> None:
        put(tmp_path / "keys", token.file(**members))
        said = refused(tmp_path / "keys")
        assert said.startswith(f"active/key.yaml{why}")
        assert PIN not in said

    @pytest.mark.parametrize(
        ("spoil", "why"),
        [
            (lambda pin: pin.chmod(0o644), "it has mode 0644: others may read it"),
            (lambda pin: pin.unlink(), "No such file"),
            (lambda pin: pin.write_text("\n"), "the file is empty"),
            (lambda pin: pin.write_bytes(b"\xff"), "not UTF-8"),
        ],
    )
    def test_a_pin_comes_from_a_file_of_its_owner_alone(
        self, tmp_path: Path, token: SoftToken, spoil: Callable[[Path], None], why: str
    ) -> None:
        put(tmp_path / "keys", token.file())
        spoil(token.pin_file)
        said = refused(tmp_path / "keys")
        assert said.startswith("active/key.yaml: pin_file")
        assert why in said

    @pytest.mark.parametrize("flag", ["USER_PIN_FINAL_TRY", "USER_PIN_LOCKED"])
    def test_the_last_try_of_a_token_is_left_to_people(self, flag: str) -> None:
        """SoftHSM locks no token, so this asks about the flags of PKCS #11 themselves (3.1, CK_TOKEN_INFO)."""
        demand_a_try(TokenFlag.USER_PIN_COUNT_LOW | TokenFlag.TOKEN_INITIALIZED)
        with pytest.raises(KeyFault) as fault:
            demand_a_try(TokenFlag[flag] | TokenFlag.USER_PIN_COUNT_LOW)
        assert "the service does not use the last one" in str(fault.value)

    def test_two_keys_with_one_label_are_refused(self, tmp_path: Path, token: SoftToken) -> None:
        token.add("signing", OTHER)
        put(tmp_path / "keys", token.file())
        assert "several keys with this label" in refused(tmp_path / "keys")

    async def test_two_keys_of_one_token_share_its_login(self, tmp_path: Path, token: SoftToken) -> None:
        token.add("upcoming", OTHER)
        put(tmp_path / "keys", token.file())
        put(tmp_path / "keys", token.file(key="upcoming"), "next", "next.yaml")
        keyring = load_keyring(tmp_path / "keys")
        one, other = await asyncio.gather(*(keyring.sign(kid_of(key), (b"x",) * 20) for key in (KEY, OTHER)))
        assert (one, other) == ((KEY.sign(b"x"),) * 20, (OTHER.sign(b"x"),) * 20)


# -- while a process runs ---------------------------------------------------------------------------------------------


@pytest.fixture
async def house(tmp_path: Path, kms: LocalKms) -> AsyncIterator[KeyHost]:
    put(tmp_path / "keys", kms.file())
    host = KeyHost(tmp_path, Seconds()).start()
    yield host
    await host.stop()


async def signs(house: KeyHost) -> bool:
    try:
        return await house.signer.sign(kid_of(KEY), (b"x",)) == (KEY.sign(b"x"),)
    except Undecided:
        return False


@pytest.mark.parametrize("text", ["version: 1\nbackend: [", 'version: 1\nbackend: "gcp-kms"\n', None])
async def test_a_file_that_is_spoiled_or_a_backend_that_is_away_leaves_the_key_in_force(
    house: KeyHost, kms: LocalKms, text: str | None
) -> None:
    put(house.keys, text or kms.file(endpoint="http://127.0.0.1:1"))
    await house.turn(True)
    assert (house.signer.stale, await signs(house)) == (True, True)
    put(house.keys, kms.file())
    await house.turn(True)
    assert (house.signer.stale, await signs(house)) == (False, True)


async def test_a_file_that_is_gone_takes_its_key_away_whatever_kms_says(house: KeyHost, kms: LocalKms) -> None:
    kms.delay_s = 5
    (house.keys / "active" / "key.yaml").unlink()
    await house.turn()
    assert house.signer.usable_kids == ()
    assert not await signs(house)


async def test_a_file_that_names_another_key_takes_the_old_one_away(house: KeyHost, kms: LocalKms) -> None:
    with LocalKms(OTHER) as other:
        put(house.keys, other.file())
        await house.turn(True)
        assert (house.published, house.signs) == ({kid_of(OTHER)}, None), "it is not known to everybody"
        assert not await signs(house)


async def test_a_key_that_is_open_is_not_asked_anew_when_the_folders_change(house: KeyHost, kms: LocalKms) -> None:
    asked = dict(kms.asked)
    generate(house.keys, "next")
    await house.turn(True)
    assert len(house.published) == 2
    assert kms.asked == asked


async def test_a_key_that_does_not_open_is_tried_again_after_a_pause(tmp_path: Path, kms: LocalKms) -> None:
    clock = Clock()
    opener, path = Opener(clock=clock), put(tmp_path, kms.file())
    kms.refuses = "DisabledException"
    for seconds, tries in ((0, 1), (bounds.SIGNER_AGAIN_S - 1, 1), (1, 2)):
        clock.s += seconds
        with pytest.raises(SetupError):
            opener.open(path)
        assert kms.asked["Sign"] == tries
    kms.refuses = ""
    clock.s += bounds.SIGNER_AGAIN_S
    assert opener.open(path) is opener.open(path)


async def test_a_backend_that_does_not_answer_is_not_waited_for(tmp_path: Path, kms: LocalKms) -> None:
    opener, path = Opener(wait_s=0.05), put(tmp_path, kms.file())
    kms.delay_s = 0.3
    with pytest.raises(SetupError) as error:
        opener.open(path)
    assert "its backend has not answered yet" in error.value.detail
    opener.wait_s = 60
    assert opener.open(path).kid == kid_of(KEY)
    assert kms.asked["GetPublicKey"] == 1
