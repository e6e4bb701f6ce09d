// SPDX-License-Identifier: Apache-2.0
// The queue as DSCP, for fixed-function switches downstream. In egress, where there is room. Only a program that defines
// MARKS_ROCE tells RoCE apart.

control Marking(inout headers_t hdr, inout egress_metadata_t meta) {
    @id(0x01000401)
    action set_dscp(bit<6> dscp) {
        hdr.ipv4.dscp = dscp;
    }

    @id(0x02000401)
    table queue_to_dscp {
        key = { meta.queue: exact @name("queue"); }
        actions = { set_dscp; NoAction; }
        const default_action = NoAction();
        size = QUEUES;
    }

#ifdef MARKS_ROCE
    // Lossless queues of RoCE are chosen by DSCP: what senders wrote stays, but for what is configured here.
    @id(0x02000402)
    table roce_to_dscp {
        key = { meta.queue: exact @name("queue"); }
        actions = { set_dscp; NoAction; }
        const default_action = NoAction();
        size = QUEUES;
    }
#endif

    apply {
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
#ifdef MARKS_ROCE
            if (hdr.bth.isValid()) {
                roce_to_dscp.apply();
            } else
#endif
            queue_to_dscp.apply();
        }
    }
}
