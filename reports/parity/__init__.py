"""What people read of a comparison of two runs: JSON, figures and a page, made of plain data alone."""
