"""The runs, tables and figures of cross_view.py."""
