"""Documents taken out of a finished run, with a record of what was asked and a proof that they are gone."""
