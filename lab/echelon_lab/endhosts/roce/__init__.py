"""RoCE v2 for emulated hosts: queue pairs without I/O and without a clock, which speak real frames.

Training jobs need one direction of a connection, so a connection is a `Requester` at one queue pair
and a `Responder` at the other. They follow the reliable connection service of the InfiniBand
Architecture Specification (volume 1, chapter 9, and annex A17 for its packets over UDP): RDMA WRITE
in messages of packets of the path's MTU, cumulative acknowledgements where they are asked for, one
NAK for each gap in the numbers, and go-back-N. They leave out reads, atomics, immediate data,
credits, selective retransmission, and the rate control of NICs (DCQCN).
"""
