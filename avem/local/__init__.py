"""One subject's latent process given its parameters: tables in, moments out."""
