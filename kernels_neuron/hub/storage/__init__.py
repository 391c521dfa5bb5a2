"""What a registry keeps on disk: files written whole or not at all, blobs by content, names it admits, tokens."""
