"""drkit's mirror side by side with MirrorMaker 2: `python -m bench`. See README.md."""
