"""What is said over HTTP and on the screen: each thing one type, from the store to the command line.

Answers may get more members in later releases.

Times are UNIX seconds, memory is in MB of 2^20 bytes, CPU times `norm_...` are those of the reference machine; None is
null. A member whose type has UNSET is left out where it has nothing to tell.
"""
