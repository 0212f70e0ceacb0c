"""The settings: a file, the environment over it, and the refused ones."""

import os
import re
from pathlib import Path

import msgspec
import pytest

from issuer.codes import Code
from issuer.errors import InputError, SetupError
from issuer.formats.times import LEEWAY_S
from issuer.service.settings.model import MEMBERS, VARIABLES, Keys, Settings, changed
from issuer.service.settings.reader import OF_RUNS, OTHERS, find_settings, read_settings
from tests.support.rooms import PACKAGE

FILE = """\
version: 1
url: "https://issuer.example"
policies: "policies"
data: "data"
keys: {folder: "keys"}
store: {url: "redis://localhost:6379/0"}
"""
ENVIRONMENT = {
    "ISSUER_URL": "https://issuer.example", "ISSUER_POLICIES": "policies", "ISSUER_KEYS_FOLDER": "keys",
    "ISSUER_DATA": "data", "ISSUER_STORE_URL": "embedded",
}  # fmt: skip


def from_file(folder: Path, text: str = FILE, **environ: str) -> Settings:
    (folder / "settings.yaml").write_text(text, encoding="utf-8")
    return read_settings(folder / "settings.yaml", environ)


def refused(folder: Path, text: str) -> InputError:
    with pytest.raises(InputError) as error:
        from_file(folder, text)
    return error.value


def refused_environment(**changes: str) -> SetupError:
    with pytest.raises(SetupError) as error:
        read_settings(None, {**ENVIRONMENT, **changes})
    assert error.value.code is Code.SETTINGS_INVALID
    return error.value


def test_a_file_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    """It names the folders of keys and of policies: its writer decides what is signed after the next start."""
    from_file(tmp_path)
    modes = [0o646]
    if not os.geteuid():  # a user's own group has nobody else in it
        os.chown(tmp_path / "settings.yaml", -1, 4712)
        modes.append(0o664)
    for mode in modes:
        (tmp_path / "settings.yaml").chmod(mode)
        with pytest.raises(InputError, match=r"chmod g?o-w") as error:
            read_settings(tmp_path / "settings.yaml", {})
        assert error.value.code is Code.FILE_UNSAFE


def test_a_file_is_enough_and_the_rest_has_safe_defaults(tmp_path: Path) -> None:
    settings = from_file(tmp_path)
    assert (settings.url, settings.store.url) == ("https://issuer.example", "redis://localhost:6379/0")
    assert (settings.listen.host, settings.listen.port) == ("127.0.0.1", 8000)
    assert settings.store.epoch_leeway_s == LEEWAY_S == 30
    assert (settings.development, settings.store.durable, settings.store.noeviction_stated) == (False, False, False)
    assert settings.audit_file == Path("data/audit.jsonl")
    assert settings.pats_folder == Path("data/pats")
    assert settings.passphrase() is None


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    settings = from_file(tmp_path, FILE + "listen: {port: 1}\n", ISSUER_LISTEN_PORT="2", ISSUER_KEYS_FOLDER="/run/keys")
    assert (settings.listen.port, settings.keys.folder, settings.data) == (2, "/run/keys", "data")
    assert from_file(tmp_path, FILE + 'pats: "/srv/pats"\n').pats_folder == Path("/srv/pats")
    assert from_file(tmp_path, FILE + 'pats: "/srv/pats"\n', ISSUER_PATS="elsewhere").pats_folder == Path("elsewhere")


def test_variables_of_other_commands_and_of_others_are_left_alone() -> None:
    others = dict.fromkeys([*OTHERS, "ISSUER_RUN_MODEL_REPO", "URL", "MYISSUER_URL", "issuer_prot"], "x")
    read_settings(None, {**ENVIRONMENT, **others})


def test_a_variable_that_nothing_reads_is_an_error_with_the_nearest_name() -> None:
    for variable, meant in (
        ("ISSUER_PROT", "ISSUER_LISTEN_PORT"), ("ISSUER_LISTEN_PROT", "ISSUER_LISTEN_PORT"),
        ("ISSUER_STORE_DURABEL", "ISSUER_STORE_DURABLE"), ("ISSUER_KEYS", "ISSUER_KEYS_FOLDER"),
        ("ISSUER_ID_TOKNE", "ISSUER_ID_TOKEN"), ("ISSUER_SOMETHING_ELSE", ""), ("ISSUER_VERSION", ""),
    ):  # fmt: skip
        detail = refused_environment(**{variable: "hush"}).detail
        assert detail.startswith(f"{variable} is not a setting, and no command reads it")
        assert f"did you mean `{meant}`?" in detail if meant else "did you mean" not in detail
        assert "hush" not in detail


def test_every_variable_that_a_command_reads_is_one_setting_or_listed() -> None:
    """Or the service would refuse to start beside it. `_ISSUER_COMPLETE` is click's own."""
    read = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r"\b(ISSUER_[A-Z_]+)", path.read_text())}
    runs = {name for name in read if name.startswith(OF_RUNS)}
    assert read - runs - OTHERS - set(VARIABLES) == set()
    assert len(VARIABLES) == len(MEMBERS) - 1, "all except the version of the file"
    assert not OTHERS & set(VARIABLES)


