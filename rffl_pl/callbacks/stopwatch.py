"""What measuring costs beside the rounds."""

from __future__ import annotations

import time

_WORTH_SAYING = 30.0


class Stopwatch:
    """Seconds of this process that went into rounds and into measuring models between them."""

    def __init__(self) -> None:
        self.rounds = self.measuring = 0.0
        self._since: float | None = None

    def start(self) -> None:
        """A round begins."""
        self._since = time.perf_counter()

    def played(self) -> None:
        """A round has ended, or what belongs to it after measuring; measuring may begin."""
        self.rounds += self._lap()

    def measured(self) -> None:
        """Measuring has ended."""
        self.measuring += self._lap()

    def advice(self, every: int | None) -> list[str]:
        """Of a run that spends more on measuring than half of what rounds take: what that is, and how to spend less.

        Args:
            every: After how many rounds models are measured; None where they never are.
        """
        if every is None or self.measuring < max(_WORTH_SAYING, self.rounds / 2):
            return []
        return [
            f"measuring every model after {'every round' if every == 1 else f'every {every} rounds'} took "
            f"{self.measuring:.0f} s, the rounds {self.rounds:.0f} s; --trainer.check_val_every_n_epoch {5 * every} "
            "measures less often"
        ]

    def _lap(self) -> float:
        now = time.perf_counter()
        before, self._since = self._since, now
        return 0.0 if before is None else now - before  # Lightning may measure before the first round
