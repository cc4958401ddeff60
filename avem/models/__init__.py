"""Assembly: from fixed parameters and a subject's effect to its latent process."""
