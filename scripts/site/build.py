"""Builds the site from the Markdown of this repository and from rustdoc, and checks its links.

    build.py --api target/doc --out target/site

GitHub shows the same files: headings get GitHub's anchors, and links to files that are no page go
to the repository. `src/lib.rs` stands for the API: a link to `src/lib.rs#struct.Pool.html` goes to
that page of rustdoc's. A link to a page, heading, file or item that is not there is an error.
"""

import argparse
import html
import json
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urldefrag, unquote

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
API = ROOT / "src/lib.rs"
REPOSITORY = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
TEXTS = ("text", "code_inline")
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)


def find_pages():
    """Returns the name of each page, by its Markdown file."""
    pages = {ROOT / "README.md": "index", ROOT / "docs/README.md": "pages"}
    for name in ["CHANGELOG", "CONTRIBUTING", "SECURITY"]:
        pages[ROOT / f"{name}.md"] = {"SECURITY": "vulnerabilities"}.get(name, name.lower())
    for path in sorted((ROOT / "docs").glob("*.md")):
        pages.setdefault(path, path.stem)
    return pages


def slug(text, seen):
    """Returns GitHub's anchor of a heading."""
    name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    count = seen[name] = seen.get(name, -1) + 1
    return f"{name}-{count}" if count else name


def plain(token):
    """Returns the text of a paragraph, a heading or a block of code."""
    if token.children is None:
        return token.content
    words = (word for word in token.children if not word.nesting)
    return "".join(word.content if word.type in TEXTS else " " for word in words)


def colored(code, language, _attributes):
    language = language.split(",")[0]
    try:
        lexer = get_lexer_by_name({"sh": "bash"}.get(language, language))
    except ClassNotFound:
        return html.escape(code)
    return highlight(code, lexer, HtmlFormatter(nowrap=True))


class Site:
    def __init__(self, api):
        self.api = api
        self.pages = find_pages()
        self.problems = []
        self.links = 0
        self.anchors = {}  # by page
        self.wanted = []  # source, page, anchor
        self.entries = []  # of the search: title, heading, target, text
        self.markdown = MarkdownIt("commonmark", {"highlight": colored}).enable("table")

    def target(self, source, link):
        """Returns where a link of a file goes on the site."""
        link, anchor = urldefrag(link)
        if re.match(r"[a-z]+:", link):
            return link + (f"#{anchor}" if anchor else "")
        path = (source.parent / unquote(link)).resolve() if link else source
        if path == API:
            item = f"fiber/{anchor or 'index.html'}"
            if not (self.api / item).exists():
                self.problems.append(f"{source}: the API has no {item}")
            return f"api/{item}"
        if path in self.pages:
            self.wanted.append((source, self.pages[path], anchor))
            return f"{self.pages[path]}.html" + (f"#{anchor}" if anchor else "")
        if not path.exists():
            self.problems.append(f"{source}: there is no {link}")
        if path.is_relative_to(ROOT / "docs/images"):
            return f"images/{path.name}"
        kind = "tree" if path.is_dir() else "blob"
        place = f"{REPOSITORY}/{kind}/main/{path.relative_to(ROOT)}"
        return place + (f"#{anchor}" if anchor else "")

    def render(self, source):
        """Returns the title and the HTML of a page."""
        text = source.read_text()
        tokens = self.markdown.parse(text)
        page, seen = self.pages[source], {}
        anchors = self.anchors[page] = set(re.findall(r'<a id="([^"]+)">', text))
        title = TITLE.search(text).group(1).replace("`", "")
        for index, token in enumerate(tokens):
            if token.type == "heading_open":
                heading = plain(tokens[index + 1])
                anchor = slug(heading, seen)
                anchors.add(anchor)
                token.attrSet("id", anchor)
                self.entries.append([title, heading, f"{page}.html#{anchor}", ""])
            elif token.type == "fence" or (
                token.type == "inline" and tokens[index - 1].type != "heading_open"
            ):
                self.entries[-1][3] += " " + plain(token)
            for child in token.children or []:
                for name in ("href", "src"):
                    if child.attrGet(name):
                        self.links += 1
                        child.attrSet(name, self.target(source, child.attrGet(name)))
        body = self.markdown.renderer.render(tokens, self.markdown.options, {})
        self.check_search(source, body)
        body = body.replace("<table>", '<div class="table"><table>')
        return title, body.replace("</table>", "</table></div>")

    def check_search(self, source, body):
        """Checks that the search finds each word of a page."""
        page = f"{self.pages[source]}.html#"
        parts = (part for entry in self.entries if entry[2].startswith(page) for part in entry)
        shown = html.unescape(re.sub(r"<[^>]*>", "", body))
        lost = set(re.findall(r"\w+", shown)) - set(re.findall(r"\w+", " ".join(parts)))
        self.problems.extend(f"{source}: the search does not find {word}" for word in lost)

    def navigation(self):
        """Returns the list of pages: the tables of docs/README.md."""
        parts, source = [], ROOT / "docs/README.md"
        for line in source.read_text().splitlines():
            if line.startswith("## "):
                parts.append((line[3:], []))
            elif match := re.match(r"\| \[(.*?)\]\((.*?)\)", line):
                parts[-1][1].append((match[1].replace("`", ""), self.target(source, match[2])))
        return parts

    def link_api(self, out):
        """Lets the API's links to pages of the repository go to those of the site."""
        for source in (out / "api").rglob("*.html"):
            up = "../" * (len(source.relative_to(out).parts) - 1)

            def here(match):
                self.links += 1
                page = self.pages.get(ROOT / match[1])
                if page is None:
                    self.problems.append(f"{source}: there is no page {match[1]}")
                return f"{up}{page}.html"

            text = source.read_text()
            linked = re.sub(rf"{re.escape(REPOSITORY)}/blob/main/([\w./-]*\w)", here, text)
            if linked != text:
                source.write_text(linked)

    def check_anchors(self):
        for source, page, anchor in self.wanted:
            if anchor and unquote(anchor) not in self.anchors[page]:
                self.problems.append(f"{source}: {page} has no #{anchor}")


