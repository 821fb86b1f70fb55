"""A hub on loopback, and nothing else that a client could reach or know."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants

from tests.data.sources.hub.hub_server import HubServer, Serve


@pytest.fixture
def alone_with_loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No token, cache, proxy or setting of the machine that runs the tests."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / ".no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield
    close_session()


@pytest.fixture
def serve(alone_with_loopback: None) -> Iterator[Serve]:
    del alone_with_loopback
    servers: list[HubServer] = []

    def start(*arguments: object, **keywords: object) -> HubServer:
        servers.append(HubServer(*arguments, **keywords))  # pyright: ignore[reportArgumentType]
        return servers[-1]

    yield start
    for server in servers:
        server.close()
