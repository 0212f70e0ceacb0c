"""GitLab's processing of a component with the inputs of its user: the checks of `spec:inputs`, the interpolation of
`$[[ inputs.x ]]`, and the values of variables.

After GitLab's CI/CD inputs reference and its `lib/gitlab/ci/config`: interpolation is of the nodes of the document, not of
its text. A value that is one block alone becomes the input itself, of its type; in a longer one it is written out.
"""

import re
from collections.abc import Mapping
from typing import Any


class NoPipelineError(Exception):
    """GitLab says what is wrong with the file, and makes no pipeline."""


_BLOCK = re.compile(r"\$\[\[\s*inputs\.([A-Za-z0-9_-]+)\s*\]\]")
_TYPES: dict[str, type] = {"string": str, "boolean": bool, "array": list}


def inputs_of(spec: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return each input's value. Raises NoPipelineError for what GitLab refuses."""
    if unknown := set(given) - set(spec):
        raise NoPipelineError(f"unknown input arguments: {', '.join(sorted(unknown))}")
    return {name: _checked(name, one, given) for name, one in spec.items()}


def _checked(name: str, one: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    if name not in given and "default" not in one:
        raise NoPipelineError(f"`{name}` input: required value has not been provided")
    value, kind = given.get(name, one.get("default")), one.get("type", "string")
    if not isinstance(value, _TYPES[kind]):
        raise NoPipelineError(f"`{name}` input: provided value is not a {kind}")
    if "options" in one and value not in one["options"]:
        raise NoPipelineError(f"`{name}` input: {value} is not in the list of options")
    if "regex" in one and not re.search(one["regex"], str(value)):
        raise NoPipelineError(f"`{name}` input: provided value does not match the required regex")
    return value


def interpolate(node: Any, inputs: Mapping[str, Any]) -> Any:
    """Put the inputs into a document."""
    if isinstance(node, dict):
        return {interpolate(name, inputs): interpolate(item, inputs) for name, item in node.items()}
    if isinstance(node, list):
        return [interpolate(item, inputs) for item in node]
    if not isinstance(node, str):
        return node
    if whole := _BLOCK.fullmatch(node):
        return inputs[whole[1]]
    return _BLOCK.sub(lambda match: str(inputs[match[1]]), node)


def variables_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a job. Raises NoPipelineError unless a value is a string or an integer."""
    for name, one in job["variables"].items():
        if not isinstance(one["value"], str | int) or isinstance(one["value"], bool):
            raise NoPipelineError(f"jobs:variables:{name} config value must be an alphanumeric string")
    return {name: str(one["value"]) for name, one in job["variables"].items()}
