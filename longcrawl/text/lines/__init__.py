"""C4's rules line by line, and where changed lines stand, which RefinedWeb's corrections record as well."""
