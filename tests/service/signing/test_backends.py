"""Every backend keeps one contract: a key in a file, in a PKCS #11 token, and in AWS KMS."""

import asyncio
import json
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
from issuer.service.signing import bounds, remote_key
from issuer.service.signing.active_keys import LiveSigner
from issuer.service.signing.aws_kms_key import AwsKmsFile
from issuer.service.signing.keyring import KeyringSigner, Opener, SigningKey, generate, read_key_file
from issuer.service.signing.lifecycle import KeyState
from issuer.service.signing.pkcs11_key import demand_a_try
from issuer.service.signing.remote_key import KeyFault, RemoteKey
from tests.support.clock import Clock
from tests.support.key_hosts import KeyHost, Seconds
from tests.support.keyrings import load_keyring
from tests.support.kms import ARN, SECRET, LocalKms
from tests.support.shared import ROOT
from tests.support.softhsm import PIN, SoftToken, make_token
from tests.support.waiting import until

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
    with capture_logs() as logged, pytest.raises(Undecided) as error:
        await keyring.sign(kid_of(KEY), messages or (b"x",))
    assert error.value.code is Code.DEPENDENCY_SIGNER
    (reason,) = {
        line["reason"] for line in logged if line["event"] == "key did not sign" and line["kid"] == kid_of(KEY)
    }
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


async def test_a_key_is_published_guarded_and_signs_as_rfc_8032_says_wherever_it_is(place: Place) -> None:
    keyring = load_keyring(place.keys)
    assert (keyring.active_kid, keyring.usable_kids) == (kid_of(KEY), (kid_of(KEY),))
    assert json.loads(keyring.jwks) == {"keys": [jose.public_jwk(KEY.public_key())]}
    assert keyring.max_message_bytes(kid_of(KEY)) == place.largest
    batch = (jose.signing_input({"alg": "EdDSA"}, b"{}"), b"\x00" * place.largest, *(b"%d" % n for n in range(8)))
    requests = [batch, *((b"s%d" % number,) for number in range(5))]
    answers = await asyncio.gather(*(keyring.sign(kid_of(KEY), messages) for messages in requests))
    assert answers == [tuple(map(KEY.sign, messages)) for messages in requests]
    await keyring.check(1_795_251_600)
    for mode in (0o644, 0o620):
        place.path.chmod(mode)
        with pytest.raises(SetupError) as error:
            load_keyring(place.keys)
        assert (error.value.code, f"chmod 600 {place.path}" in error.value.detail) == (Code.KEY_UNSAFE, True)


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


# -- AWS KMS that is wrong at the start -------------------------------------------------------------------------------


@pytest.fixture
def kms() -> Iterator[LocalKms]:
    with LocalKms(KEY) as local:
        yield local


def change(kms: LocalKms, **members: Any) -> None:
    """Have the KMS answer as it should, except in these members."""
    right = {"random": False, "signs_with": None, "key": KEY, "key_spec": "ECC_NIST_EDWARDS25519", "refuses": ""}
    for name, value in {**right, **members}.items():
        assert hasattr(kms, name)
        setattr(kms, name, value)


UNPROVEN: list[tuple[dict[str, Any], str]] = [
    ({"random": True}, "it has two signatures for one message"),
    ({"signs_with": OTHER}, "the published key does not verify its signature"),
    ({"key": OTHER, "signs_with": KEY}, "the published key does not verify its signature"),
    ({"key_spec": "ECC_NIST_P256"}, "the key cannot sign with Ed25519: make one with the key spec"),
    ({"refuses": "DisabledException"}, "AWS KMS: DisabledException: enable the key"),
    ({"refuses": "ThrottlingException"}, "AWS KMS: ThrottlingException: the account's quota"),
    ({"refuses": "Nobody <knows>"}, "AWS KMS: an error without a name"),
]


