"""One gate a file: a pure function over the tables of a comparison, and what it was held to."""
