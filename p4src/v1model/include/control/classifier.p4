// SPDX-License-Identifier: Apache-2.0
// Which flow of which iteration does a packet belong to? By the shim where the sender writes one; otherwise by its
// connection (5-tuple) and the bytes that the connection has carried since its iteration started.

control Classifier(inout headers_t hdr, inout metadata_t meta, in time_us_t now) {
    register<valid_epoch_t>(JOBS) job_epoch;
    register<bit<32>>(CONNECTIONS) connection_bytes;
    register<valid_epoch_t>(CONNECTIONS) connection_epoch;
    register<time_us_t>(CONNECTIONS) connection_last_us;

    @id(0x01000101)
    action set_flow(flow_id_t flow) {
        meta.is_flow = 1;
        meta.flow = flow;
    }

    // As above, for a flow that ends when its connection has carried end_bytes in this iteration.
    @id(0x01000102)
    action set_segment(flow_id_t flow, bit<32> end_bytes) {
        set_flow(flow);
        meta.last = (bit<1>)(meta.position + meta.payload_bytes >= end_bytes);
    }

    @id(0x02000101)
    table shim_flow {
        key = {
            hdr.shim.job: exact @name("job");
            hdr.shim.flow: exact @name("flow");
        }
        actions = { set_flow; NoAction; }
        default_action = NoAction();
        size = FLOW_TABLE_SIZE;
    }

    @id(0x01000103)
    action set_connection(connection_id_t connection, job_id_t job, bit<1> is_head, bit<32> gap_us,
                          bit<32> head_bytes) {
        meta.is_connection = 1;
        meta.connection = connection;
        meta.job = job;
        meta.is_head = is_head;
        meta.gap_us = gap_us;
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

    // A new iteration starts on a connection that may open it (is_head) after an idle gap, and only when it has seen
    // what the last iteration had to bring: a retransmission time-out or a compute stall alone opens nothing.
    // Connections that did not open it learn of it by job_epoch and count from zero again.
    action locate() {
        valid_epoch_t epoch;
        valid_epoch_t mine;
        bit<32> bytes;
        time_us_t last_us;
        job_epoch.read(epoch, (bit<32>)meta.job);
        connection_epoch.read(mine, (bit<32>)meta.connection);
        connection_bytes.read(bytes, (bit<32>)meta.connection);
        connection_last_us.read(last_us, (bit<32>)meta.connection);
        if (epoch == 0 || (meta.is_head == 1 && mine == epoch && bytes >= meta.head_bytes
                           && now - last_us > (time_us_t)meta.gap_us)) {
            epoch = 1w1 ++ (epoch[7:0] + 1);
            job_epoch.write((bit<32>)meta.job, epoch);
        }
        if (mine != epoch) {
            meta.reopened = 1;
            bytes = 0;
            connection_epoch.write((bit<32>)meta.connection, epoch);
        }
        meta.epoch = epoch[7:0];
        meta.position = bytes;
        connection_bytes.write((bit<32>)meta.connection, bytes + meta.payload_bytes);
        connection_last_us.write((bit<32>)meta.connection, now);
    }

    apply {
        if (hdr.shim.isValid() && hdr.shim.version == SHIM_VERSION) {
            if (hdr.shim.flags & SHIM_FLAG_ACK != 0) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                meta.epoch = hdr.shim.epoch;
                shim_flow.apply();
                meta.last = (bit<1>)(hdr.shim.flags & SHIM_FLAG_LAST != 0);
            }
        } else if (hdr.tcp.isValid()) {
            meta.payload_bytes = (bit<32>)hdr.ipv4.total_len - 20 - ((bit<32>)hdr.tcp.data_offset << 2);
            if (meta.payload_bytes == 0) {
                meta.traffic_class = CLASS_CONTROL;
            } else {
                tcp_connection.apply();
            }
        } else if (hdr.udp.isValid()) {
            meta.payload_bytes = (bit<32>)hdr.ipv4.total_len - 28;
            udp_connection.apply();
        }
        if (meta.is_connection == 1) {
            locate();
            segment.apply();
        }
    }
}
