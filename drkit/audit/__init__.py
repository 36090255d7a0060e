"""The Spark audit: both sides of a link compared record by record; salvage of what one side alone holds."""
