"""What is asked of a finished fit: likelihood, curvature, diagnosis, states, new subjects."""
