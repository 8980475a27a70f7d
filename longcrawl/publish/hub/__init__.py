"""Exchange of data with the Hugging Face Hub."""
