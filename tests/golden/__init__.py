"""What is on disk, in documents and on the screen, frozen: see `comparing`."""
