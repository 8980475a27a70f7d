"""Files and servers: what is read, listed, written whole, sealed and checked."""
