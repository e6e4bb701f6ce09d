// SPDX-License-Identifier: Apache-2.0
// Explicit congestion notification (RFC 3168) by the depth of the packet's own queue, or, where the queue is outside
// the switch, by a virtual queue: a byte counter per port that drains at a configured rate.

const bit<2> ECN_NOT_CAPABLE = 0;
const bit<2> ECN_CONGESTION_EXPERIENCED = 3;

control VirtualQueue(inout headers_t hdr, in port_t port, in bit<32> length_bytes, in time_us_t now) {
    register<bit<48>>(PORTS) backlog_mb;
    register<time_us_t>(PORTS) updated_us;
    bit<32> drain_bits_per_ms = 0;
    bit<32> threshold_bytes = 0;

    @id(0x01000501)
    action drain(bit<32> bits_per_ms, bit<32> mark_above_bytes) {
        drain_bits_per_ms = bits_per_ms;
        threshold_bytes = mark_above_bytes;
    }

    @id(0x02000501)
    table virtual_queue {
        key = { port: exact @name("port"); }
        actions = { drain; NoAction; }
        default_action = NoAction();
        size = PORTS;
    }

    apply {
        if (virtual_queue.apply().hit) {
            // In thousandths of a bit, so that (elapsed us) * (bits per ms) needs no division. The elapsed time is
            // capped so that the product fits.
            bit<48> backlog;
            time_us_t before;
            backlog_mb.read(backlog, (bit<32>)port);
            updated_us.read(before, (bit<32>)port);
            bit<48> elapsed = now - before;
            if (elapsed > 0xFFFF) {
                elapsed = 0xFFFF;
            }
            bit<48> drained = elapsed * (bit<48>)drain_bits_per_ms;
            if (drained >= backlog) {
                backlog = 0;
            } else {
                backlog = backlog - drained;
            }
            backlog = backlog + (bit<48>)length_bytes * 8000;
            backlog_mb.write((bit<32>)port, backlog);
            updated_us.write((bit<32>)port, now);
            if (backlog > (bit<48>)threshold_bytes * 8000 && hdr.ipv4.ecn != ECN_NOT_CAPABLE) {
                hdr.ipv4.ecn = ECN_CONGESTION_EXPERIENCED;
            }
        }
    }
}

control QueueDepth(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
    bit<19> threshold_packets = 0;

    @id(0x01000502)
    action mark_from(bit<19> packets) {
        threshold_packets = packets;
    }

    @id(0x02000502)
    table ecn_threshold {
        key = {
            standard_metadata.egress_port: exact @name("port");
            meta.queue: exact @name("queue");
        }
        actions = { mark_from; NoAction; }
        default_action = NoAction();
        size = PORT_QUEUES;
    }

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NOT_CAPABLE && hdr.ipv4.ihl == 5) {
            if (ecn_threshold.apply().hit && standard_metadata.enq_qdepth >= threshold_packets) {
                hdr.ipv4.ecn = ECN_CONGESTION_EXPERIENCED;
            }
        }
    }
}
