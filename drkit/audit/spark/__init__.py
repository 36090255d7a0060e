"""The Spark session of this process, its JVM, its errors and progress."""
