"""A page as its reader sees it."""

import html.parser
import re


class Reader(html.parser.HTMLParser):
    """Rows of cells of every table by caption, the text, the attributes, and whether elements close in order."""

    VOID = {"meta"}

    def __init__(self, text):
        super().__init__()
        self.tables, self.attributes, self.headings, self.open, self.text = {}, [], [], [], ""
        self.cell = self.rows = None
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, key, value) for key, value in attributes]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = []
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td", "caption"):
            self.cell = ""
        elif re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag, attributes):
        self.attributes += [(tag, key, value) for key, value in attributes]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "caption":
            self.tables[" ".join(self.cell.split())] = self.rows
        elif tag in ("th", "td"):
            self.rows[-1].append(" ".join(self.cell.split()))
        if tag in ("th", "td", "caption"):
            self.cell = None

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if self.cell is not None:
            self.cell += data

    def table(self, caption):
        (rows,) = (rows for name, rows in self.tables.items() if name.startswith(caption))
        return rows
