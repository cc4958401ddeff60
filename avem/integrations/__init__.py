"""avem in other people's tools: scikit-learn."""
