"""Local training on flat parameters: one participant after another, or all as one stack."""
