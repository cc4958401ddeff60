"""Where the subjects live: data sets in shards, and what runs functions on them."""
