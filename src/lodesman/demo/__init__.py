"""The demo's values and pictures: its workload, the joining of results, progress and summary.

Starting the server, the pilots and the submissions is the command's part (`lodesman.cli`).
"""
