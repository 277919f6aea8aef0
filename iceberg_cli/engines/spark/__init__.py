"""The engine on Spark, through PySpark."""
