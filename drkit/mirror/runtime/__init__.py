"""One run of a link's mirror: session, control, progress, reporting."""
