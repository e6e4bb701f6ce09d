// SPDX-License-Identifier: Apache-2.0
// Explicit congestion notification (RFC 3168) by the depth of the packet's own queue when the packet entered it, in
// cells of 80 bytes (Tofino 2: 176).

const bit<2> ECN_NOT_CAPABLE = 0;
const bit<2> ECN_CONGESTION_EXPERIENCED = 3;

control QueueDepth(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md) {
    @id(0x01000502)
    action mark_from(bit<32> cells) {
        meta.threshold = cells;
        meta.has_threshold = 1;
    }

    @id(0x02000502)
    table ecn_threshold {
        key = {
            eg_intr_md.egress_port: exact @name("port");
            meta.queue: exact @name("queue");
        }
        actions = { mark_from; NoAction; }
        const default_action = NoAction();
        size = ECN_TABLE_SIZE;
    }

    action take_depth() {
        @in_hash { meta.depth = 13w0 ++ eg_intr_md.enq_qdepth; }
    }

    action take_room() {
        meta.room = meta.threshold |-| meta.depth;
    }

    apply {
        ecn_threshold.apply();
        take_depth();
        take_room();
        if (meta.has_threshold == 1 && hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NOT_CAPABLE && hdr.ipv4.ihl == 5) {
            if (meta.room == 0) {
                hdr.ipv4.ecn = ECN_CONGESTION_EXPERIENCED;
            }
        }
    }
}
