/* SPDX-License-Identifier: Apache-2.0
 *
 * Widths and sizes of the v1model program, and what it has that others do not.
 */
#ifndef ECHELON_SIZES_H
#define ECHELON_SIZES_H

/* Identifier widths: the control plane hands out dense identifiers, so a register index is never out of range. */
#define JOB_ID_BITS 12
#define ECHELONFLOW_ID_BITS 12
#define PROFILE_ID_BITS 12
#define CONNECTION_ID_BITS 14
#define FLOW_ID_BITS 14
#define PAIR_ID_BITS 14
#define GROUP_ID_BITS 12

#define JOBS 4096
#define ECHELONFLOWS 4096
/* Groups of flows: those whose bytes are counted together, and those whose windows have one origin. */
#define GROUPS 4096
#define CONNECTIONS 16384
#define FLOWS 16384
/* The flows of a job from one host to another that leave by the same port. */
#define PAIRS 16384
/* Packets that keep their order among themselves: those of a flow, of a connection, or of a pair. The upper two bits of a
 * number tell which. */
#define STREAMS 65536
#define PORTS 512
/* One slot per egress port (9 bits) and queue (3 bits). */
#define PORT_QUEUES 4096

#define QUEUES 8

/* Each byte that is left of a flow lowers its rank by 2^LEFT_SHIFT_BIAS / 2^left_shift microseconds. A left_shift of only
 * ones, the largest, leaves nothing of any number of bytes. */
#define LEFT_SHIFT_BITS 6
#define LEFT_SHIFT_BIAS 16

/* Table sizes. */
#define CONNECTION_TABLE_SIZE 16384
#define FLOW_TABLE_SIZE 16384
#define SEGMENT_TABLE_SIZE 16384
#define LEVEL_TABLE_SIZE 32768
#define PERIOD_TABLE_SIZE 4096
#define ROUTE_TABLE_SIZE 4096
#define ECMP_TABLE_SIZE 1024
#define ECMP_MEMBERS 1024
#define STATION_TABLE_SIZE 4096

#endif
