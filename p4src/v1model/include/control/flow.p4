// SPDX-License-Identifier: Apache-2.0
// What the plan decided for a flow: its path and its ranking, in one entry, so that both change at once.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) flow_bytes;

    @id(0x02000105)
    table flow {
        key = { meta.flow: exact @name("flow"); }
        actions = {
            fixed(hdr, meta);
            deadline(hdr, meta);
            attained(hdr, meta);
            window(hdr, meta);
            NoAction;
        }
        default_action = NoAction();
        size = FLOW_TABLE_SIZE;
        counters = flow_bytes;
    }

    apply {
        flow.apply();
    }
}
