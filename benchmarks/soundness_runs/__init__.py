"""The parts of soundness.py."""
