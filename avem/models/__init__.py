"""Assembly: from fixed parameters and a subject's effect to the parameters of its latent process."""
