"""keys/README.md, as one story: a first key, its rotation, a theft, a loss, and keys that cannot be copied."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from issuer.service.signing.keyring import read_key_file
from tests.support.key_times import pass_time
from tests.support.pages.blocks import Block
from tests.support.pages.story import Story, World
from tests.support.settings import settings_text

PAGE = "keys/README.md"
WITH_TOOLS = ("Keys that cannot be copied", "A backup with a quorum")
TOOLS = ("softhsm2-util", "pkcs11-tool", "ssss-split")
SETTINGS = settings_text(
    url="https://issuer.example", policies="policies", keys_folder="keys", data="data", store_url="embedded"
)


@contextmanager
def desk(folder: Path) -> Iterator[World]:
    """Give an operator's folder, with the settings of the service."""
    (folder / "settings.yaml").write_text(SETTINGS)
    yield World(folder)


@contextmanager
def desk_with_token(folder: Path) -> Iterator[World]:
    """Give tokens of this story alone. The paths of their module and their PIN are this machine's."""
    from tests.support.softhsm import configure, module

    pin = folder / "pin"
    pin.touch(0o600)
    pin.write_text("4711-pin\n")
    with desk(folder) as world:
        world.here |= {"/usr/lib/softhsm/libsofthsm2.so": str(module()), "/etc/issuer/pin": str(pin)}
        world.env["SOFTHSM2_CONF"] = str(configure(folder.parent / "softhsm"))
        yield world


def later(world: World, block: Block, seconds: str) -> None:
    pass_time(world.folder / "data", int(seconds))


def read(world: World, block: Block) -> None:
    """Read the file of a key, as the service does."""
    read_key_file(block.text.encode(), "key.yaml")


NOTES: Mapping[str, Callable[..., object]] = {r"(\d+) s later": later, "a key in AWS KMS": read}
STORIES = (Story(PAGE, desk, NOTES, but=WITH_TOOLS), Story(PAGE, desk_with_token, NOTES, tools=TOOLS))
