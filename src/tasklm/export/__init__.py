"""Trained models for other programs: Hugging Face's transformers, and ONNX."""
