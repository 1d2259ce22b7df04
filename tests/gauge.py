"""A callback that measures this process after every round; given by class path on the command line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer


class Gauge(Callback):
    """Writes resident memory, open files and seconds of every round to a file, a line of JSON each."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)
        self._began = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        now = time.perf_counter()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory, files = pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))
        with self.file.open("a") as file:
            file.write(json.dumps({"memory": memory, "files": files, "seconds": now - self._began}) + "\n")
        self._began = now
