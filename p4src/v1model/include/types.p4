// SPDX-License-Identifier: Apache-2.0
#ifndef ECHELON_TYPES_P4
#define ECHELON_TYPES_P4

typedef bit<JOB_ID_BITS>         job_id_t;
typedef bit<ECHELONFLOW_ID_BITS> echelonflow_id_t;
typedef bit<PROFILE_ID_BITS>     profile_id_t;
typedef bit<CONNECTION_ID_BITS>  connection_id_t;
typedef bit<FLOW_ID_BITS>        flow_id_t;
typedef bit<PAIR_ID_BITS>        pair_id_t;
typedef bit<GROUP_ID_BITS>       group_id_t;
// 0 and a flow, 1 and a connection, or 2 and a pair.
typedef bit<16>                  stream_id_t;
typedef bit<3>                   queue_t;
typedef bit<9>                   port_t;
typedef bit<48>                  time_us_t;
// The upper bit is set once the lower eight have been written.
typedef bit<9>                   valid_epoch_t;

// Ports of a connection over TCP, source first, or the queue pair that it goes to, and the sequence number after the
// newest byte that it has sent.
typedef bit<64>                  bytes_sent_t;

// A rank that is comparable between jobs: in 1/RANK_UNIT of the job's period, two's complement. Larger is more urgent.
typedef bit<48>                  rank_t;
// A rank, and whose it is.
typedef bit<64>                  ranked_t;
// What a rank grows by in a microsecond: a factor of 32 bits, and by how many bits it is shifted right.
typedef bit<40>                  pace_t;

enum bit<3> Ranking {
    NONE = 0,
    FIXED = 1,
    DEADLINE = 2,
    ATTAINED = 3,
    WINDOW = 4,
    DSCP = 5
}

// The digest that the control plane gets when a flow starts and when its last packet passes.
struct flow_event_t {
    bit<8>    event;
    flow_id_t flow;
    bit<8>    epoch;
    bit<32>   slack_key;
    time_us_t time_us;
}

#endif