def copy_api(api, out):
    """Copies rustdoc's pages, without those of other crates in a shared target directory."""
    kept = ("fiber", "static.files", "search", "src", "trait.impl", "type.impl")

    def others(folder, names):
        return [
            name
            for name in names
            if Path(folder) == api and (api / name).is_dir() and not name.startswith(kept)
        ]

    shutil.copytree(api, out, ignore=others)
    # The sidebar lists each crate that was documented. One of them is public.
    crates = out / "crates.js"
    crates.write_text(re.sub(r"\[.*?\]", '["fiber"]', crates.read_text(), count=1))


def style():
    """Returns the style sheet, with the colors of code in light and dark."""
    schemes = [("default", ":root"), ("github-dark", "[data-theme=dark]")]
    colors = [
        HtmlFormatter(style=name).get_style_defs(f"{root} pre code") for name, root in schemes
    ]
    return "\n".join([*colors, (HERE / "style.css").read_text()])


def list_of(entries, here):
    """Returns the links of one part of the navigation."""
    items = ""
    for name, target in entries:
        mark = ' class="here"' if target == here else ""
        items += f'<li><a href="{target}"{mark}>{html.escape(name)}</a>'
    return f"<ul>{items}</ul>"


def write(site, out):
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs/images", out / "images")
    copy_api(site.api, out / "api")
    site.link_api(out)
    (out / "style.css").write_text(style())
    shutil.copy(HERE / "site.js", out)
    template = (HERE / "page.html").read_text()
    parts = site.navigation()
    for source, page in site.pages.items():
        title, body = site.render(source)
        here = f"{page}.html"
        values = {
            "title": html.escape(title),
            "nav": "".join(f"<h2>{name}</h2>{list_of(entries, here)}" for name, entries in parts),
            "body": body,
            "repository": REPOSITORY,
            "source": f"{REPOSITORY}/blob/main/{source.relative_to(ROOT)}",
        }
        filled = re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template)
        (out / here).write_text(filled)
    entries = [[*entry[:3], entry[3].strip()] for entry in site.entries]
    (out / "search.js").write_text(f"const ENTRIES = {json.dumps(entries, ensure_ascii=False)};")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--api", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not (options.api / "fiber/index.html").exists():
        sys.exit(f"site: {options.api} has no pages of the crate fiber: run `make site`")
    site = Site(options.api)
    write(site, options.out)
    site.check_anchors()
    for problem in site.problems:
        print(f"broken: {problem}", file=sys.stderr)
    counts = f"{len(site.pages)} pages, {site.links} links, {len(site.problems)} broken"
    print(f"{counts}: {options.out}/index.html")
    sys.exit(bool(site.problems))


main()