def test_all_that_is_missing_is_told_at_once_with_the_ways_to_set_it(tmp_path: Path) -> None:
    variables = {variable: name for variable, name in VARIABLES.items() if MEMBERS[name].required}
    for missing, by_file in ((("url",), True), (("policies", "data"), False), (("keys.folder", "store.url"), True)):
        there = {variable: ENVIRONMENT[variable] for variable, name in variables.items() if name not in missing}
        with pytest.raises(SetupError) as error:
            from_file(tmp_path, "version: 1\n", **there) if by_file else read_settings(None, there)
        assert error.value.code is Code.SETTINGS_INVALID
        named = re.findall(r"`([a-z.]+)` \((ISSUER_[A-Z_]+)\)", error.value.detail)
        assert named == [(name, variable) for variable, name in variables.items() if name in missing]
        assert (str(tmp_path / "settings.yaml") in error.value.detail) == by_file


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """In the file each at its place, then the errors of the environment, and the missing settings."""
    text = 'version: 1\nurl: "http://issuer.example"\nprot: 1\nkeys: 5\nlog: {orign: "x", witnesses: "both"}\n'
    with pytest.raises(InputError) as error:
        from_file(tmp_path, text, ISSUER_PROT="1", ISSUER_LISTEN_PORT="x")
    logged = [(finding.place.line, finding.place.column, finding.detail) for finding in error.value.findings]
    assert [one[:2] for one in logged] == [(3, 7), (4, 7), (5, 14), (5, 30), (2, 6), (0, 0), (0, 0), (0, 0)]
    for (_, _, detail), output in zip(logged, (
        "did you mean `listen.port`?", "a group of settings is a map of folder, passphrase_file",
        "did you mean `log.origin`?", "it is one of async, sync", "url must be https", "ISSUER_PROT is not a setting",
        "ISSUER_LISTEN_PORT, which sets `listen.port`", "not set: `policies`",
    ), strict=True):  # fmt: skip
        assert output in detail


def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    for line, meant in (
        ("prot: 80", "listen.port"), ("redis_url: x", ""), ("listen: {prot: 80}", "listen.port"), ("lisen: {}", "listen"),
        ("log_origin: x", "log.origin"), ("pasphrase_file: x", "keys.passphrase_file"), ("urll: x", "url"),
        ('"listen.port": 80', "listen.port"), ('"listen/port": 80', "listen.port"),
    ):  # fmt: skip
        error = refused(tmp_path, f"{FILE}{line}\n")
        assert (error.code, error.place.line) == (Code.FILE_UNKNOWN_MEMBER, 7)
        assert error.detail == "this setting is not known" + (f" (did you mean `{meant}`?)" if meant else "")


def test_where_each_setting_comes_from_is_known(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FILE + "listen:\n  port: 1\n  host: a\n")
    _, origins = find_settings(tmp_path / "s.yaml", {"ISSUER_LISTEN_PORT": "2", "ISSUER_PATS": "p"})
    assert (origins["listen.port"], origins["pats"]) == ("$ISSUER_LISTEN_PORT", "$ISSUER_PATS")
    assert [origins[name] for name in ("listen.host", "store.url")] == [
        f"{tmp_path / 's.yaml'}:{line}" for line in (9, 6)
    ]
    assert "log.origin" not in origins


def test_values_are_changed_by_the_names_of_variables() -> None:
    settings = read_settings(None, ENVIRONMENT)
    other = changed(settings, listen_port=1, url="https://a.example", keys_passphrase_file="p")
    assert (other.listen.port, other.url, other.keys) == (1, "https://a.example", Keys("keys", "p"))
    assert changed(other, listen_port=8000, url=settings.url, keys_passphrase_file="") == settings
    with pytest.raises(KeyError):
        changed(settings, port=1)
    with pytest.raises(msgspec.ValidationError):
        changed(settings, listen_port=-1)


FAULTS = [
    ("listen: {port: yes}\n", 16, "readers disagree"),
    ('listen: {port: "8000"}\n', 16, "expected a whole number, got text"),
    ("listen: {port: 8000.5}\n", 16, "expected a whole number, got a number"),
    ("listen: {port: 65536}\n", 16, "<= 65535"), ("listen: {port: null}\n", 16, "expected a whole number, got nothing"),
    ("listen: null\n", 9, "a group of settings is a map of host, port"),
    ("development: 1\n", 14, "expected true or false, got a whole number"),
    ('development: "true"\n', 14, "expected true or false, got text"),
    ("listen: {host: 127}\n", 16, "expected text, got a whole number"), ('listen: {host: ""}\n', 16, "length >= 1"),
    ("passphrase: x\n", 13, "this setting is not known"), ('"a/b": x\n', 8, "this setting is not known"),
    ("url: x\n", 1, "this key is here twice"),
]  # fmt: skip


