"""A page of the report, read as the tests ask of it."""

from __future__ import annotations

from html.parser import HTMLParser

LINKS = {"Dagster run": "http://localhost:3000/runs/1", "Commit": "https://example.org/c/1"}
VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Reads a page and notes what the tests ask for; unbalanced tags fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]
