"""The digits, as they are shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from rffl_pl.datamodules.digits import shipped


@pytest.mark.parametrize("there", [True, False])
def test_as_scikit_learn_loads_them(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other images, another order, or a scikit-learn that keeps its file elsewhere ends a run."""
    if not there:
        monkeypatch.setattr(Path, "is_file", lambda file: False)
    images, labels = shipped()
    x, y = load_digits(return_X_y=True)
    assert torch.equal(images, torch.tensor(x, dtype=torch.float32))
    assert torch.equal(labels, torch.tensor(y))
