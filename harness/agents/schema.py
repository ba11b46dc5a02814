"""The JSON Schema of a result, made of the records themselves: docs/result.schema.json is this, written down.

`python -m harness.agents.schema` prints it.
"""

import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from harness.agents.result import SCHEMA, Result

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def json_schema() -> dict[str, Any]:
    """The schema of a result as JSON, version SCHEMA. Readers should accept keys that they do not know: a result gains
    keys without a new version."""
    shared: dict[str, Any] = {}
    top = _record(Result, shared)
    top["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": DIALECT, "title": f"kernel-eval result, version {SCHEMA}", **top, "$defs": shared}


def _record(kind: Any, shared: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {field.name: _type(hints[field.name], shared) for field in dataclasses.fields(kind)},
        "required": [field.name for field in dataclasses.fields(kind)],
    }


def _type(kind: Any, shared: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        name = kind.__name__ if isinstance(kind, type) else str(kind)
        if name not in shared:
            shared[name] = {}  # which a record that has itself in it would find
            shared[name] = _record(kind, shared)
        return {"$ref": f"#/$defs/{name}"}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(one, shared) for one in args]}
    if origin is tuple:
        return {"type": "array", "items": _type(args[0], shared)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type(args[1], shared)}
    return {"type": PLAIN[kind]}


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
