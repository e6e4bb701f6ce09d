// SPDX-License-Identifier: Apache-2.0
// Headers of every target. Each program says which of them it has, in headers_t.
#ifndef ECHELON_HEADERS_P4
#define ECHELON_HEADERS_P4

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_t {
    mac_t   dst;
    mac_t   src;
    bit<16> ethertype;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<3>  flags;
    bit<13> frag_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    ipv4_t  src;
    ipv4_t  dst;
}

header tcp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> seq;
    bit<32> ack;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// The base transport header of RoCE v2 (InfiniBand Architecture Specification, volume 1, annex A17), which the packet's
// sequence number ends. The invariant CRC at the packet's end does not cover DSCP, ECN, time to live and checksums.
header bth_t {
    bit<8>  opcode;
    bit<8>  flags;
    bit<16> partition;
    bit<8>  congestion;
    bit<24> dst_queue_pair;
    bit<32> ack_psn;
}

// What a sender that knows its job tells the switch:
//
//    0       4       8               16                              31
//   +-------+-------+---------------+-------------------------------+
//   |version| flags |     epoch     |              job              |   flags: ALONE 8, LAST 4, ACK 2, DRAIN 1
//   +-------+-------+---------------+-------------------------------+
//   |             flow              |             marks             |
//   +-------------------------------+-------------------------------+
//   |              bytes of the flow from this packet on            |
//   +---------------------------------------------------------------+
//   |                              age                              |
//   +-------------------------------+-------------------------------+
//   |            memory             |            reserved           |
//   +-------------------------------+-------------------------------+
//
// `epoch` counts the iterations of the job modulo 256. DRAIN is set by a switch that wants to promote the flow and
// cannot before its earlier packets have left the lower queue; a receiver echoes it in its acknowledgement. ALONE is set
// by the sender: all that it sent of the flow before this packet has arrived. `marks` are the hosts' own (1: sent again,
// 2: acknowledge at once).
//
// `age` and `memory` are what whoever sent or forwarded the packet knows about the job's iteration; switches and hosts
// take them over and pass them on, so that all agree without a controller. `age` is the time since the iteration's
// reference in microseconds, 0 if unknown; the largest age wins. `memory` is how much the job has lost in earlier
// iterations, in units of 1/MEMORY_UNIT of its period; the largest wins.
header shim_t {
    bit<4>  version;
    bit<4>  flags;
    bit<8>  epoch;
    bit<16> job;
    bit<16> flow;
    bit<16> marks;
    bit<32> remaining;
    bit<32> age_us;
    bit<16> memory;
    bit<16> reserved;
}

#endif
