/* SPDX-License-Identifier: Apache-2.0
 *
 * Widths and sizes of the TNA program. A Tofino has 12 stages (Tofino 2: 20), and each of them some memory.
 */
#ifndef ECHELON_SIZES_H
#define ECHELON_SIZES_H

#define JOB_ID_BITS 10
#define ECHELONFLOW_ID_BITS 12
#define PROFILE_ID_BITS 8
#define CONNECTION_ID_BITS 12
#define FLOW_ID_BITS 12
#define GROUP_ID_BITS 10
/* A queue is LEVEL * WEIGHT_CLASSES + class, or a level where a port has eight queues. */
#define QUEUE_BITS 8

#define JOBS 1024
#define ECHELONFLOWS 4096
#define PROFILES 256
#define GROUPS 1024
#define CONNECTIONS 4096
#define FLOWS 4096
/* FLOWS + CONNECTIONS, of which the highest bit of a number tells which. */
#define STREAMS 8192
#define STREAM_ID_BITS 13
#define PORTS 512
#define QUEUES 32
/* One slot per egress port (9 bits) and queue. */
#define PORT_QUEUES 16384

#define CONNECTION_TABLE_SIZE 4096
#define FLOW_TABLE_SIZE 4096
/* Rows of TCAM: a range of positions takes as many rows as it has prefixes. */
#define SEGMENT_TABLE_SIZE 4096
#define LEVEL_TABLE_SIZE 512
#define PERIOD_TABLE_SIZE 256
#define ROUTE_TABLE_SIZE 1024
#define ECMP_TABLE_SIZE 128
#define ECMP_MEMBERS 256
#define STATION_TABLE_SIZE 1024
#define ECN_TABLE_SIZE 2048

/* Width of a key of table level: the widest range that Tofino's TCAM matches. */
#define LEVEL_KEY_BITS 20
/* A slack of zero as a key of table level. */
#define LEVEL_KEY_BIAS 0x80000
/* The key of ranking "attained" counts bytes in units of two to the power of this. */
#define ATTAINED_SHIFT 12
/* Each byte that is left of a flow lowers its rank by 2^LEFT_SHIFT_BIAS / 2^left_shift. A left_shift of only ones, the
 * largest, leaves nothing of any number of bytes. */
#define LEFT_SHIFT_BITS 5
#define LEFT_SHIFT_BIAS 4
/* Nanoseconds of the time stamp in a tick of the clock: two to the power of this. */
#define TICK_SHIFT 10
/* What a packet of another flow takes off the rank of the most urgent: 1,024 of them forget one unit of the job. */
#define TOP_DECAY 64
/* No flow is at a port: the lowest rank. */
#define NO_RANK -0x40000000

#endif
