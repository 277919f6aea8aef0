"""Types and values: schemas, partition specs and transforms, and single values as bytes and as JSON."""
