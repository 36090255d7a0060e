"""The continuous audit, which runs beside the mirror."""
