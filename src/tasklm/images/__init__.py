"""The kind `image`: reading, training, answering, reporting and serving, beside the flow of text."""
