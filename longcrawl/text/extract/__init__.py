"""From HTML to the main text of a page."""
