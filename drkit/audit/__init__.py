"""The Spark audit: compares both sides of a link record by record; salvages what only one side holds."""