def test_a_key_that_does_not_prove_itself_is_refused_at_the_start(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    for members, why in UNPROVEN:
        change(kms, **members)
        detail = refused(tmp_path)
        assert detail.startswith(f"active/key.yaml: {why}"), (members, detail)
        assert "secret detail" not in detail
    assert kms.faults == []


FILE_FAULTS: list[tuple[dict[str, str], str]] = [
    ({"kid": kid_of(OTHER)}, f": it says kid '{kid_of(OTHER)}', but the key has '{kid_of(KEY)}'"),
    ({"key": "alias/signing"}, ":3:6: file.rule: key must be the key's id or ARN, not an alias"),
    ({"key": ARN.replace("1234", "4321")}, ": AWS KMS: NotFoundException: this region and account have no such key"),
    ({"endpoint": "http://kms.example"}, ":5:11: file.rule: endpoint must be an https URL"),
    ({"endpoint": "http://127.0.0.1:1"}, ": AWS KMS: EndpointConnectionError: check that this machine can reach KMS"),
    ({"region": ""}, ": AWS KMS: NoRegionError: name the region in the file"),
    ({"region": "us-east-1"}, ": AWS KMS: UnrecognizedClientException: the credentials are not valid"),
    ({"regoin": "x"}, ":6:9: file.unknown_member"),
    ({"key": ""}, ":1:1: file.schema: object missing required field `key`"),
    ({"backend": "gcp-kms"}, ":2:10: file.rule: backend must be one of aws-kms, pkcs11"),
    ({"kid": 'x"\nkid: "y'}, "file.duplicate_key"),
]


def test_a_fault_in_a_file_is_told_with_its_place(tmp_path: Path, kms: LocalKms) -> None:
    for members, why in FILE_FAULTS:
        put(tmp_path, kms.file(**members))
        assert why in refused(tmp_path)
    for text in ("", "[", "- x\n", "pkcs11\n", "version: 2\nbackend: aws-kms\n", "x" * 20_000):
        put(tmp_path, text)
        with pytest.raises(SetupError):
            load_keyring(tmp_path)
    put(tmp_path, kms.file(kid=kid_of(KEY)))
    assert load_keyring(tmp_path).active_kid == kid_of(KEY)


def test_without_its_library_a_backend_says_how_to_get_it(tmp_path: Path) -> None:
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
    output = done.stdout.splitlines()
    assert output[0] == "1 2", done.stderr
    assert {text.partition("run ")[2] for text in output[1:]} == {"`pip install '.[pkcs11]'`", "`pip install '.[aws]'`"}


# -- AWS KMS that goes wrong ------------------------------------------------------------------------------------------


async def test_a_key_that_goes_wrong_signs_nothing_until_it_is_right_again(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"signs_with": OTHER}, "the published key does not verify its signature"),
        ({"refuses": "ThrottlingException"}, "AWS KMS: ThrottlingException"),
        ({"refuses": "AccessDeniedException"}, "AWS KMS: AccessDeniedException: the service's role needs kms:Sign"),
    ]
    for members, why in wrong:
        keyring = load_keyring(tmp_path)
        change(kms, **members)
        reason = await undecided(keyring, b"one", b"two", b"three")
        assert reason.startswith(why)
        assert not any(secret in reason for secret in (SECRET, ARN, "secret detail"))
        change(kms)
        assert await keyring.sign(kid_of(KEY), (b"one", b"two")) == (KEY.sign(b"one"), KEY.sign(b"two"))


async def test_a_slow_key_is_asked_for_nothing_after_its_deadline_and_named_at_the_start(
    tmp_path: Path, kms: LocalKms
) -> None:
    path = put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    kms.delay_s = bounds.SIGNER_S * 2
    found = await asyncio.gather(*(keyring.sign(kid_of(KEY), (b"x",)) for _ in range(30)), return_exceptions=True)
    assert {type(each) for each in found} == {Undecided}
    assert kms.asked["Sign"] == 2 + bounds.SIGNER_CALLS
    with pytest.raises(SetupError, match="AWS KMS: ReadTimeoutError: check that KMS answers"):
        Opener(wait_s=60).open(path)


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
    key = remote(kms, Clock())
    with pytest.raises(KeyFault, match="ValidationException"):  # KMS does not sign a larger message
        key.sign(b"x" * (key.max_message_bytes + 1))


@pytest.mark.long
async def test_a_batch_of_a_slow_key_has_a_deadline_of_its_own(tmp_path: Path, kms: LocalKms) -> None:
    put(tmp_path, kms.file())
    keyring = load_keyring(tmp_path)
    kms.delay_s = 0.3
    output = await undecided(keyring, *(b"%d" % number for number in range(100)))
    assert output == f"not all of 100 signatures within {bounds.SIGNED_S} s"


