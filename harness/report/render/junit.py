"""The cases of a document as JUnit XML, for CI systems.

Keeps to what Jenkins' schema allows (xunit-plugin, junit-10.xsd) and to what GitLab reads: it shows `classname` as the
suite, tells cases apart by classname and name alone, and shows a failure's text rather than its message. `time` is the
median time of a call in seconds, where the problem is ranked by time.
"""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from harness.core.words import clean, clean_line
from harness.report.document import Document, TestCase

NAME = "kernel-eval"


def text(found: Document) -> str:
    """A suite for each name of a suite; what is said stands in each."""
    root = ET.Element("testsuites", {"name": NAME, **_counts(found.cases)})
    names: set[tuple[str, str]] = set()
    for suite in dict.fromkeys(case.suite for case in found.cases):
        own = [case for case in found.cases if case.suite == suite]
        skipped = str(sum(case.ending == "skipped" for case in own))
        element = ET.SubElement(root, "testsuite", {"name": suite, **_counts(own), "skipped": skipped})
        if found.started_at:
            element.set("timestamp", found.started_at.partition("+")[0])  # without a zone, as Ant's format has it: UTC
        if found.properties:
            listed = ET.SubElement(element, "properties")
            for name, value in found.properties.items():
                ET.SubElement(listed, "property", name=name, value=value)
        for case in own:
            _add(element, case, names)
        if found.said:
            ET.SubElement(element, "system-out").text = "\n".join(map(clean_line, found.said))
    for element in root.iter():  # what XML cannot hold goes here, all at once
        element.text = element.text and clean(element.text)
        element.attrib = {name: clean_line(value) for name, value in element.attrib.items()}
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counts(cases: Sequence[TestCase]) -> dict[str, str]:
    endings = [case.ending for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(endings.count("failure")),
        "errors": str(endings.count("error")),
        "time": f"{sum(case.seconds or 0.0 for case in cases):.9f}",
    }


def _add(suite: ET.Element, case: TestCase, names: set[tuple[str, str]]) -> None:
    """Adds the case. Of two with one name, readers keep the first, so the second has a number."""
    name, number = clean_line(case.name), 1
    while (case.suite, name) in names:
        number += 1
        name = f"{clean_line(case.name)} ({number})"
    names.add((case.suite, name))
    element = ET.SubElement(suite, "testcase", classname=case.suite, name=name)
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.9f}")
    if case.ending != "passed":
        ending = ET.SubElement(element, case.ending, type=case.kind, message=case.message)
        ending.text = f"{clean_line(case.message)}\n{case.text}".strip()
    if case.said:
        ET.SubElement(element, "system-out").text = case.said
