// SPDX-License-Identifier: Apache-2.0
#ifndef ECHELON_TYPES_P4
#define ECHELON_TYPES_P4

typedef bit<JOB_ID_BITS>         job_id_t;
typedef bit<ECHELONFLOW_ID_BITS> echelonflow_id_t;
typedef bit<PROFILE_ID_BITS>     profile_id_t;
typedef bit<CONNECTION_ID_BITS>  connection_id_t;
typedef bit<FLOW_ID_BITS>        flow_id_t;
typedef bit<GROUP_ID_BITS>       group_id_t;
// 0 and a flow, or 1 and a connection.
typedef bit<15>                  stream_id_t;
typedef bit<3>                   queue_t;
typedef bit<9>                   port_t;
typedef bit<48>                  time_us_t;
// The upper bit is set once the lower eight have been written.
typedef bit<9>                   valid_epoch_t;

// Ports of a connection over TCP, source first, and the sequence number after the newest byte that it has sent.
typedef bit<64>                  bytes_sent_t;

// A rank that is comparable between jobs: in 1/RANK_UNIT of the job's period, two's complement. Larger is more urgent.
typedef bit<48>                  rank_t;

enum bit<3> Ranking {
    NONE = 0,
#define RANKING_VALUE
#include "../../build/v1model/rankings.p4"
}

struct metadata_t {
    // Which flow is it? (control Classifier)
    bit<2>           traffic_class;
    bit<1>           is_flow;
    bit<1>           is_connection;
    bit<1>           reopened;
    connection_id_t  connection;
    job_id_t         job;
    bit<1>           is_head;
    bit<32>          gap_us;
    bit<32>          head_bytes;
    bit<32>          whole_bytes;
    bit<1>           in_sequence;
    bit<32>          ahead;
    bit<32>          new_bytes;
    bit<1>           sent_again;
    bit<32>          position;
    bit<32>          payload_bytes;
    flow_id_t        flow;
    bit<8>           epoch;
    bit<1>           last;
    // The bytes of the flow from this packet on.
    bit<32>          left_bytes;

    // How is it ranked? (controls Flow, Level, and one for each ranking)
    Ranking          ranking;
    profile_id_t     profile;
    bit<32>          level_key;
    bit<32>          rank_holds_us;
    echelonflow_id_t echelonflow;
    // When the arrangement places the flow's finish, and when it should have finished, after the reference.
    bit<32>          offset_us;
    bit<32>          due_us;
    bit<LEFT_SHIFT_BITS> left_shift;
    time_us_t        reference_us;
    bit<32>          slack_key;
    bit<1>           is_relative;
    bit<16>          memory;
    group_id_t       group;
    bit<32>          period_us;
#define RANKING_METADATA
#include "../../build/v1model/rankings.p4"

#ifdef AGGREGATION
    // When the block's flow should finish; whether the packet ends in the memory. (control Aggregation)
    time_us_t        aggregation_due_us;
    bit<1>           ended;
#endif

    // Where does it go? (controls Flow, Forwarding, Promotion)
    port_t           egress_port;
    bit<16>          ecmp_group;
    // The ports of TCP or UDP, for the hash over the members of a group; 0 for other packets.
    bit<16>          src_port;
    bit<16>          dst_port;
    bit<1>           forwarded;
    stream_id_t      stream;
    queue_t          wanted;
    queue_t          queue;
    bit<1>           first;
    bit<1>           sequenced;
    bit<32>          sequence;
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
