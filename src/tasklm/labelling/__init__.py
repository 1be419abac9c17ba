"""Which texts to label next: read as a stream, ranked by doubt, spread over what they say."""
