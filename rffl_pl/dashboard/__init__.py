"""What W&B shows of many runs: a workspace and a report, from one list of charts."""
