// SPDX-License-Identifier: Apache-2.0
// The queue leaves the pipeline in two ways at once: as the priority of the switch's own queues and as DSCP, for a
// shaper outside the switch and for fixed-function switches downstream.

control Marking(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(0x01000401)
    action set_dscp(bit<6> dscp) {
        hdr.ipv4.dscp = dscp;
    }

    @id(0x02000401)
    table queue_to_dscp {
        key = { meta.queue: exact @name("queue"); }
        actions = { set_dscp; NoAction; }
        default_action = NoAction();
        size = QUEUES;
    }

    // Lossless queues of RoCE are chosen by DSCP: what senders wrote stays, but for what is configured here.
    @id(0x02000402)
    table roce_to_dscp {
        key = { meta.queue: exact @name("queue"); }
        actions = { set_dscp; NoAction; }
        default_action = NoAction();
        size = QUEUES;
    }

    apply {
        standard_metadata.priority = meta.queue;
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
            if (hdr.bth.isValid()) {
                roce_to_dscp.apply();
            } else {
                queue_to_dscp.apply();
            }
        }
    }
}
