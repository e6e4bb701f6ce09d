"""Classes for the process groups of a program that knows nothing of Echelon.

In come a job's file and its classes from the service, and what a program says of each process group
as it makes it. Out comes the class of that group. `communicators` says which ranks communicate by
the job's file, `matching` finds the group among them, and `answering` talks with the program.
"""
