"""Other readers of YAML: a text that we read must be the same value to each of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import yaml
from ruamel.yaml import YAML


def ruamel(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


# PyYAML in Python alone and with libyaml; js-yaml, yaml and our reader in JavaScript are in other tests.
READERS: list[Callable[[str], Any]] = [yaml.safe_load, partial(yaml.load, Loader=yaml.CSafeLoader), ruamel]


# js-yaml and yaml themselves, each value with its type; a value that JSON lacks is given by name.
JAVASCRIPT = """
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const read = (load, text) => { try { const value = load(text);
  return JSON.parse(JSON.stringify(value, (_, v) => typeof v === 'number' && !Number.isFinite(v) ? {other: String(v)} :
    v instanceof Date ? {other: 'date'} : v)) } catch (error) { return {other: 'error'} } };
const one = require('js-yaml').load, two = require('yaml').parse;
console.log(JSON.stringify(texts.map(text => [read(one, text), read(text => two(text), text)])));
"""


def same(ours: Any, theirs: Any) -> bool:
    """Compare as JSON does: numbers by value, but never a bool or a date for a number or text."""
    if isinstance(ours, bool) or isinstance(theirs, bool) or not isinstance(ours, int | float):
        if isinstance(ours, dict) and isinstance(theirs, dict):
            return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
        if isinstance(ours, list) and isinstance(theirs, list):
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        return type(ours) is type(theirs) and bool(ours == theirs)
    return isinstance(theirs, int | float) and ours == theirs
