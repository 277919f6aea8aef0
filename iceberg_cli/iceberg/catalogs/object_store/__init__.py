"""Tables whose file names tell which metadata is current, in object stores."""
