"""Hot functions: each has one definition in JAX, and faster engines behind the same signature."""
