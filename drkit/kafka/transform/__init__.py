"""What a link does to records: filter, transform, provenance; by the mirror and by the audit."""
