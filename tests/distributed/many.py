"""Several command lines on the same ranks, one after the other: starting ranks takes longer than each of these runs.

python -m tests.distributed.many LINES ...: every line of the file LINES with ... behind it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rffl_pl.cli.entry import run
from rffl_pl.strategy import leave_process_group


def main() -> None:
    for line in Path(sys.argv[1]).read_text().splitlines():
        run([*shlex.split(line), *sys.argv[2:]])
    leave_process_group()


if __name__ == "__main__":
    main()
