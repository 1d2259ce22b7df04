"""``python -m rffl_pl``."""

from rffl_pl.cli import main

if __name__ == "__main__":
    main()
