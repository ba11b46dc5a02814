"""Reads a YAML file strictly into a record. A mistake is reported with its place."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from harness.core.checkout import shown
from harness.core.decode import decode
from harness.core.errors import BadFileError
from harness.core.files import read_text

T = TypeVar("T")
MOST_DEEP = 1000  # libyaml calls itself at each level, and ends the process where its stack does: Python's raises


def read_yaml(
    kind: type[T], path: Path, root: Path | None = None, prepare: Callable[[object], object] = lambda value: value
) -> T:
    """Decodes the YAML file at `path` strictly. A key that appears twice in a mapping is an error. `prepare` gets the
    file's content before it is decoded.

    Raises BadFileError: `shapes/a2a.yaml: $.tests[2].m: ...`, or with line and column if the file is not YAML.
    """
    where = shown(path, root)
    try:
        return decode(kind, prepare(_parsed(read_text(path))))
    except FileNotFoundError:
        raise BadFileError(f"{where}: no such file; write it (the other files of that folder show how)") from None
    except OSError as error:
        raise BadFileError(f"{where}: cannot be read: {error.strerror}; check its rights") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise BadFileError(f"{where}: {at}: not YAML as expected here: {error.problem or error.context}") from None
    except RecursionError:
        raise BadFileError(f"{where}: nested too deeply; write it as the other files of that folder are") from None
    except UnicodeDecodeError as error:
        raise BadFileError(f"{where}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (yaml.YAMLError, ValueError) as error:  # DecodeError; a date or number that cannot be
        raise BadFileError(f"{where}: {error}") from None


def _parsed(text: str) -> object:
    loader = yaml.SafeLoader(text) if _may_be_deep(text) else getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_repeated_keys(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _may_be_deep(text: str) -> bool:
    """Whether the text may nest more than MOST_DEEP levels, by its brackets, in strings too, and by lists on a line."""
    depth = 0
    for char in re.findall(r"[\[\]{}]", text):
        depth = max(0, depth + (1 if char in "[{" else -1))
        if depth > MOST_DEEP:
            return True
    return re.search(rf"(?:[-?:]\s+){{{MOST_DEEP}}}", text) is not None


def _refuse_repeated_keys(root: yaml.Node) -> None:
    stack, seen = [root], {id(root)}
    while stack:
        node = stack.pop()
        children = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                children += [key, value]
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in keys:
                    problem = f"the key '{key.value}' appears twice in one mapping; remove one"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                keys.add(key.value)
        for child in children:
            if id(child) not in seen:  # an alias may be of a node that holds it
                seen.add(id(child))
                stack.append(child)
