"""Where the rows of a run come from: anything that can say what its rows are, and hand over the long columns of some."""
