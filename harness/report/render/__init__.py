"""A document in every format: a format is a module here and a line of FORMATS. On a terminal, `terminal.show` shows it.

JSON is no format of a document: it is the record that the document is made of.
"""

from collections.abc import Callable

from harness.report.document import Document
from harness.report.render import csv, html, junit, markdown

FORMATS: dict[str, Callable[[Document], str]] = {
    "markdown": markdown.text,
    "csv": csv.text,
    "html": html.text,
    "junit": junit.text,
}
