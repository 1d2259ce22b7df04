"""A sentence on the terminal, once."""

from __future__ import annotations

import hashlib
import sys

from rffl_pl import launch


def tell(text: str) -> None:
    """Print a sentence, once on each node although every rank may have it to say.

    The first rank that has it leaves its mark in the launch's folder, whichever rank that is: so a mistake that one
    rank alone sees is told as well. Under a launcher without such a folder every rank tells.
    """
    folder = launch.node_folder()
    if folder is not None:
        try:
            (folder / f"told-{hashlib.sha256(text.encode()).hexdigest()[:16]}").touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError:  # no folder to write to: better twice than never
            pass
    print(f"Error: {text}", file=sys.stderr, flush=True)
