"""A document as one HTML page, which loads nothing."""

from collections.abc import Iterator
from html import escape
from itertools import chain

from harness.report.document import Document, EvidenceBlock, Facts, Figure, Heading, Prose, Table, Words, plain

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222;
overflow-wrap: break-word } .wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: left }
th { border-bottom: 1px solid #888 } .right { text-align: right } pre { overflow-x: auto }
svg { width: 100%; height: auto } .line { fill: none; stroke: #2563eb; stroke-width: 2 }
.band { fill: #2563eb22 } .axis { stroke: #888 } text { font-size: 11px; fill: #555 }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } text { fill: #aaa } }
"""
POLICY = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"

VIEWPORT = '<meta name=viewport content="width=device-width, initial-scale=1">'  # else phones show a desktop's width


def text(found: Document) -> str:
    """The page; its title is the first heading."""
    title = next((plain(one.words) for one in found.blocks if isinstance(one, Heading)), "kernel-eval")
    head = f"<!doctype html><html lang=en><meta charset=utf-8>{POLICY}{VIEWPORT}<title>{escape(title)}</title>"
    return f"{head}<style>{STYLE}</style>" + "\n".join(chain.from_iterable(map(_block, found.flat))) + "</html>\n"


def _block(block: object) -> Iterator[str]:
    match block:
        case Heading(words=words):
            yield f"<h2>{_text(words)}</h2>"
        case Prose(lines=lines):
            yield f"<p>{'<br>'.join(map(_text, lines))}</p>"
        case Facts(rows=rows):
            facts = (f"<tr><th>{_text(name)}</th><td>{_text(words)}</td></tr>" for name, words in rows)
            yield f"<div class=wide><table>{''.join(facts)}</table></div>"
        case EvidenceBlock(heading=heading, lines=lines):
            yield f"<p>{_text(heading)}</p><pre>{escape(chr(10).join(lines))}</pre>"
        case Figure(svg=svg, caption=caption):
            yield f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        case Table():
            yield _table(block)


def _table(found: Table) -> str:
    shown = [(index, ' class="right"' if found.laid[index].right else "") for index in found.wide]
    head = "".join(f"<th{right}>{_text(found.laid[index].name)}</th>" for index, right in shown)
    rows = ("".join(f"<td{right}>{_text(row[index])}</td>" for index, right in shown) for row in found.rows)
    said = "; ".join(text for _, text in found.legend)
    notes = "".join(f"<p>{_text(one)}</p>" for one in (found.letters, said) if one)
    return f"<div class=wide><table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></div>{notes}"


def _text(words: Words) -> str:
    return escape(plain(words)).replace("\n", "<br>")
