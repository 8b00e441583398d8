"""What makes a table, a picture or a page out of rows."""
