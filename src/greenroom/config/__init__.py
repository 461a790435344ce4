"""Configuration files: reading and checking `greenroom.toml` and other programs' files, and keeping a host's servers in line with them."""
