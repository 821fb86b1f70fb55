"""The host of a web address: what a split by host keeps together."""

from urllib.parse import urlsplit


def host_of(url: str) -> str | None:
    """Host name in lower case, without port, user, final dot and a leading `www.`; None where the address has none.

    `www.` goes because a site usually answers to both names: kept, the same page would reach the training split under
    the one and the test split under the other. It stays where nothing but a top-level domain would be left.
    """
    address = url.strip()
    try:
        host = urlsplit(address if "//" in address else f"//{address}").hostname
    except ValueError:
        return None
    host = (host or "").rstrip(".")
    bare = host.removeprefix("www.")
    return (bare if "." in bare else host) or None
