"""One communication round, in the steps of the paper's algorithm: begin reading at ``play.py``."""
