"""What `benchmarks/selections.py` is made of: the settings of an ablation, their run folders, the
page and its chart.
"""
