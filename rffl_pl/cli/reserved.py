"""A run's folder, and what becomes of it if the run never begins."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rffl_pl import launch
from rffl_pl.cli.mistakes import interrupted, mistake_behind
from rffl_pl.cli.run import Run
from rffl_pl.errors import UserError, lost_a_rank
from rffl_pl.files import absent, remove_empty
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.launch.watch import tidied
from rffl_pl.runs import RunFolder


class Reserved:
    """A folder for a run, reserved before it is known whether the run can begin.

    Args:
        run: Where it leaves its results.
        command: What it does.
        earlier: The folder of a run that goes on there.

    Attributes:
        path: The folder.
    """

    def __init__(self, run: Run, command: str, earlier: RunFolder | None) -> None:
        self._above = absent(Path(run.root) / run.name)
        try:
            folder = earlier or run.folder(command)
            self.path = folder.take().path if launch.rank() == 0 else folder.path
        except UserError:
            remove_empty(self._above)
            raise
        self._new = earlier is None

    @contextlib.contextmanager
    def unless_a_mistake(self) -> Iterator[None]:
        """Take the folder away again if a mistake, its user or another rank's end ends the run before its first round.

        Nothing half-made stays.
        """
        STOP.listen()  # the launcher ends this rank where another has made a mistake before they have met
        tidy = partial(self._tidy, RunFolder.taken())
        try:
            with tidied(tidy):
                yield
        except (Exception, SystemExit) as error:
            ended = interrupted(error) or isinstance(error, Stopped) or lost_a_rank(error)
            if ended or mistake_behind(error) is not None:
                with STOP.held():  # the launcher asks this rank to end as soon as another has made the same mistake
                    tidy()
            raise

    def _tidy(self, taken: Callable[[], list[RunFolder]]) -> None:
        for folder in taken() if self._new else ():  # by one of the ranks that see it
            self._take_away(folder)

    def _take_away(self, folder: RunFolder) -> None:
        logged = folder.metrics_file.is_file() and folder.metrics_file.stat().st_size > 0
        ended = folder.weights_files.is_dir()
        if not logged and not ended and folder.newest_checkpoint() is None:
            shutil.rmtree(folder.path, ignore_errors=True)
            remove_empty(self._above)  # unless another run has come to live there
