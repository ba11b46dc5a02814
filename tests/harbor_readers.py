"""Reads a folder of Harbor tasks with the readers that are installed beside this interpreter; prints what they found.

tests/agents/test_agents_harbor.py runs it with another interpreter: harbor needs Python 3.12, and none of them is
needed else.
"""

import json
import sys
from pathlib import Path


def by_harbor(folder: Path) -> dict[str, object]:
    """harbor's own loader."""
    from harbor.models.task.task import Task
    from harbor.models.task.verifier_mode import resolve_verifier_environment_definition

    task = Task(folder)
    verifier = resolve_verifier_environment_definition(task.config, task.paths)
    return {
        "name": task.name,
        "instruction": task.instruction,
        "verifier": verifier.directory.name if verifier else "shared",
        "script": str(task.paths.discovered_test_path_for(task.config.environment.os).name),
    }


def by_verifiers(folder: Path) -> dict[str, object]:
    """verifiers' HarborTaskset, which builds no Dockerfile."""
    from verifiers.v1.tasksets.harbor.taskset import HarborConfig, parse_task

    data = parse_task(folder, 0, HarborConfig(ignore_dockerfile=True))
    verifier = "tests" if data.verifier is not None else "shared"
    return {"name": data.name, "instruction": data.prompt, "verifier": verifier}


def by_inspect(folder: Path) -> dict[str, object]:
    """inspect-harbor's reader of a task's folder, and its sample for inspect-ai."""
    from inspect_harbor._harbor.converters import harbor_task_to_sample
    from inspect_harbor._harbor.task_dir import HarborTask

    task = HarborTask(folder)
    sample = harbor_task_to_sample(task)
    return {"name": task.name, "instruction": sample.input, "files": sorted(sample.files or ())}


READERS = {"harbor": by_harbor, "verifiers": by_verifiers, "inspect": by_inspect}

if __name__ == "__main__":
    folders = sorted(Path(sys.argv[1]).iterdir())
    print(json.dumps({name: [read(folder) for folder in folders] for name, read in READERS.items()}))
