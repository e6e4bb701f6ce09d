// SPDX-License-Identifier: Apache-2.0
// Which flow of which iteration does a packet belong to? By the shim where the sender writes one; otherwise by its
// connection (5-tuple, or queue pair of RoCE) and the bytes that the connection has carried since its iteration started.

control Classifier(inout headers_t hdr, inout metadata_t meta, in time_us_t now,
                   register<bytes_sent_t> connection_sent, register<time_us_t> connection_last_us,
                   register<time_us_t> stream_left_us) {
    register<valid_epoch_t>(JOBS) job_epoch;
    register<bit<32>>(CONNECTIONS) connection_bytes;
    register<valid_epoch_t>(CONNECTIONS) connection_epoch;
    register<bit<1>>(CONNECTIONS) connection_whole;
    Sequence() sequence;
    Position() position;

    @id(0x01000101)
    action set_flow(flow_id_t flow) {
        meta.is_flow = 1;
        meta.flow = flow;
        meta.stream = 2w0 ++ flow;
    }

    // As above, for a flow that shares its place in queues with all of its job from one host to another.
    @id(0x0100010E)
    action set_flow_of(flow_id_t flow, pair_id_t pair) {
        set_flow(flow);
        meta.stream = 2w2 ++ pair;
    }

    // As the first, for a flow that ends when its connection has carried end_bytes in this iteration.
    @id(0x01000102)
    action set_segment(flow_id_t flow, bit<32> end_bytes) {
        set_flow(flow);
        meta.last = (bit<1>)(meta.position + meta.payload_bytes >= end_bytes);
        meta.left_bytes = end_bytes - meta.position;
    }

    @id(0x02000101)
    table shim_flow {
        key = {
            hdr.shim.job: exact @name("job");
            hdr.shim.flow: exact @name("flow");
        }
        actions = { set_flow; set_flow_of; NoAction; }
        default_action = NoAction();
        size = FLOW_TABLE_SIZE;
    }

    @id(0x01000103)
    action set_connection(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_us,
                          bit<32> head_bytes, bit<32> whole_bytes, bit<1> in_sequence) {
        meta.is_connection = 1;
        meta.connection = connection;
        meta.job = job;
        meta.is_head = is_head;
        meta.gap_us = gap_us;
        meta.head_bytes = head_bytes;
        meta.whole_bytes = whole_bytes;
        meta.in_sequence = in_sequence;
        meta.sequence_of = connection;
    }

    // One of several connections between two hosts that count as one: their positions add up, and each has sequence
    // numbers of its own.
    @id(0x0100010D)
    action set_one_of(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_us,
                      bit<32> head_bytes, bit<32> whole_bytes, connection_id_t sequence_of) {
        set_connection(connection, job, is_head, gap_us, head_bytes, whole_bytes, 1);
        meta.sequence_of = sequence_of;
    }

    @id(0x02000102)
    table tcp_connection {
        key = {
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
            hdr.tcp.src_port: exact @name("src_port");
            hdr.tcp.dst_port: exact @name("dst_port");
        }
        actions = { set_connection; set_one_of; NoAction; }
        default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
        support_timeout = true;
    }

    @id(0x02000103)
    table udp_connection {
        key = {
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
            hdr.udp.src_port: exact @name("src_port");
            hdr.udp.dst_port: exact @name("dst_port");
        }
        actions = { set_connection; NoAction; }
        default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
        support_timeout = true;
    }

    // A packet of RoCE stands for as many bytes as the path's MTU: its number times the MTU is a sequence number, which
    // wraps where numbers of 24 bits do. Several queue pairs may be one connection; each has numbers of its own.
    //
    // The shift leaves nothing of what stands before the packet's number.
#define SET_QUEUE_PAIR(mtu, shift) \
    action set_queue_pair_##mtu(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_us, \
                                bit<32> head_bytes, bit<32> whole_bytes, connection_id_t queue_pair) { \
        set_connection(connection, job, is_head, gap_us, head_bytes, whole_bytes, 1); \
        meta.sequence_of = queue_pair; \
        meta.seq = hdr.bth.ack_psn << shift; \
        meta.ends = 8w0 ++ hdr.bth.dst_queue_pair; \
        meta.payload_bytes = mtu; \
    }

    @id(0x01000104)
    SET_QUEUE_PAIR(256, 8)
    @id(0x01000105)
    SET_QUEUE_PAIR(512, 9)
    @id(0x01000106)
    SET_QUEUE_PAIR(1024, 10)
    @id(0x01000107)
    SET_QUEUE_PAIR(2048, 11)
    @id(0x01000108)
    SET_QUEUE_PAIR(4096, 12)

    @id(0x02000106)
    table roce_connection {
        key = {
            hdr.ipv4.dst: exact @name("dst");
            hdr.bth.dst_queue_pair: exact @name("queue_pair");
        }
        actions = {
            set_queue_pair_256;
            set_queue_pair_512;
            set_queue_pair_1024;
            set_queue_pair_2048;
            set_queue_pair_4096;
            NoAction;
        }
        default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
        support_timeout = true;
    }

    @id(0x02000104)
    table segment {
        key = {
            meta.connection: exact @name("connection");
            meta.position: range @name("position");
        }
        actions = { set_segment; NoAction; }
        default_action = NoAction();
        size = SEGMENT_TABLE_SIZE;
    }

    apply {
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            if (hdr.shim.flags & SHIM_FLAG_ACK != 0) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                meta.epoch = hdr.shim.epoch;
                meta.left_bytes = hdr.shim.remaining;
                shim_flow.apply();
                meta.last = (bit<1>)(hdr.shim.flags & SHIM_FLAG_LAST != 0);
            }
        } else if (hdr.tcp.isValid()) {
            meta.payload_bytes = (bit<32>)hdr.ipv4.total_len - 20 - ((bit<32>)hdr.tcp.data_offset << 2);
            if (meta.payload_bytes == 0) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                meta.ends = hdr.tcp.src_port ++ hdr.tcp.dst_port;
                meta.seq = hdr.tcp.seq;
                tcp_connection.apply();
            }
        } else if (hdr.bth.isValid()) {
            if (hdr.bth.opcode[4:0] == BTH_ACKNOWLEDGE || hdr.bth.opcode == BTH_CONGESTION) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                roce_connection.apply();
            }
        } else if (hdr.udp.isValid()) {
            meta.payload_bytes = (bit<32>)hdr.ipv4.total_len - 28;
            udp_connection.apply();
        }
        if (meta.is_connection == 1) {
            meta.new_bytes = meta.payload_bytes;
            if (meta.in_sequence == 1) {
                sequence.apply(meta, connection_sent);
            }
            position.apply(meta, now, job_epoch, connection_epoch, connection_bytes, connection_whole,
                           connection_last_us, stream_left_us);
            segment.apply();
            meta.stream = 2w1 ++ meta.connection;
        }
    }
}
