"""How a user's own classes are written."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path

import pytest

from rffl_pl.runs.written import sources


def test_a_class_is_how_its_file_and_what_that_imports_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference is not trained again for a file beside that is not imported, but is for one that is."""
    layer = "from torch import nn\n{}\n\n\nclass Scaled(nn.Linear):\n    pass\n"
    (tmp_path / "inner_for_sources").mkdir()
    written = {
        "lone_for_sources.py": layer.format(""),
        "helped_for_sources.py": layer.format("from helper_for_sources import SCALE"),
        "inner_for_sources/__init__.py": "",
        "inner_for_sources/helped.py": layer.format("from .helper import SCALE"),
        "inner_for_sources/helper.py": "SCALE = 1\n",
        "helper_for_sources.py": "SCALE = 1\n",
    }
    for name, source in written.items():
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    rooms = ("lone_for_sources", "helped_for_sources", "inner_for_sources.helped")
    lone, helped, inner = (importlib.import_module(room).Scaled for room in rooms)
    before = sources([lone, helped, inner])
    assert before == sources([lone, helped, inner])
    assert before["lone_for_sources.Scaled"] == hashlib.sha256(written[f"{rooms[0]}.py"].encode()).hexdigest()[:12]
    (tmp_path / "helper_for_sources.py").write_text("SCALE = 2\n")
    after = sources([lone, helped, inner])
    assert {name for name in before if before[name] != after[name]} == {"helped_for_sources.Scaled"}
    (tmp_path / "inner_for_sources" / "helper.py").write_text("SCALE = 2\n")
    assert sources([inner]) != {name: after[name] for name in sources([inner])}
