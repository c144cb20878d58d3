"""Who does what when in a pipeline: actions and their words, orders that have names, messages and times."""
