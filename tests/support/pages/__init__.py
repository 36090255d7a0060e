"""The page, as a browser sees it."""
