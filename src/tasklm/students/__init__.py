"""Losses on text without labels, in stage 2."""
