"""One command's context, and the implementations that packages need of each other."""
