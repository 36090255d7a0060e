"""One cluster configuration in the form that each client library takes."""
