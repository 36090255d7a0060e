"""The results of drills: their folders, the chain of drills, and their runs in the store."""
