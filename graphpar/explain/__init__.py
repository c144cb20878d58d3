"""What a build does, read from its plan: memory, collectives, who claims which mesh axis."""
