"""The kind `image`: from labelled pictures to a model, beside the flow of text."""
