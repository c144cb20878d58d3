"""What each op does to axes."""
