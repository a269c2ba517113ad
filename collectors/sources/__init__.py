"""Finding what to read: files in folders, globs, lists and archives, and the runs they form."""
