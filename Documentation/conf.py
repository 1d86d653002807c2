# SPDX-License-Identifier: GPL-2.0
"""Configuration of Sphinx: `make htmldocs`.

Pages name each other by plain paths, such as Documentation/admin/server.rst, so that they can be
read as text. `PlainPaths` makes links of them, as the kernel's documentation does.
"""

import os
import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

project = "rpcrdma"
author = "The rpcrdma authors"
copyright = "2026, " + author  # noqa: A001 - Sphinx wants this name
with open(os.path.join(os.path.dirname(__file__), "../dkms.conf"), encoding="utf-8") as f:
    version = release = re.findall(r'^PACKAGE_VERSION="(.*)"$', f.read(), re.M)[0]
master_doc = "index"
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px", "fixed_sidebar": True}
html_copy_source = False
html_show_sourcelink = False
nitpicky = True
smartquotes = False

PATH = re.compile(r"Documentation/([\w/-]+)\.rst")


class PlainPaths(SphinxTransform):
    """Turns the path of a page in running text into a link to that page."""

    default_priority = 500

    def apply(self, **_):
        for node in list(self.document.findall(nodes.Text)):
            if isinstance(node.parent, (nodes.literal, nodes.literal_block, nodes.reference,
                                        nodes.title, addnodes.pending_xref)):
                continue
            text, at, parts = node.astext(), 0, []
            for found in PATH.finditer(text):
                parts.append(nodes.Text(text[at:found.start()]))
                link = addnodes.pending_xref(
                    "", nodes.inline("", found.group(), classes=["doc"]), refdomain="std", reftype="doc",
                    reftarget="/" + found.group(1), refexplicit=True, refwarn=True)
                link.source, link.line = node.parent.source, node.parent.line
                parts.append(link)
                at = found.end()
            if at:
                parts.append(nodes.Text(text[at:]))
                node.parent.replace(node, parts)


def setup(app):
    """Called by Sphinx."""
    app.add_transform(PlainPaths)
    return {"parallel_read_safe": True}
