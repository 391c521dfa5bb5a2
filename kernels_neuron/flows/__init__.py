"""The code that joins parts: whole jobs over the library, printing nothing."""
