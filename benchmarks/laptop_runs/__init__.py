"""The parts of laptop.py."""
