"""Documents as parquet files."""
