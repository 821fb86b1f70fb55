"""How a test document says whether training texts repeat it; light, since reports read it too."""

OVERLAP_FREE = "overlap_free"
"""Column of likelihood rows, boolean or null, for the marks of the test documents of a text. Rows of earlier versions,
of other splits and of tasks have no such column."""
NOT_CHECKED = -1
"""in arrays, where it is not known; 1: free of the 13-grams of all training texts, 0: not"""
