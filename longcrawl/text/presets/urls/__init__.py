"""What URLs are judged by, as data: one YAML file per named set of words, one text file per list of domains."""
