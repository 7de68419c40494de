"""The answers of all calls, as types: the OpenAPI document is made from them, and a test holds them against what the
server really answers, member by member. Answers may get more members in later releases.

Times are UNIX seconds, memory is in MB of 2^20 bytes, CPU times `norm_...` are those of the reference machine; None is
null. A member whose type has UNSET is left out where it has nothing to tell.
"""
