"""TCP for emulated hosts.

Senders and receivers have no I/O and no clock, and speak real frames.

Training jobs and open-loop traffic need one direction of a connection, so a connection is a
`TcpSender` at one end and a `TcpReceiver` at the other. They follow RFC 9293 (segments, handshake),
RFC 7323 (window scale, time stamps), RFC 5681 (slow start, congestion avoidance, fast retransmit,
delayed acknowledgements, restart after idleness), RFC 6582 (NewReno), RFC 6298 (time-out), RFC 3522
and 4015 (detection of spurious retransmissions), RFC 3042 (limited transmit), RFC 3465 (growth by
bytes), RFC 6928 (initial window of ten segments) and RFC 3168 (ECN). They leave out data in both
directions on one connection, SACK, CUBIC, urgent data and path MTU discovery.
"""
