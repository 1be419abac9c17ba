"""The parts of label_next.py."""
