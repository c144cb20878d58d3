"""Who does what when in a pipeline: actions and their words, orders with names or searched for, messages, times."""
