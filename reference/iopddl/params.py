"""What a case of iopddl is made of: an instance, and how long a solver may take for it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Params:
    """`instance` is a file of instances/ or of the folder IOPDDL_DATA (see task.py); `limit_s` is what the solver is
    told, in seconds."""

    instance: str
    limit_s: float
