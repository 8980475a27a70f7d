"""A recipe carried out over all parts of its source."""
