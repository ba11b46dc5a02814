"""The tables of a document as CSV, an empty line between them; of one without tables, its facts."""

import csv
import io

from harness.report.document import Document, Facts, Table, plain


def text(found: Document) -> str:
    """A line of names, then a row a line. Cells are what people read, with their units."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    tables = [one for one in found.flat if isinstance(one, Table)]
    for index, one in enumerate(tables):
        out.write("\n" if index else "")
        writer.writerow(one.laid[at].name for at in one.wide)
        writer.writerows([plain(row[at]) for at in one.wide] for row in one.rows)
    if not tables:
        writer.writerows(
            [plain(name), plain(words)] for one in found.flat if isinstance(one, Facts) for name, words in one.rows
        )
    return out.getvalue()
