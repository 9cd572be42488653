"""The explorer: a local server with a typed JSON API, and one page that shows what it answers."""
