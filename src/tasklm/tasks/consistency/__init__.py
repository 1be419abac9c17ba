"""How kinds of tasks learn from text without labels."""
