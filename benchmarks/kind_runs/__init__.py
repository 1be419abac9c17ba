"""What `benchmarks/kinds.py` is made of: its page."""
