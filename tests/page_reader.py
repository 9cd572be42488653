"""What a page holds: its tags with their attributes, and the text of its body."""

from __future__ import annotations

from html.parser import HTMLParser


class Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def having(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of all tags that have this one."""
        return [attributes for _, attributes in self.tags if name in attributes]
