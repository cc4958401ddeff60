"""Inference: one algorithm per file, one loop for all of them."""
