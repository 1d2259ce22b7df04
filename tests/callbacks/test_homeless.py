"""Where the standalone reference is kept when its user has no home, as in a container."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from rffl_pl.callbacks import StandaloneReference


def test_who_has_no_home_keeps_references_with_what_is_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    """All the rounds are played by then: nothing may fail for want of a folder."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert StandaloneReference()._folder() == Path(tempfile.gettempdir()) / "rffl_pl" / "standalone"
    assert StandaloneReference(cache_dir="mine")._folder() == Path("mine")
