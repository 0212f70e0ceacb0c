"""Settings as tests write them: by the names of variables, in small letters, as `store_url`."""

import json
from typing import Any

from issuer.service.settings.model import PREFIX, VARIABLES, Settings, put, values_of

_NAMES = {variable.removeprefix(PREFIX).lower(): name for variable, name in VARIABLES.items()}


def by_name(settings: Settings, *names: str) -> dict[str, Any]:
    values = values_of(settings)
    return {name: values[_NAMES[name]] for name in names or _NAMES}


def settings_text(**members: object) -> str:
    """Write a settings file; an unknown name stays as it is."""
    nested: dict[str, Any] = {"version": 1}
    for name, value in members.items():
        put(nested, _NAMES.get(name, name), value)
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in nested.items())
