"""A page from its parts: the document, the style sheets, our scripts, and the libraries that they use."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files
from typing import Any

from graphpar.viz.heading import Heading
from graphpar.viz.page.document import document
from graphpar.viz.picture import Picture

LIBRARIES = ("svg-pan-zoom.js", "tabulator.js", "chart.js")
LAYOUT = "graphviz.js"  # a module: it is loaded when the first graph is drawn
SCRIPTS = ("basics", "card", "graph", "tree", "code", "collectives", "memory", "schedule", "ranks", "search", "start")


def page(picture: Picture, heading: Heading, text: str) -> str:
    """The page of a build whose model.py is `text`. The same build gives the same bytes."""
    data = as_script(document(picture, heading, text))
    return _read("page.html").format(
        title=escape(heading.model),
        style="\n".join(f"<style>\n{sheet}</style>" for sheet in (_library("tabulator.css"), _read("page.css"))),
        data=f'<script type="application/json" id="build">{data}</script>',
        layout=f'<script type="text/plain" id="layout">\n{_library(LAYOUT)}</script>',
        scripts="\n".join(
            f"<script>\n{script}</script>"
            for script in (*map(_library, LIBRARIES), *(_read(f"{name}.js") for name in SCRIPTS))
        ),
    )


def as_script(data: Any) -> str:
    """JSON that no name in it can end, nor open a comment, in the script element around it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("</", "<\\/").replace("<!--", "\\u003c!--")


def _library(name: str) -> str:
    """The text of a library without the mark of its map, which is not here."""
    return re.sub(r"\n?(//|/\*)# sourceMappingURL=.*", "", _read(f"vendor/{name}"))


def _read(name: str) -> str:
    return files("graphpar.viz.page").joinpath(name).read_text(encoding="utf-8")
