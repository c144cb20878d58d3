"""Pictures of a build, drawn from its plan.json and model.py alone."""
