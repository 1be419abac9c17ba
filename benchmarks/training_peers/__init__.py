"""The engines that `benchmarks/training.py` measures, each in a process of its own."""
