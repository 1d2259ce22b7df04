"""Nothing of the environment is written down: keys and passwords live there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ended, only_run

SECRETS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "hf_the_token_that_nobody_may_read",
    "A_PASSWORD_OF_MINE": "correct horse battery staple",
}


def test_no_secret_is_left_behind(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of the environment stands in a log, a configuration, a checkpoint, W&B's files or what is printed."""
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("WANDB_MODE", "offline")
    ended = rffl(
        "fit", "--config", "configs/digits.yaml", "--trainer.max_epochs", 1, "--trainer.enable_progress_bar", "false",
        "--run.figures", "false",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".yaml", ".csv", ".pt", ".json"}
    assert any("wandb" in path.parts for path in files)
    assert (folder / "config.yaml") in files
    for name, secret in SECRETS.items():
        assert [path for path in files if secret.encode() in path.read_bytes()] == [], name
        assert secret not in ended.out + ended.err
