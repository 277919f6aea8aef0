"""Files of deletes: Puffin files with deletion vectors, and position deletes."""
