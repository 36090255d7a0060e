"""An audit that runs beside the mirror."""
