"""Rules line by line: C4's, and RefinedWeb's corrections."""
