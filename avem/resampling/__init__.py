"""What fits a model many times over: the parametric bootstrap."""
