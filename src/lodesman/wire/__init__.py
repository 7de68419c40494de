"""What is said over HTTP and on the screen: each thing one type, from the store to the command line.

Times are UNIX seconds, memory is in MB of 2^20 bytes, CPU times `norm_...` are those of the reference machine. A member
whose type has UNSET may be left out. Later releases may add members. Docstrings of structs and comments beside their
fields are read by users, too: they are the descriptions in the OpenAPI document.

Decisions: docs/adr/README.md, Calls and HTTP.
"""
