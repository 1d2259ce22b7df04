"""The logger that writes ``metrics.csv``."""

from __future__ import annotations

from pathlib import Path

from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.loggers.logger import rank_zero_experiment

from rffl_pl.runs.durable import written

_OF = "/participant_"


class MetricsFile(CSVLogger):
    """Writes ``metrics.csv`` in a run folder; one that is there already stays until there is a row to write.

    Lightning opens every logger before it reads the checkpoint, which may yet be refused.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__(folder, name="", version="", flush_logs_every_n_steps=1)
        self._rows: _Rows | None = None

    def begin(self) -> None:
        """Begin a new fit, whose rows go into a new file."""
        self._rows = None

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer, on rank 0."""
        if self._rows is None:
            self._rows = _Rows(self.log_dir)
        return self._rows


class _Rows(ExperimentWriter):
    """Lightning's writer, which would remove an existing file as soon as it is constructed: this one waits for a row.

    A new column has the whole file written anew. So everybody has a column for whatever anybody has: who takes part for
    the first time brings none.
    """

    def _check_log_dir_exists(self) -> None:
        """Nothing: `save` removes the earlier file, not the constructor."""

    def save(self) -> None:
        """Write the rows that are new, the first of them into a file of their own.

        Raises:
            UserError: If there is no writing.
        """
        file = Path(self.metrics_file_path)
        with written(file):
            if self.metrics and not self.metrics_keys:
                file.unlink(missing_ok=True)
            super().save()

    def _record_new_keys(self) -> set[str]:
        new = super()._record_new_keys()
        measures = {name.rpartition(_OF)[0] for name in new if _OF in name}
        total = sum(name.startswith(f"member{_OF}") for name in self.metrics_keys)
        everybodys = {f"{measure}{_OF}{i}" for measure in measures for i in range(total)} - {*self.metrics_keys}
        self.metrics_keys = sorted([*self.metrics_keys, *everybodys])
        return new | everybodys
