"""What tests of the sandbox share."""

import platform
import sys

import pytest

from paribus.downstream import sandbox


@pytest.fixture(scope="session")
def sandboxed() -> None:
    """Skips where the kernel lacks what a sandbox needs; any other refusal on a machine that should do is a failure."""
    try:
        sandbox.require()
    except sandbox.SandboxError as error:
        lacking = sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64")
        if lacking or "the kernel" in error.received:
            pytest.skip(f"no sandbox here: {error.received}")
        raise


@pytest.fixture
def unproven() -> object:
    """A test in which the machine has not been tried yet, and after which it has not either."""
    sandbox.require.cache_clear()
    yield
    sandbox.require.cache_clear()
