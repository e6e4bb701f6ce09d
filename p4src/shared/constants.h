/* SPDX-License-Identifier: Apache-2.0
 *
 * Every number that the P4 programs and the control plane must agree on. Preprocessor only: one
 * "#define NAME number" a line, so that P4 includes this file and Python reads it (echelon.model.p4program.constants).
 */
#ifndef ECHELON_CONSTANTS_H
#define ECHELON_CONSTANTS_H

/* The shim that Echelon's own senders put behind UDP. */
#define SHIM_UDP_PORT 0xEF10
#define SHIM_VERSION 2
#define SHIM_BYTES 20
#define SHIM_FLAG_ALONE 8
#define SHIM_FLAG_LAST 4
#define SHIM_FLAG_ACK 2
#define SHIM_FLAG_DRAIN 1

/* RoCE v2: its port, and the opcodes of what a receiver sends back. The upper three bits of the first are the service. */
#define ROCE_UDP_PORT 4791
#define BTH_ACKNOWLEDGE 0x11
#define BTH_CONGESTION 0x81
/* The opcodes of packets that are not the first of their message, without the service: a bit for each. */
#define BTH_CONTINUES 0x40C38E

/* Epochs are compared modulo 256: a packet as far ahead as this, or more, is a straggler, 1 to 16 iterations behind.
 * Anything else that differs is a newer iteration, or a job that was started anew. */
#define STRAGGLER_FROM 240

/* Classes of traffic that no ranking applies to: key of the table traffic_class. */
#define CLASS_BEST_EFFORT 0
#define CLASS_CONTROL 1
#define CLASS_STALE 2

/* Bits of flow_event_t.event. */
#define EVENT_START 1
#define EVENT_FINISH 2

/* A time of table promotion_hold: nobody knows how long a packet can wait. */
#define HOLD_FOREVER 0xFFFFFFFF

/* Index of the counter "dropped". */
#define DROP_MALFORMED 0
#define DROP_CHECKSUM 1
#define DROP_TTL 2
#define DROP_NO_ROUTE 3
#define DROP_REASONS 4

/* A slack of zero as a key of table level: two's complement, biased so that keys order as slacks do. */
#define SLACK_BIAS 0x80000000
#define SLACK_MAX 0x7FFFFFFF

/* One period of a job in the scale that compares the ranks of all jobs, and in that of the shim's field "memory". */
#define RANK_UNIT 65536
#define MEMORY_UNIT 1024
/* The first over the second is two to the power of this. */
#define MEMORY_SHIFT 6

/* After its last packet, the most urgent flow at a port counts for its idle time over 2^ENDED_SHIFT. */
#define ENDED_SHIFT 3

/* A group whose flows have been silent for more than 2^SILENT_SHIFT periods gets a new origin of its windows. */
#define SILENT_SHIFT 3

#endif
