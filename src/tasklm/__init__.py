"""tasklm: a strong, small, task-specific language model from scratch."""
