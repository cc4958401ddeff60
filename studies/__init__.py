"""The paper's experiments and theorems, and ours: `avem study NAME`.

They use the public interface alone.
"""
