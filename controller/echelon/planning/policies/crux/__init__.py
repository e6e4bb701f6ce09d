"""Crux: jobs by GPU intensity.

Source: Cao et al., Crux: GPU-Efficient Communication Scheduling for Deep Learning Training, SIGCOMM
'24. One module for each step of its section 4: `intensity` (4.1, how much computing a second of a
job's communication holds up), `routes` (path selection), `priority` (4.2, the correction of the
order by what two orders of a pair of jobs change), and `compression` (4.3, as few levels as
switches have). `policy` puts them together.
"""
