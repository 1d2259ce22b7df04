"""Pure tensor mathematics: no classes, no state, no distributed."""
