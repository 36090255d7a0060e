"""The story that `drkit demo` plays: a disaster survived, and every claim of it checked."""
