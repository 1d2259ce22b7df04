"""What is looked at before a run begins."""