def test_a_fault_of_the_file_is_refused_at_its_place(tmp_path: Path) -> None:
    for line, column, reason in FAULTS:
        error = refused(tmp_path, FILE + line)
        assert str(error.place) == f"{tmp_path / 'settings.yaml'}:7:{column}"
        assert reason in error.detail


def test_a_file_of_another_version_that_is_no_map_or_not_there_is_refused(tmp_path: Path) -> None:
    assert "the file must begin with `version: 1`" in refused(tmp_path, FILE.removeprefix("version: 1\n")).detail
    for other in ("2", "1.0", '"1"'):
        assert str(refused(tmp_path, FILE.replace("version: 1", f"version: {other}")).place).endswith(":1:10")
    assert "a settings file is a map" in refused(tmp_path, "- 1\n").detail
    with pytest.raises(InputError) as error:
        read_settings(tmp_path / "nowhere.yaml", {})
    assert error.value.code is Code.FILE_UNREADABLE


def test_a_variable_that_does_not_fit_is_refused_without_its_value() -> None:
    for name in ("URL", "POLICIES", "KEYS_FOLDER", "DATA", "STORE_URL", "LISTEN_HOST"):
        assert "length >= 1" in refused_environment(**{f"ISSUER_{name}": ""}).detail
    for name, value in (
        ("LISTEN_PORT", "http"), ("LISTEN_PORT", "-1"), ("LISTEN_PORT", "65536"), ("LISTEN_PORT", ""),
        ("LISTEN_PORT", " 80"), ("LISTEN_PORT", "8_000"), ("DEVELOPMENT", "yes"), ("DEVELOPMENT", ""),
        ("DEVELOPMENT", "maybe"), ("STORE_EPOCH_LEEWAY_S", "3601"), ("STORE_EPOCH_LEEWAY_S", "-1"),
        ("LOG_WITNESSES", "hush"),
    ):  # fmt: skip
        detail = refused_environment(**{f"ISSUER_{name}": value}).detail
        assert f"ISSUER_{name}" in detail
        assert value == "" or value not in detail.replace("65535", "").replace("3600", "")


def test_the_url_of_the_service_is_plain_https_or_in_development_of_loopback() -> None:
    """The owner of another address could issue tokens that are believed."""
    for url, reason in (
        ("http://issuer.example", "must be https"), ("https://issuer.example/", "without a trailing slash"),
        ("https://issuer.example?x=1", "must be scheme, host and path"), ("https://", "must be scheme, host and path"),
        ("https://user:pw@issuer.example", "must be scheme, host and path"), ("https://[::1", "must be scheme, host"),
    ):  # fmt: skip
        assert reason in refused_environment(ISSUER_URL=url).detail
    for url in ("https://issuer.example", "https://issuer.example:8443", "https://issuer.example/a/b"):
        assert read_settings(None, {**ENVIRONMENT, "ISSUER_URL": url}).url == url

    url = "http://127.0.0.1:8000"
    assert "in development only" in refused_environment(ISSUER_URL=url).detail
    assert read_settings(None, {**ENVIRONMENT, "ISSUER_URL": url, "ISSUER_DEVELOPMENT": "true"}).url == url
    for host in ("localhost", "issuer.example", "10.0.0.1"):
        detail = refused_environment(ISSUER_URL=f"http://{host}", ISSUER_DEVELOPMENT="true").detail
        assert "at a loopback address" in detail


def test_a_passphrase_is_a_private_file_without_its_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "passphrase"
    settings = from_file(tmp_path, ISSUER_KEYS_PASSPHRASE_FILE=str(path))

    def reason() -> str:
        with pytest.raises(SetupError) as error:
            settings.passphrase()
        return error.value.detail

    assert reason().startswith("keys.passphrase_file: ")
    path.touch(0o600)
    for raw in (b"", b"\n"):
        path.write_bytes(raw)
        assert reason().startswith("keys.passphrase_file: ")
    for raw, passphrase in ((b"secret", b"secret"), (b"se cret \n", b"se cret "), (b"a\r\n", b"a")):
        path.write_bytes(raw)
        assert settings.passphrase() == passphrase
    for mode in (0o644, 0o640, 0o604, 0o660):
        path.chmod(mode)
        assert f"Run `chmod 600 {path}`" in reason()
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert "a symbolic link" in reason()


def test_a_wide_network_of_proxies_is_doubted_with_what_it_means() -> None:
    cases: list[tuple[str, list[str]]] = [
        ("", []), ("192.0.2.1, 192.0.2.0/24, 2001:db8::1, 2001:db8::/64", []), ("10.0.0.0/8", ["10.0.0.0/8"]),
        ("192.0.2.1,192.0.2.0/23 , 2001:db8::/63", ["192.0.2.0/23", "2001:db8::/63"]), ("0.0.0.0/0", ["0.0.0.0/0"]),
    ]  # fmt: skip
    for proxies, doubted in cases:
        doubts = read_settings(None, {**ENVIRONMENT, "ISSUER_LISTEN_TRUSTED_PROXIES": proxies}).doubts
        assert [doubt.split()[1] for doubt in doubts] == doubted
        assert all("can choose its source and the network of its access token" in doubt for doubt in doubts)
