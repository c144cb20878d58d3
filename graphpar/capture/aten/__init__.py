"""ATen, as exports spell it, to graphpar."""
