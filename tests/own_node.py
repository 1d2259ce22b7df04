"""The command line of a rank that is alone on its node: it has torchrun's folder of that node to itself."""

from __future__ import annotations

import os
from pathlib import Path

from rffl_pl.cli import main

if __name__ == "__main__":
    attempt = Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parents[2] / f"node_{os.environ['RANK']}" / "attempt_0" / "0"
    attempt.mkdir(parents=True)
    os.environ.update(
        TORCHELASTIC_ERROR_FILE=str(attempt / "error.json"), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
    )  # fmt: skip
    main()
