"""A link's changes of records: filter, transform, provenance; used by the mirror and the audit."""
