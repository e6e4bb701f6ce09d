// SPDX-License-Identifier: Apache-2.0
// Which flow of which iteration does a packet belong to? By the shim where the sender writes one; otherwise by its
// connection (5-tuple, or queue pair of RoCE) and the bytes that the connection has carried since its iteration started (control Position).
//
// The tables have no side effects, so that they are looked up before it is known whether the packet is well-formed.

control Classifier(inout headers_t hdr, inout metadata_t meta) {
    @id(0x01000101)
    action set_flow(flow_id_t flow) {
        meta.is_flow = 1;
        meta.flow = flow;
        meta.left = hdr.shim.remaining;
    }

    @id(0x02000101)
    table shim_flow {
        key = {
            hdr.shim.job: exact @name("job");
            hdr.shim.flow: exact @name("flow");
        }
        actions = { set_flow; NoAction; }
        const default_action = NoAction();
        size = FLOW_TABLE_SIZE;
    }

    @id(0x01000103)
    action set_connection(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_ticks,
                          bit<32> head_bytes) {
        meta.is_connection = 1;
        meta.connection = connection;
        meta.job = job;
        meta.is_head = is_head;
        meta.gap_ticks = gap_ticks;
        meta.head_bytes = head_bytes;
    }

    @id(0x02000102)
    table tcp_connection {
        key = {
            hdr.ipv4.src: exact @name("src");
            hdr.ipv4.dst: exact @name("dst");
            hdr.tcp.src_port: exact @name("src_port");
            hdr.tcp.dst_port: exact @name("dst_port");
        }
        actions = { set_connection; NoAction; }
        const default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
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
        const default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
    }

    // A packet of RoCE stands for as many bytes as the path's MTU: its number times the MTU is a sequence number, which
    // wraps where numbers of 24 bits do. Several queue pairs may be one connection; each has numbers of its own.
    //
    // The shift leaves nothing of what stands before the packet's number.
#define SET_QUEUE_PAIR(bytes, shift) \
    action set_queue_pair_##bytes(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_ticks, \
                                  bit<32> head_bytes, connection_id_t queue_pair) { \
        set_connection(connection, job, is_head, gap_ticks, head_bytes); \
        meta.sequence_of = queue_pair; \
        meta.seq = hdr.bth.ack_psn << shift; \
        meta.mtu = bytes; \
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
        const default_action = NoAction();
        size = CONNECTION_TABLE_SIZE;
    }

    action measure(bit<16> header_bytes, bit<16> negative) {
        meta.payload = hdr.ipv4.total_len + negative;
        meta.too_short = header_bytes |-| hdr.ipv4.total_len;
    }

    action cut_short() {
        meta.malformed = 1;
    }

    // The bytes before the payload, by the words of the TCP header; and less than nothing of them, since an action can
    // add to a field what its entry holds, but not subtract it.
    @hidden
    table tcp_header {
        key = { hdr.tcp.data_offset: exact; }
        actions = { measure; cut_short; }
        const default_action = cut_short();
        const entries = {
            5: measure(40, 0xFFD8);
            6: measure(44, 0xFFD4);
            7: measure(48, 0xFFD0);
            8: measure(52, 0xFFCC);
            9: measure(56, 0xFFC8);
            10: measure(60, 0xFFC4);
            11: measure(64, 0xFFC0);
            12: measure(68, 0xFFBC);
            13: measure(72, 0xFFB8);
            14: measure(76, 0xFFB4);
            15: measure(80, 0xFFB0);
        }
    }

    action take_epoch() {
        @in_hash { meta.epoch = 24w0 ++ hdr.shim.epoch; }
    }

    apply {
        if (hdr.tcp.isValid()) {
            tcp_header.apply();
        } else if (hdr.udp.isValid()) {
            measure(28, 0xFFE4);
        }
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            if (hdr.shim.flags & SHIM_FLAG_ACK == 0) {
                shim_flow.apply();
            } else {
                meta.traffic_class = CLASS_CONTROL;
            }
        } else if (hdr.tcp.isValid()) {
            tcp_connection.apply();
        } else if (hdr.bth.isValid()) {
            if (hdr.bth.opcode[4:0] == BTH_ACKNOWLEDGE || hdr.bth.opcode == BTH_CONGESTION) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                roce_connection.apply();
            }
        } else if (hdr.udp.isValid()) {
            udp_connection.apply();
        }
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            meta.is_shim = 1;
        }
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            take_epoch();
        }
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION
            && hdr.shim.flags & (SHIM_FLAG_ACK | SHIM_FLAG_LAST) == SHIM_FLAG_LAST) {
            meta.last = 1;
        }
        if (hdr.tcp.isValid() && meta.payload == 0) {
            meta.traffic_class = CLASS_CONTROL;
        }
    }
}

// A register is accessed once per pass. Whether a connection opens a new iteration is known only after the job's epoch
// was read, so the packet that opens it is resubmitted, and counts the iteration in its second pass.

struct packet_number_t {
    bit<32> newest;
    bit<32> step;
}

struct position_t {
    bit<32> epoch;
    bit<32> bytes;
}

