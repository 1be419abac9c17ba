"""The parts of whole_run.py: its cases, the two sides, and the page."""
