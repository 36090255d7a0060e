"""drkit's site of documentation and its man pages: `python -m tools.manual site|man FOLDER`."""
