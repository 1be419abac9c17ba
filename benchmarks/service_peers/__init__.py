"""A model for all services, a plain service beside ours, and what puts load on them."""
