"""What happens in the middle of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from rffl_pl.launch.stopping import Stopped
from rffl_pl.runs import checkpoint, durable


class Ended:
    """A file in whose second write somebody asks for the end, as by Ctrl-C."""

    def __init__(self, file: BinaryIO, how: BaseException) -> None:
        self.file, self.how, self.writes = file, how, 0

    def write(self, data: Any) -> int:
        self.writes += 1
        if self.writes == 2:
            raise self.how
        return self.file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("how", [KeyboardInterrupt(), Stopped(15)], ids=["Ctrl-C", "SIGTERM"])
def test_an_end_in_the_middle_of_writing(tmp_path: Path, how: BaseException) -> None:
    """torch makes an error of its own of it, and a disk without room was told of."""
    whole = torch.ones(2)

    def save(file: BinaryIO) -> None:
        torch.save(whole, Ended(file, how))

    with pytest.raises(RuntimeError, match="unexpected pos"), (tmp_path / "plain").open("wb") as file:
        save(file)  # or this test would test nothing
    with pytest.raises(type(how)):
        durable.put([(tmp_path / "weights.pt", save)])
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]

    def work() -> None:
        with (tmp_path / "part").open("wb") as file:
            save(file)

    with pytest.raises(type(how)):
        checkpoint._failure(tmp_path / "last.ckpt", work)
