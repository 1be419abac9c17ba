"""The parts of forecast.py."""
