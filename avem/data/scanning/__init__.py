"""Tables beyond memory: read, checked and sorted once into a folder, by DuckDB."""
