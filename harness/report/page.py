"""The verb `page`: the leaderboard and what lies behind each entry as one HTML file that needs nothing else.

Knows how the file is put together. page_data has what is on it; how it looks is in assets/.

Charts: Observable Plot 0.6.17 on D3 7.9.2 (ISC, 490 kB together, in assets/ as npm publishes them). They draw SVG: it
takes its colours from CSS, so that light and dark need no second drawing, can be read out, and is sharp on every
screen. Logarithmic axes, facets and rules at a value, which is most of what is shown here, are one line each. uPlot
(50 kB) and Chart.js (200 kB) draw on a canvas, which has none of that; ECharts and Plotly's basic bundle do, in 1 MB or
more.

Names and messages are whatever somebody wrote. They reach the page as JSON in which no `<` stands for itself, the
script puts them there as text, never as HTML, and a Content-Security-Policy lets only the scripts of this file run and
nothing be fetched.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.core.decode import encode
from harness.core.words import clean_line
from harness.report.page_data import Page

ASSETS = Path(__file__).resolve().parent / "assets"
SCRIPTS = ("d3-7.9.2.min.js", "plot-0.6.17.umd.min.js", "text.js", "curves.js", "charts.js", "page.js")  # in this order
TEMPLATE, STYLE = "page.html", "page.css"
LIVE_SCRIPT, LIVE_STYLE, LIVE_PART = "live.js", "live.css", "live.html"  # of the page that `serve` shows


def data(page: Page) -> Any:
    """The page's data as JSON has it. Every text in it is one line that is safe to show."""
    return clean_data(encode(page))


def clean_data(value: Any) -> Any:
    """The JSON value with texts that are one line each and safe to show."""
    if isinstance(value, dict):
        return {clean_line(key): clean_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_data(item) for item in value]
    return clean_line(value) if isinstance(value, str) else value


def html(page: Page, live: str = "", contests: Sequence[tuple[str, str]] = ()) -> str:
    """The whole file: the template with style, data and scripts in their places. `live` is the version of the boards
    on a page that a server keeps up to date; only that one may fetch, and from its server alone. `contests` are
    addresses and names of contests' pages."""
    part = _asset(LIVE_PART).replace("{{version}}", live) if live else ""
    scripts = (*SCRIPTS, *([LIVE_SCRIPT] if live else []))
    styles = (STYLE, *([LIVE_STYLE] if live else []))
    links = " ".join(f'<a href="{escape(where)}">{escape(clean_line(name))}</a>' for where, name in contests)
    nav = f'<nav id="contests" aria-label="Contests">Contests: {links}</nav>\n' if contests else ""
    return assembled(TEMPLATE, data(page), styles, scripts, bool(live), {"live": part, "contests": nav})


def assembled(
    template: str,
    shown: object,
    styles: Sequence[str],
    scripts: Sequence[str],
    fetches: bool = False,
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """An HTML file of assets: the template with data that is safe to show, styles and scripts in their places, and with
    `more` parts, which are HTML. Only a page that `fetches` may, and from its server alone."""
    texts = [_asset(name) for name in scripts]
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {' '.join(map(_hash, texts))}"
    parts = {
        "policy": f"{policy}; connect-src 'self'" if fetches else policy,
        "style": "".join(map(_asset, styles)),
        **more,
        "data": script_json(shown),
        "scripts": "\n".join(f"<script>{script}</script>" for script in texts),
    }
    # one pass over the template, so that a part that has such a word in it stays as it is
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset(template))


def script_json(value: object) -> str:
    """JSON that can stand inside <script>: without `<`, `>` and `&`, no text ends the script."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped too
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The script's name in a Content-Security-Policy. https://www.w3.org/TR/CSP3/#grammardef-hash-source"""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
