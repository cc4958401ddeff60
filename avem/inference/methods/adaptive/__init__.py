"""The adaptive tier: maximum likelihood by nodes where each subject's posterior is."""
