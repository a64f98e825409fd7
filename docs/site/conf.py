"""How scripts/docs-site makes one site of the Markdown pages, as they are in the repository."""

import os
import re

project = "refdb"
html_title = "refdb"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
include_patterns = ["*.md", "docs/*.md", "js/README.md", "python/README.md", "crates/*/README.md"]
myst_heading_anchors = 4
# The pages say themselves what a block is; what says nothing is a table or a command.
highlight_language = "none"
# A block that leaves something out is no proper program, and stays as it is; headings may skip a level.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False

# The navigation. A page that is not named here is listed last.
SECTIONS = {
    "Use": ["docs/batch", "docs/json", "docs/compat", "docs/scale-out", "CHANGELOG"],
    "In other languages": ["docs/c", "docs/libgit2", "docs/python", "docs/javascript", "python/README", "js/README"],
    "Measured": ["docs/benchmarks"],
    "Inside": ["ARCHITECTURE", "docs/design", "docs/format", "docs/testing", "CONTRIBUTING"],
}


# What is on the pages that packages carry has the title of the page here.
TITLES = {
    "python/README": "The package for Python <python/README>",
    "js/README": "The package for JavaScript <js/README>",
}


def contents(pages):
    """Returns the table of contents, for the end of the first page."""
    named = {page for section in SECTIONS.values() for page in section}
    sections = SECTIONS | {"More": sorted(pages - named - {root_doc})}
    text = ""
    for title, section in sections.items():
        if section:
            lines = "\n".join(TITLES.get(page, page) for page in section)
            text += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"
    return text


def read(app, page, source):
    """Turns what means something else on a site: links out of it, and marks for other tools."""
    folder = os.path.join(app.srcdir, os.path.dirname(page))

    def link(found):
        text, target, place = found[1], found[2], found[3] or ""
        path = os.path.join(folder, target)
        if target.endswith("benchmarks.html"):
            # It has places of its own, which are not those of a page here.
            return f"[{text}]({target.removesuffix('html')}md)"
        if os.path.normpath(path) == os.path.join(app.srcdir, "README.md"):
            return f"[{text}]({target.replace('README', 'index')}{place})"
        name = os.path.relpath(path, app.srcdir).removesuffix(".md")
        is_no_page = path.endswith(".md") and name not in app.env.found_docs
        # A folder, or notes beside sources: they are not part of the site, and their name stays.
        if os.path.isdir(path) or (is_no_page and os.path.isfile(path)):
            return text
        return found[0]

    text = re.sub(r"\[([^][]*)\]\(([^()#\s]+)(#[^()\s]*)?\)", link, source[0])
    # Cargo's own words behind a language.
    text = re.sub(r"^```rust,\w+$", "```rust", text, flags=re.MULTILINE)
    if page == root_doc:
        text += contents(app.env.found_docs)
    source[0] = text


def setup(app):
    app.connect("source-read", read)
