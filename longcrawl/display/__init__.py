"""Tables, bars and differences for people."""
