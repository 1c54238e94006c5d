"""A hub on loopback that the real client believes in, and an empty models folder."""

import pytest

from judge_local.models.sources import web
from judge_local.models.store import Store
from models.fakes import serving


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(web, "PAUSES_SECONDS", (0.0, 0.0))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")
