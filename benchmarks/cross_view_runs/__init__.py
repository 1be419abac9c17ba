"""The runs and tables of cross_view.py."""
