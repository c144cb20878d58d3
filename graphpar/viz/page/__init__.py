"""A build as one HTML page that needs nothing else: no network, no server, no `dot`."""

from graphpar.viz.page.write import page

__all__ = ["page"]
