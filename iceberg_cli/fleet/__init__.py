"""Many tables: which there are, what is due in each, and the maintenance of all by one policy file."""
