"""Tables of any Python class that is a PyIceberg catalog."""
