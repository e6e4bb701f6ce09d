"""TCP for emulated hosts: senders and receivers without I/O and without a clock, which speak real frames.

One direction of a connection is what training jobs and open-loop traffic need, so a connection is a `Sender` at one end
and a `Receiver` at the other. What they follow: RFC 9293 (segments, handshake), RFC 7323 (window scale, time stamps),
RFC 5681 (slow start, congestion avoidance, fast retransmit, delayed acknowledgements, restart after idleness), RFC 6582
(NewReno), RFC 6298 (time-out), RFC 3522 and 4015 (what was sent again though it was only late), RFC 3042 (limited
transmit), RFC 3465 (growth by bytes), RFC 6928 (ten segments at first), RFC 3168 (ECN). What they leave out: data in
both directions on one connection, SACK, CUBIC, urgent data, path MTU discovery.
"""
