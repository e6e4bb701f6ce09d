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
typedef bit<STREAM_ID_BITS>      stream_id_t;
typedef bit<QUEUE_BITS>          queue_t;
typedef bit<9>                   port_t;
// 1.024 microseconds, modulo 2^32: times are compared by the sign of their difference.
typedef bit<32>                  ticks_t;
// A rank that is comparable between jobs: in 1/RANK_UNIT of the job's unit, two's complement. Larger is more urgent.
typedef bit<32>                  rank_t;

enum bit<3> Ranking {
    NONE = 0,
    FIXED = 1,
    DEADLINE = 2,
    ATTAINED = 3,
    WINDOW = 4,
    DSCP = 5
}

// A memory as packets carry it, as a rank.
#define MEMORY_AS_RANK(memory) (bit<(16 - MEMORY_SHIFT)>)0 ++ memory ++ (bit<MEMORY_SHIFT>)0

// Why a packet passes the pipeline: it came from a port, or was resubmitted because registers must be written that were
// read in its first pass.
const bit<2> PASS_FIRST = 0;
// The packet opens an iteration of its connection's job.
const bit<2> PASS_ITERATION = 1;
// The packet is the first of its EchelonFlow's or group's iteration.
const bit<2> PASS_OPEN = 2;

// The packet's epoch, compared with that of its EchelonFlow or group.
const bit<2> EPOCH_EQUAL = 0;
const bit<2> EPOCH_NEWER = 1;
const bit<2> EPOCH_STALE = 2;

// Eight bytes (Tofino 2: sixteen) that a resubmitted packet brings along.
header resubmit_h {
    // In 1/MEMORY_UNIT: the old memory and the delay.
    bit<16>   memory;
    // last, starts, two bits of the pass, and the flow. One field, because it is written at once.
    bit<16>   tag;
    ticks_t   reference;
#if __TARGET_TOFINO__ != 1
    bit<64>   unused;
#endif
}

// From ingress to egress. Each field has bytes of its own: what shares a container has to be written together.
header bridge_h {
    queue_t          wanted;
    @padding bit<7>  pad_ranked;
    bit<1>           is_ranked;
    @padding bit<7>  pad_relative;
    bit<1>           is_relative;
    @padding bit<7>  pad_move;
    bit<1>           may_move;
    bit<16>          stream;
    rank_t           memory;
    ticks_t          reference;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_h     ipv4;
    tcp_t      tcp;
    udp_t      udp;
    bth_t      bth;
    shim_t     shim;
}

struct metadata_t {
    resubmit_h       resubmit;
    bridge_h         bridge;
    bit<2>           pass;

    // The clock, and what becomes of packets that are dropped.
    ticks_t          now;
    // The same, for control Pause.
    ticks_t          pause_now;
    bool             bad_checksum;
    bit<1>           malformed;
    bit<1>           drop;
    bit<2>           drop_reason;

    // Which flow is it? (control Classifier)
    bit<1>           is_shim;
    bit<2>           traffic_class;
    bit<1>           is_flow;
    bit<1>           is_connection;
    bit<1>           is_head;
    bit<1>           is_segment;
    bit<1>           opens;
    bit<1>           last;
    // Its bytes move the position of its connection.
    bit<1>           counts;
    bit<16>          payload;
    bit<16>          too_short;
    connection_id_t  connection;
    job_id_t         job;
    bit<32>          gap_ticks;
    bit<32>          head_bytes;
    bit<32>          payload_bytes;
    // Of RoCE: whose numbers the packet has, its number times the MTU, and the MTU.
    connection_id_t  sequence_of;
    bit<32>          seq;
    bit<32>          mtu;
    bit<1>           sent_again;
    bit<32>          ip_bytes;
    bit<32>          position;
    bit<32>          end_bytes;
    ticks_t          before;
    bit<1>           starts;
    flow_id_t        flow;
    bit<32>          epoch;
    // The bytes of the flow from this packet on, then how much they lower its rank (control Left).
    bit<32>          left;

    // How is it ranked? (controls Flow, Iteration, Level, and one for each ranking)
    Ranking          ranking;
    profile_id_t     profile;
    bit<32>          slack_key;
    echelonflow_id_t echelonflow;
    bit<32>          offset_ticks;
    bit<LEFT_SHIFT_BITS> left_shift;
    group_id_t       group;
    bit<32>          ahead;
    bit<2>           epoch_is;
    bit<1>           reopens;
    bit<1>           is_stale;
    // What the sender, or the packet's first pass, says about the iteration.
    ticks_t          told_age;
    int<32>          told;
    bit<32>          told_memory;
    ticks_t          begun;
    // Added to the tardiness by the arrangement: that of the flow, with the job's head start, the bytes left, the memory.
    bit<32>          handicap;
    // The tardiness that the job has alone, then by how much the packet is later.
    int<32>          alone;
    bit<5>           unit;
    // A time, then a rank: see control Unit.
    int<32>          raw;
    bit<32>          level_key;

    // Where does it go? (controls Flow, Forwarding, Promotion)
    port_t           egress_port;
    bit<16>          ecmp_group;
    bit<16>          src_port;
    bit<16>          dst_port;
    bit<1>           forwarded;
    bit<1>           flooded;
    bit<1>           first;
    ticks_t          hold_ticks;
    // For how long the stream has been silent, then how much of the hold time is left.
    ticks_t          idle;
}

struct egress_metadata_t {
    bridge_h bridge;
    queue_t  queue;
    ticks_t  now;
    ticks_t  pause_now;
    ticks_t  age;
    // Without options, which are not parsed.
    bool     is_plain_ipv4;
    bit<32>  threshold;
    bit<32>  depth;
    bit<32>  room;
    bit<1>   has_threshold;
}

// On Tofino 2, p4c ends with an internal error if it is to initialize all metadata.
#if __TARGET_TOFINO__ == 1
#define INITIALIZED_METADATA @pa_auto_init_metadata
#else
#define INITIALIZED_METADATA \
    @pa_no_overlay("ingress", "meta.left") \
    @pa_no_overlay("ingress", "meta.starts") \
    @pa_no_overlay("ingress", "meta.forwarded") \
    @pa_no_overlay("ingress", "meta.flooded") \
    @pa_no_overlay("ingress", "meta.is_stale") \
    @pa_no_overlay("ingress", "meta.reopens") \
    @pa_no_overlay("ingress", "meta.first") \
    @pa_no_overlay("ingress", "meta.level_key") \
    @pa_no_overlay("ingress", "meta.idle") \
    @pa_no_overlay("egress", "meta.has_threshold")
#endif

// The digest that the control plane gets when a flow starts and when its last packet passes.
struct flow_event_t {
    bit<1>    last;
    bit<1>    first;
    flow_id_t flow;
    bit<32>   epoch;
    bit<32>   slack_key;
    ticks_t   time_ticks;
}

#endif
