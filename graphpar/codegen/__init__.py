"""From a placed graph to Python that a person would have written."""
