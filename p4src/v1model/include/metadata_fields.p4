// SPDX-License-Identifier: Apache-2.0
// What controls tell each other of a packet: the fields of struct metadata_t, to which a program may add its own.

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
    // Whose sequence numbers the packet has: the connection's, or those of one of its queue pairs.
    connection_id_t  sequence_of;
    bit<32>          ends;
    bit<32>          seq;
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
    rank_t           rank;
    pace_t           pace;
    // The queues of its profile, and how long a packet counts that waits outside the switch.
    queue_t          lowest;
    queue_t          highest;
    bit<32>          idle_us;
    bit<16>          memory;
    group_id_t       group;
    bit<32>          period_us;

    // Where does it go? (controls Flow, Forwarding, Order, Promotion)
    port_t           egress_port;
    bit<16>          ecmp_group;
    // The ports of TCP or UDP, for the hash over the members of a group; 0 for other packets.
    bit<16>          src_port;
    bit<16>          dst_port;
    bit<1>           forwarded;
    bit<1>           in_stream;
    stream_id_t      stream;
    queue_t          wanted;
    // The highest queue below all that hold a packet that is more urgent.
    queue_t          ceiling;
    queue_t          queue;
    bit<1>           first;
    bit<1>           sequenced;
    bit<32>          sequence;
