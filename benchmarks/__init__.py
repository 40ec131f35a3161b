"""What things cost, beside a floor written by hand.

Each case is a process of its own; cases are interleaved round by round; what counts is
the CPU time of the process, net of starting it. Compare ratios, never microseconds of
two machines.
"""
