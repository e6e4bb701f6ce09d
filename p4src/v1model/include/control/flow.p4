// SPDX-License-Identifier: Apache-2.0
// The plan's decision for a flow: its path and its ranking, in one entry, so that both change at once.

control Flow(inout headers_t hdr, inout metadata_t meta) {
    direct_counter(CounterType.packets_and_bytes) flow_bytes;

#define COUNT_FLOW
#include "../../../shared/path.p4"
#define RANKING_ACTION
#include "../../../build/v1model/rankings.p4"

    @id(0x02000105)
    table flow {
        key = { meta.flow: exact @name("flow"); }
        actions = {
#define RANKING_NAME
#include "../../../build/v1model/rankings.p4"
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
