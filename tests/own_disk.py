"""The command line of a rank that has a disk of its own: what ``--run.root`` says, and there the rank's number."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rffl_pl.cli import main

if __name__ == "__main__":
    place = sys.argv.index("--run.root") + 1
    sys.argv[place] = str(Path(sys.argv[place]) / os.environ["RANK"])
    main()
