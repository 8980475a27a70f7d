"""Files and servers: reading, listing, atomic writing, sealing and checking."""
