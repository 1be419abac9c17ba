"""Input that is broken, or made to do harm: mutated files, and folders of models from anywhere."""
