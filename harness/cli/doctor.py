"""Say what on this machine changes results. Reads only, never changes a setting."""

from dataclasses import dataclass

from harness.cli import result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.machine.doctor import doctor, read
from harness.report.findings import document_of, to_json


@dataclass(frozen=True, kw_only=True)
class DoctorOrder(result_files.WithFiles):
    json: result_files.ResultFile | None = result_files.result_file(
        "json",
        "write the findings to FILE as one JSON object; - or no FILE writes it to standard output instead of the table",
        nargs="?",
        const=result_files.STDOUT,
    )
    smoke: bool | None = option(
        None, "run the smoke test of the collectives (default: where there are two GPUs or more)"
    )


def run(order: DoctorOrder, checkout: Checkout) -> Exit:
    """`doctor`: reads, checks, prints; Exit.ERROR where a check fails."""
    found = read(order.smoke, root=checkout.root)
    findings = doctor(found)
    code = Exit.ERROR if any(one.status == "fail" for one in findings) else Exit.OK
    return result_files.tell(order, document_of(findings), code, json=lambda: to_json(found, findings))
