"""The arms, runs and tables of recipes.py."""
