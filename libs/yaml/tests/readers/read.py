"""Reads YAML with PyYAML: a JSON array of texts on standard input, a JSON array of their values on standard output.

usage: read.py SafeLoader|CSafeLoader

A value that JSON has not is shown as {"not JSON": its type and text}, a text that is refused as {"refused": the reason}.
"""

import json
import sys

import yaml

loader = getattr(yaml, sys.argv[1])


def shown(value):
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict) and all(type(key) is str for key in value):
        return {key: shown(item) for key, item in value.items()}
    if value is None or type(value) in (bool, str, int):
        return value
    if type(value) is float and value == value and abs(value) != float("inf"):
        return value
    return {"not JSON": f"{type(value).__name__} {value}"}


def read(text):
    try:
        return shown(yaml.load(text, Loader=loader))
    except Exception as error:
        return {"refused": str(error).split("\n")[0]}


json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