async def test_a_reason_is_told_once_a_second_with_its_count(tmp_path: Path, kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    kms.refuses = "ThrottlingException"
    with capture_logs() as logged:
        for seconds in (0, 0, 0, COUNT_S):
            clock.s += seconds
            with pytest.raises(Undecided):
                await key.sign_all((b"x",))
    assert [line["count"] for line in logged] == [1, 3]


def remote(kms: LocalKms, clock: Callable[[], float]) -> RemoteKey:
    file = read_key_file(kms.file().encode(), "key.yaml")
    assert isinstance(file, AwsKmsFile)
    return RemoteKey(file.open(), kid_of(KEY), clock)


# -- readiness --------------------------------------------------------------------------------------------------------


async def test_a_key_is_probed_once_a_minute_and_not_where_it_has_signed(kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    for _ in range(60):
        clock.s += 1
        await key.demand_live()
    assert kms.asked["Sign"] == 1
    for _ in range(10):
        clock.s += bounds.SIGNER_CHECK_S - 1
        await key.sign_all((b"x",))
        await key.demand_live()
    assert kms.asked["Sign"] == 11


async def test_a_failed_key_is_probed_once_in_5_s_for_all_until_it_signs(kms: LocalKms) -> None:
    clock = Clock()
    keyring = KeyringSigner((SigningKey.of(remote(kms, clock), "active"),))
    kms.refuses = "DisabledException"
    with pytest.raises(Undecided):
        await keyring.sign(keyring.active_kid, (b"x",))
    for probes in (1, 2):
        for _ in range(int(bounds.SIGNER_PROBE_S)):
            callers = [keyring.demand_live(keyring.active_kid) for _ in range(9)]
            answers = await asyncio.gather(*callers, keyring.check(1_795_251_600), return_exceptions=True)
            assert {isinstance(each, Undecided) and each.code for each in answers} == {Code.DEPENDENCY_SIGNER}
            assert kms.asked["Sign"] == 1 + probes
            clock.s += 1
    kms.refuses = ""
    await asyncio.gather(*(keyring.demand_live(keyring.active_kid) for _ in range(9)))
    await keyring.check(1_795_251_600)
    assert kms.asked["Sign"] == 4


async def test_a_caller_that_hangs_up_ends_no_probe(kms: LocalKms) -> None:
    clock = Clock()
    key = remote(kms, clock)
    clock.s += bounds.SIGNER_CHECK_S
    first, second = asyncio.create_task(key.demand_live()), asyncio.create_task(key.demand_live())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert kms.asked["Sign"] == 1


async def test_more_requests_than_a_key_can_sign_are_no_failure_of_the_key(
    kms: LocalKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_key, "SIGNER_TURN_S", 0.02)
    monkeypatch.setattr(remote_key, "SIGNER_S", 60)
    key = remote(kms, Clock())
    kms.delay_s = 0.5
    signatures = asyncio.gather(*(key.sign_all((b"x",)) for _ in range(bounds.SIGNER_CALLS)))
    await asyncio.sleep(0)
    with pytest.raises(Undecided):
        await key.sign_all((b"x",))
    await key.demand_live()
    await signatures
    assert kms.asked["Sign"] == bounds.SIGNER_CALLS


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
        reasons = (
            "no token has this label",
            "the token answered GeneralError",
        )  # SoftHSM may find only some files gone
        assert (await undecided(keyring)).startswith(reasons)
        token.put_back()
        await until(lambda: signs(keyring))

    def test_a_wrong_pin_is_tried_once_and_a_fault_in_a_file_is_told_with_its_place(
        self, tmp_path: Path, token: SoftToken
    ) -> None:
        put(tmp_path / "keys", token.file())
        pins: list[tuple[Callable[[Path], object], str]] = [
            (lambda pin: pin.write_text("\n"), "the file is empty"),
            (lambda pin: pin.write_bytes(b"\xff"), "not UTF-8"),
            (lambda pin: pin.chmod(0o644), "it has mode 0644: others may read it"),
            (lambda pin: pin.unlink(), "No such file"),
        ]
        for spoil, why in pins:
            spoil(token.pin_file)
            detail = refused(tmp_path / "keys")
            assert (detail.startswith("active/key.yaml: pin_file"), why in detail) == (True, True), detail
        token.pin_file.touch(0o600)
        token.pin_file.write_text("0000")
        for tried in (True, False):
            token.forget_wrong_pins()
            assert refused(tmp_path / "keys").startswith("active/key.yaml: the PIN is wrong, and the service will not")
            assert token.remembers_a_wrong_pin is tried
        token.pin_file.write_text(f"{PIN}\r\n")
        files: list[tuple[dict[str, str], str]] = [
            ({"token": "nobody's"}, ": no token has this label"),
            ({"key": "another"}, ": the token lacks a private or a public Ed25519 key with this label"),
            ({"module": "/nowhere/libsofthsm2.so"}, ": `module` cannot be loaded"),
            ({"module": "libsofthsm2.so"}, ":3:9: file.rule: module must be a path that begins with /"),
            ({"pin_file": "pin"}, ":6:11: file.rule: pin_file must be a path that begins with /"),
            ({"pin": PIN}, ":7:6: file.unknown_member"),
        ]
        for members, why in files:
            put(tmp_path / "keys", token.file(**members))
            detail = refused(tmp_path / "keys")
            assert (detail.startswith(f"active/key.yaml{why}"), PIN in detail) == (True, False), detail
        put(tmp_path / "keys", token.file())
        assert load_keyring(tmp_path / "keys").active_kid == kid_of(KEY)

    def test_the_last_try_of_a_token_is_left_to_people(self) -> None:
        """SoftHSM locks no token, so this asks about the flags of PKCS #11 themselves (3.1, CK_TOKEN_INFO)."""
        demand_a_try(TokenFlag.USER_PIN_COUNT_LOW | TokenFlag.TOKEN_INITIALIZED)
        for flag in (TokenFlag.USER_PIN_FINAL_TRY, TokenFlag.USER_PIN_LOCKED):
            with pytest.raises(KeyFault, match="the service does not use the last one"):
                demand_a_try(flag | TokenFlag.USER_PIN_COUNT_LOW)

    async def test_two_keys_of_one_token_share_its_login_and_need_two_labels(
        self, tmp_path: Path, token: SoftToken
    ) -> None:
        token.add("upcoming", OTHER)
        put(tmp_path / "keys", token.file())
        put(tmp_path / "keys", token.file(key="upcoming"), "next", "next.yaml")
        keyring = load_keyring(tmp_path / "keys")
        one, other = await asyncio.gather(*(keyring.sign(kid_of(key), (b"x",) * 20) for key in (KEY, OTHER)))
        assert (one, other) == ((KEY.sign(b"x"),) * 20, (OTHER.sign(b"x"),) * 20)
        token.add("signing", OTHER)
        assert "several keys with this label" in refused(tmp_path / "keys")


# -- while a process runs ---------------------------------------------------------------------------------------------


@pytest.fixture
async def house(tmp_path: Path, kms: LocalKms) -> AsyncIterator[KeyHost]:
    put(tmp_path / "keys", kms.file())
    host = KeyHost(tmp_path, Seconds()).start()
    yield host
    await host.stop()


async def signs(signer: KeyringSigner | LiveSigner) -> bool:
    try:
        return await signer.sign(kid_of(KEY), (b"x",)) == (KEY.sign(b"x"),)
    except Undecided:
        return False


async def test_a_spoiled_file_or_a_missing_backend_leaves_the_key_in_force(house: KeyHost, kms: LocalKms) -> None:
    away = kms.file(endpoint="http://127.0.0.1:1")
    for text in ("version: 1\nbackend: [", 'version: 1\nbackend: "gcp-kms"\n', away):
        put(house.keys, text)
        await house.turn(True)
        assert (house.signer.stale, await signs(house.signer)) == (True, True)
        put(house.keys, kms.file())
        await house.turn(True)
        assert (house.signer.stale, await signs(house.signer)) == (False, True)
    asked = dict(kms.asked)
    generate(house.keys, "next")
    await house.turn(True)
    assert (len(house.published), dict(kms.asked)) == (2, asked), "a key that is open is not asked anew"


async def test_a_file_that_is_gone_takes_its_key_away_whatever_kms_says(house: KeyHost, kms: LocalKms) -> None:
    kms.delay_s = 5
    (house.keys / "active" / "key.yaml").unlink()
    await house.turn()
    assert house.signer.usable_kids == ()
    assert not await signs(house.signer)


async def test_a_file_that_names_another_key_takes_the_old_one_away(house: KeyHost, kms: LocalKms) -> None:
    with LocalKms(OTHER) as other:
        put(house.keys, other.file())
        await house.turn(True)
        assert (house.published, house.signs) == ({kid_of(OTHER)}, None), "it is not known to everybody"
        assert not await signs(house.signer)


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
    kms.delay_s = bounds.SIGNER_S * 0.7
    with pytest.raises(SetupError) as error:
        opener.open(path)
    assert "its backend has not answered yet" in error.value.detail
    opener.wait_s = 60
    assert opener.open(path).kid == kid_of(KEY)
    assert kms.asked["GetPublicKey"] == 1
