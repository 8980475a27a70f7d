"""Fixtures for tests of the Hub: a repository for each."""

import huggingface_hub
import pytest


@pytest.fixture
def repo(hub, request):
    """Return the name of a repository that does not exist yet."""
    hub.failures.clear()
    hub.multipart_over, hub.commit_operations, hub.page = None, None, 1000
    hub.blobs.clear()
    hub.reset()
    huggingface_hub.HfFileSystem.clear_instance_cache()
    return f"me/{request.node.name[5:].replace('[', '-').replace(']', '')[:80].rstrip('_-')}"
