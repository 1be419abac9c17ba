"""What `benchmarks/objectives.py` is made of: run folders, the processes that fill them, and the
page.
"""
