"""What distillation.py reads from its runs, and its page."""
