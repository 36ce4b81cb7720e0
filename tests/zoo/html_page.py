"""An HTML page, parsed: its elements, its text, the rows of its tables."""

from __future__ import annotations

from html.parser import HTMLParser


class ParsedPage(HTMLParser):
    """Every element with its attributes, and all text by the element it stands in."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.content = content
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.rows: dict[str, list[str]] = {}  # id of a row → the text of its cells
        self.heads: list[str] = []
        self._row: list[str] | None = None
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "tr":
            self._row = self.rows.setdefault(found["id"], []) if "id" in found else None
        elif tag in ("td", "th") and self._row is not None:
            self._row.append("")
        elif tag == "th":
            self.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._row = None

    def handle_data(self, data: str) -> None:
        tag = self.elements[-1][0] if self.elements else ""
        self.texts.append((tag, data))
        if tag in ("style", "script"):
            return
        if self._row:
            self._row[-1] += data
        elif tag == "th" and not self._row:
            self.heads[-1] += data.strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("style", "script"))

    def cell(self, name: str, head: str) -> str:
        """What stands in the row of a value below a heading."""
        return self.rows[name][self.heads.index(head)].strip()
