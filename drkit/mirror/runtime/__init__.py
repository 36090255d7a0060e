"""One run of a link's mirror: session, reporting."""
