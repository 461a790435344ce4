"""How the documentation is built: from Markdown, without the network, and with warnings as errors."""

from __future__ import annotations

import greenroom

project = "greenroom"
author = "the greenroom authors"
copyright = author  # noqa: A001 - Sphinx reads it under this name
release = greenroom.__version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
# A new page is found by its section's glob in index.md; the build complains of a page that no section takes.
nitpicky = True

# Every heading down to the third can be linked to, so that a link to a section that is gone is found by the build.
myst_heading_anchors = 3
# A link that starts with a scheme leads outside; everything else must exist here.
myst_url_schemes = ["http", "https", "mailto"]

html_theme = "furo"
html_title = "greenroom"
html_show_sphinx = False
html_copy_source = False
