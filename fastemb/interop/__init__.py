"""Drop-ins for other libraries, a module each; every one imports its library, and is not imported by fastemb itself."""
