"""Questions people ask of a fit, one file each."""