control Position(inout headers_t hdr, inout metadata_t meta) {
    // From one, so that a connection that never sent is behind.
    Register<bit<32>, job_id_t>(JOBS, 1) job_epoch;
    RegisterAction<bit<32>, job_id_t, bit<32>>(job_epoch) present_iteration = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            found = epoch;
        }
    };
    RegisterAction<bit<32>, job_id_t, bit<32>>(job_epoch) next_iteration = {
        void apply(inout bit<32> epoch, out bit<32> found) {
            epoch = epoch + 1;
            found = epoch;
        }
    };

    Register<position_t, connection_id_t>(CONNECTIONS, {0, 0}) connection_bytes;
    RegisterAction<position_t, connection_id_t, bit<32>>(connection_bytes) advance = {
        void apply(inout position_t position, out bit<32> before) {
            before = 0;
            if (position.epoch == meta.epoch) {
                before = position.bytes;
                position.bytes = position.bytes + meta.payload_bytes;
            } else {
                position.bytes = meta.payload_bytes;
            }
            position.epoch = meta.epoch;
        }
    };
    // Packets of RoCE are where their numbers say, however often they are sent.
    RegisterAction<position_t, connection_id_t, bit<32>>(connection_bytes) step_by = {
        void apply(inout position_t position, out bit<32> before) {
            if (position.epoch == meta.epoch) {
                position.bytes = position.bytes + meta.payload_bytes;
            } else {
                position.bytes = 0;
            }
            position.epoch = meta.epoch;
            before = position.bytes;
        }
    };
    Register<packet_number_t, connection_id_t>(CONNECTIONS) packet_number;
    RegisterAction<packet_number_t, connection_id_t, bit<32>>(packet_number) step_to = {
        void apply(inout packet_number_t number, out bit<32> step) {
            number.step = meta.seq - number.newest;
            number.newest = meta.seq;
            step = number.step;
        }
    };
    Register<bit<32>, connection_id_t>(CONNECTIONS) connection_last;
    RegisterAction<bit<32>, connection_id_t, bit<32>>(connection_last) exchange = {
        void apply(inout bit<32> last, out bit<32> before) {
            before = last;
            last = meta.pause_now;
        }
    };

    // A flow that ends when its connection has carried end_bytes in this iteration.
    @id(0x01000102)
    action set_segment(flow_id_t flow, bit<32> end_bytes) {
        meta.is_flow = 1;
        meta.flow = flow;
        meta.is_segment = 1;
        meta.end_bytes = end_bytes;
    }

    // A range of positions is given as prefixes: ranges of 32 bits do not exist here.
    @id(0x02000104)
    table segment {
        key = {
            meta.connection: exact @name("connection");
            meta.position: ternary @name("position");
        }
        actions = { set_segment; NoAction; }
        const default_action = NoAction();
        size = SEGMENT_TABLE_SIZE;
    }

    action recall_flow() {
        @in_hash {
            meta.flow = meta.resubmit.tag[11:0];
            meta.last = meta.resubmit.tag[15:15];
            meta.starts = meta.resubmit.tag[14:14];
        }
    }

    bit<32> missing = 0;
    bit<32> early = 0;
    bit<32> end = 0;

    action take_gap() {
        meta.before = meta.pause_now - meta.before;
        missing = meta.head_bytes |-| meta.position;
        end = meta.position + meta.payload_bytes;
    }

    action compare() {
        early = meta.gap_ticks |-| meta.before;
        end = meta.end_bytes |-| end;
    }

    action take_payload() {
        @in_hash { meta.payload_bytes = 16w0 ++ meta.payload; }
    }

    action take_mtu() {
        meta.payload_bytes = meta.mtu;
    }

    action take_mtu_again() {
        meta.payload_bytes = meta.mtu;
        meta.sent_again = 1;
    }

    // A packet of RoCE that does not go on from the one before it is sent again.
    @hidden
    table step {
        key = { meta.payload_bytes: ternary; }
        actions = { take_mtu; take_mtu_again; }
        const default_action = take_mtu();
        const entries = {
            (0): take_mtu_again();
            (0x80000000 &&& 0x80000000): take_mtu_again();
        }
    }

    apply {
        if (meta.mtu != 0) {
            meta.payload_bytes = step_to.execute(meta.sequence_of);
        } else {
            take_payload();
        }
        if (meta.is_connection == 1) {
            if (meta.pass == PASS_ITERATION) {
                meta.epoch = next_iteration.execute(meta.job);
            } else {
                meta.epoch = present_iteration.execute(meta.job);
            }
        }
        // In the second pass of PASS_OPEN its bytes were counted in the first.
        if (meta.is_connection == 1 && meta.pass == PASS_OPEN) {
            meta.is_flow = 1;
        }
        if (meta.is_connection == 1 && meta.pass == PASS_OPEN) {
            recall_flow();
        }
        if (meta.is_connection == 1 && meta.pass != PASS_OPEN && (meta.payload != 0 || hdr.udp.isValid())) {
            meta.counts = 1;
        }
        if (meta.counts == 1 && meta.drop == 0) {
            meta.before = exchange.execute(meta.connection);
        }
        if (meta.counts == 1 && meta.drop == 0) {
            if (meta.mtu != 0) {
                meta.position = step_by.execute(meta.connection);
            } else {
                meta.position = advance.execute(meta.connection);
            }
        }
        if (meta.mtu != 0) {
            step.apply();
        }
        if (meta.counts == 1 && meta.drop == 0) {
            segment.apply();
        }
        if (meta.counts == 1 && meta.drop == 0) {
            if (meta.position == 0) {
                meta.starts = 1;
            }
        }
        // A new iteration starts on a connection that may open it (is_head) after an idle gap, and only when it has
        // carried what the last iteration had to bring.
        take_gap();
        compare();
        if (meta.is_segment == 1) {
            if (end == 0) {
                meta.last = 1;
            }
        }
        if (meta.counts == 1 && meta.drop == 0 && meta.is_head == 1 && meta.pass == PASS_FIRST
            && meta.sent_again == 0) {
            if (missing == 0) {
                if (early == 0) {
                    meta.opens = 1;
                }
            }
        }
    }
}
