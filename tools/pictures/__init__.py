"""The pictures of docs/pictures.md."""
