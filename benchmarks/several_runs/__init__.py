"""What `benchmarks/several_tasks.py` is made of: its data, its runs and its page."""
