"""Files: whole or not there at all, locked, sealed with checksums, and elsewhere."""
