"""What `benchmarks/label_sets.py` is made of: its data, its measures and its page."""
