"""Pictures of a fit, one file each."""
