"""What draws the charts, put together once for all pages of a user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rffl_pl.comparison import vega


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def lock_out(file: Path) -> None:
    """As of another user's file, which can be neither read nor replaced: a folder that is not empty."""
    file.unlink()
    file.mkdir()
    (file / "mine").touch()


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[str, list[Path]]]:
    """Has it as a new process has it, and what then lies in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def ask() -> tuple[str, list[Path]]:
        vega.bundle.cache_clear()
        return vega.bundle(), [*(tmp_path / "rffl_pl").iterdir()]

    return ask


def test_it_is_put_together_once(again: Callable[[], tuple[str, list[Path]]]) -> None:
    """Every `rffl compare` takes these seconds."""
    bundle, (kept,) = again()
    assert "vegaEmbed" in bundle
    assert "</script" not in bundle
    number = kept.stat().st_ino
    assert again() == (bundle, [kept])
    assert kept.stat().st_ino == number


@pytest.mark.parametrize("damage", [cut, pytest.param(lock_out, marks=pytest.mark.slow)])
def test_what_is_kept_and_damaged(again: Callable[[], tuple[str, list[Path]]], damage: Callable[[Path], None]) -> None:
    """All pages are empty from then on."""
    bundle, (kept,) = again()
    damage(kept)
    assert again() == (bundle, [kept])
    assert again() == (bundle, [kept])
