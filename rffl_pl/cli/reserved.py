"""A run's folder, and what becomes of it if the run never begins."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rffl_pl import launch
from rffl_pl.cli.mistakes import mistake_behind
from rffl_pl.cli.run import Run
from rffl_pl.errors import UserError
from rffl_pl.runs import RunFolder


class Reserved:
    """A folder for a run, reserved before it is known whether the run can begin.

    Args:
        run: Where it leaves its results.
        command: What it does.

    Attributes:
        path: The folder.
    """

    def __init__(self, run: Run, command: str) -> None:
        above = Path(run.root) / run.name
        self._made = [folder for folder in (above, *above.parents) if not os.path.exists(folder)]
        try:
            self.path = run.folder(command)
        except UserError:
            self._take_back()
            raise

    @contextlib.contextmanager
    def unless_a_mistake(self) -> Iterator[None]:
        """Take the folder away again if a mistake ends the run before its first round: nothing half-made stays."""
        try:
            yield
        except Exception as error:
            if launch.rank() == 0 and mistake_behind(error) is not None and not self._begun():
                shutil.rmtree(self.path, ignore_errors=True)
                self._take_back()
            raise

    def _take_back(self) -> None:
        """Remove the folders above it that were made for it."""
        for folder in self._made:
            with contextlib.suppress(OSError):  # it was not made after all, or another run has come to live there
                folder.rmdir()

    def _begun(self) -> bool:
        folder = RunFolder(self.path)
        logged = folder.metrics_file.is_file() and folder.metrics_file.stat().st_size > 0
        return logged or folder.newest_checkpoint() is not None
