"""Bytes as people read them."""


def in_words(size: int) -> str:
    """In powers of ten, one decimal."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} B"
