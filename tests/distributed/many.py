"""Several command lines on the same ranks, one after the other: starting ranks takes longer than each of these runs.

python -m tests.distributed.many LINES ...: every line of the file LINES with ... behind it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rffl_pl import cli


def main() -> None:
    close, cli.leave_process_group = cli.leave_process_group, lambda: None
    for line in Path(sys.argv[1]).read_text().splitlines():
        cli.main([*shlex.split(line), *sys.argv[2:]])
    close()


if __name__ == "__main__":
    main()
