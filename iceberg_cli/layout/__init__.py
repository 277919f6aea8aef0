"""What both formats share of writing rows anew. It knows no format."""
