// SPDX-License-Identifier: Apache-2.0
// The plan's decision for a flow: its path and its ranking, in one entry, so that both change at once.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) flow_bytes;

    // A direct counter has to be counted in each action of its table.
#define COUNT_FLOW flow_bytes.count();
#include "../../../shared/path.p4"
#define RANKING_ACTION
#include "../../../build/tna/rankings.p4"

    action unranked() {
        flow_bytes.count();
    }

    @id(0x02000105)
    table flow {
        key = { meta.flow: exact @name("flow"); }
        actions = {
#define RANKING_NAME
#include "../../../build/tna/rankings.p4"
            @defaultonly unranked;
        }
        const default_action = unranked();
        size = FLOW_TABLE_SIZE;
        counters = flow_bytes;
    }

    apply {
        flow.apply();
    }
}
