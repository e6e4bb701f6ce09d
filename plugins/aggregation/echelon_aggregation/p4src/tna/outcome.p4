// SPDX-License-Identifier: Apache-2.0
// What becomes of a packet, with the case numbers of the protocol's page.

control Outcome(inout headers_t hdr, inout metadata_t meta) {
    Counter<bit<64>, bit<4>>(AGGREGATED_REASONS, CounterType_t.PACKETS_AND_BYTES) aggregated;

    // It goes where its address says.
    action go() {
        meta.way = Way.ROUTE;
    }

    action go_counted(bit<4> reason) {
        aggregated.count(reason);
        meta.way = Way.ROUTE;
    }

    action end() {
        meta.way = Way.DROP;
    }

    action end_counted(bit<4> reason) {
        aggregated.count(reason);
        meta.way = Way.DROP;
    }

    action result_down() {
        aggregated.count(AGGREGATED_RESULTS);
        meta.way = Way.CHILDREN;
        hdr.shim.flow = meta.result_flow;
    }

    action result_up() {
        aggregated.count(AGGREGATED_RESULTS);
        meta.way = Way.PARENT;
        hdr.shim.flow = meta.result_flow;
    }

    // It comes back for its values, and ends then.
    action keep() {
        aggregated.count(AGGREGATED_KEPT);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_KEEP;
    }

    action keep_others() {
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_KEPT;
    }

    // It comes back for the sum.
    action load(bit<4> reason, bit<8> to) {
        aggregated.count(reason);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_LOAD;
        meta.bridge.to = to;
    }

    // It comes back for the second half, or to be addressed.
    action load_others() {
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_FINISH;
    }

    action send_at_once(bit<8> to) {
        aggregated.count(AGGREGATED_COMPLETE);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_FINISH;
        meta.bridge.to = to;
    }

    // The place is freed, so that the block is sent again.
    action give_up() {
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_FINISH;
        meta.bridge.to = TO_NOBODY + FREES;
    }

    action unlock() {
        aggregated.count(AGGREGATED_STALE);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_FINISH;
    }

    action send_up() {
        meta.way = Way.PARENT;
    }

    action send_down() {
        meta.way = Way.CHILDREN;
    }

    action send_back() {
        meta.way = Way.SENDER;
    }

    @hidden
    table outcome {
        key = {
            meta.act: ternary;
            meta.op: ternary;
            meta.complete: ternary;
            meta.is_all: ternary;
            meta.root: ternary;
            meta.form: ternary;
            meta.lock: ternary;
            meta.bridge.to: ternary;
            meta.lacks: ternary;
        }
        actions = {
            go; go_counted; end; end_counted; result_down; result_up; keep; keep_others; load; load_others; send_at_once;
            give_up; unlock; send_up; send_down; send_back;
        }
        const default_action = go();
        const entries = {
            (Act.FORWARD, _, _, _, _, _, _, _, _): go();
            (Act.FORGED, _, _, _, _, _, _, _, _): end_counted(AGGREGATED_FORGED);
            (Act.UNKNOWN, _, _, _, _, _, _, _, _): end_counted(AGGREGATED_UNKNOWN);
            (Act.MALFORMED, _, _, _, _, _, _, _, _): end_counted(AGGREGATED_MALFORMED);
            (Act.RESULT_DOWN, _, _, _, _, _, _, _, _): result_down();
            (Act.RESULT_UP, _, _, _, _, _, _, _, _): result_up();
            (Act.KEEP, _, _, _, _, _, _, _, _): keep_others();
            (Act.KEPT, _, _, _, _, _, _, _, _): end();
            (Act.LOAD, _, _, _, _, _, _, _, _): load_others();
            // Something is missing in the sum.
            (Act.FINISH, _, _, _, _, _, _, _, ONLY_FIRST): give_up();
            (Act.RELEASE, _, _, _, _, _, _, _, ONLY_FIRST): end();
            (Act.RELEASE, _, _, _, _, _, _, TO_NOBODY + FREES, _): end();
            (Act.FINISH, _, _, _, _, _, _, TO_PARENT, _): send_up();
            (Act.FINISH, _, _, _, _, _, _, TO_CHILDREN, _): send_down();
            (Act.FINISH, _, _, _, _, _, _, TO_SENDER, _): send_back();
            (Act.FINISH, _, _, _, _, _, _, _, _): end();
            (Act.RELEASE, _, _, _, _, _, _, TO_PARENT + FREES, _): send_up();
            (Act.RELEASE, _, _, _, _, _, _, _, _): go();
            // Cases 3 and 4.
            (_, Op.PASS, _, _, _, _, _, _, _): go_counted(AGGREGATED_PASSED);
            // Case 6. What was no tree's before is not to stay this one's.
            (_, Op.STALE, _, _, _, _, ONLY_FIRST, _, _): unlock();
            (_, Op.STALE, _, _, _, _, _, _, _): end_counted(AGGREGATED_STALE);
            // Case 7: another tree's incomplete sum stays.
            (_, Op.BUSY, _, 1, 0, _, _, _, _): send_at_once(TO_PARENT);
            (_, Op.BUSY, _, 1, 1, _, _, _, _): send_at_once(TO_CHILDREN);
            (_, Op.BUSY, _, _, _, _, _, _, _): go_counted(AGGREGATED_PASSED);
            // Case 5, and 1 with the last worker.
            (_, Op.TAKE, _, 1, 0, _, _, _, _): load(AGGREGATED_COMPLETE, TO_PARENT);
            (_, Op.TAKE, _, 1, 1, _, _, _, _): load(AGGREGATED_COMPLETE, TO_CHILDREN);
            (_, Op.TAKE, _, _, _, Form.VALUES, _, _, _): keep();
            (_, Op.TAKE, _, _, _, _, _, _, _): end_counted(AGGREGATED_KEPT);
            (_, Op.ADD, NEITHER, _, 0, _, _, _, _): load(AGGREGATED_COMPLETE, TO_PARENT);
            (_, Op.ADD, NEITHER, _, 1, _, _, _, _): load(AGGREGATED_COMPLETE, TO_CHILDREN);
            (Act.AGAIN, Op.ADD, _, _, _, _, _, _, _): load(AGGREGATED_FLUSHED, TO_FALLBACK + FREES);
            (_, Op.ADD, _, _, _, Form.VALUES, _, _, _): keep();
            (_, Op.ADD, _, _, _, _, _, _, _): end_counted(AGGREGATED_KEPT);
            // Case 2.
            (Act.AGAIN, Op.REPEAT, NEITHER, _, 0, _, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_PARENT + FREES);
            (_, Op.REPEAT, NEITHER, _, 0, _, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_PARENT);
            (_, Op.REPEAT, NEITHER, _, 1, _, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_SENDER);
            (Act.AGAIN, Op.REPEAT, _, _, _, _, _, _, _): load(AGGREGATED_FLUSHED, TO_FALLBACK + FREES);
            (_, Op.REPEAT, _, _, _, _, _, _, _): end_counted(AGGREGATED_DUPLICATE);
        }
    }

    action use_values(bit<8> how) {
        meta.bridge.values = how;
    }

    // What is done with the values when the packet has come back, and with the second half then.
    @hidden
    table values {
        key = {
            meta.bridge.values: ternary;
            meta.op: ternary;
            meta.form: ternary;
            meta.place_state: ternary;
        }
        actions = { use_values; }
        const default_action = use_values(VALUES_STAY);
        const entries = {
            (VALUES_ADD, _, _, _): use_values(OTHERS_ADD);
            (VALUES_WRITE, _, _, _): use_values(OTHERS_WRITE);
            (VALUES_READ, _, _, _): use_values(OTHERS_READ);
            (VALUES_MAKE, _, _, _): use_values(OTHERS_MAKE);
            (_, Op.TAKE, Form.VALUES, _): use_values(VALUES_WRITE);
            (_, Op.ADD, Form.VALUES, PLACE_VALUES &&& PLACE_VALUES): use_values(VALUES_ADD);
            (_, Op.ADD, Form.VALUES, _): use_values(VALUES_WRITE);
            (_, Op.ADD, _, PLACE_VALUES &&& PLACE_VALUES): use_values(VALUES_MAKE);
            (_, Op.REPEAT, Form.VALUES, PLACE_VALUES &&& PLACE_VALUES): use_values(VALUES_READ);
            (_, Op.REPEAT, Form.VALUES, _): use_values(VALUES_LOSE);
            (_, Op.REPEAT, _, PLACE_VALUES &&& PLACE_VALUES): use_values(VALUES_MAKE);
        }
    }

    action set_flags(bit<8> flags) {
        hdr.aggregation.flags = flags;
    }

    // A sum's flags are the place's, and its packet's AGAIN.
#define FLAGS_ROW(state_bits, flag_bits) \
            (Op.TAKE &&& Op.TAKE, state_bits &&& 0x23, 0 &&& AGGREGATION_AGAIN): set_flags(flag_bits); \
            (Op.TAKE &&& Op.TAKE, state_bits &&& 0x23, _): set_flags(flag_bits + AGGREGATION_AGAIN);

    @hidden
    table flags {
        key = {
            meta.op: ternary;
            meta.sum_state: ternary;
            hdr.aggregation.flags: ternary;
        }
        actions = { set_flags; NoAction; }
        const default_action = NoAction();
        const entries = {
            FLAGS_ROW(0x00, 8)
            FLAGS_ROW(0x01, 9)
            FLAGS_ROW(0x02, 10)
            FLAGS_ROW(0x03, 11)
            FLAGS_ROW(0x20, 0)
            FLAGS_ROW(0x21, 1)
            FLAGS_ROW(0x22, 2)
            FLAGS_ROW(0x23, 3)
        }
    }

    apply {
        outcome.apply();
        values.apply();
        flags.apply();
    }
}

// The headers of a sum that goes on.
control Loaded(inout headers_t hdr, inout metadata_t meta) {
    action up() {
        hdr.shim.flow = meta.sum_flow;
    }

    action down() {
        hdr.aggregation.kind = AGGREGATION_RESULT;
        hdr.aggregation.flags = hdr.aggregation.flags & ~(bit<8>)AGGREGATION_AGAIN;
        hdr.udp.src_port = AGGREGATION_UDP_PORT;
        hdr.shim.flow = meta.result_flow;
        hdr.ipv4.src = hdr.ipv4.dst;
    }

    action back() {
        hdr.aggregation.kind = AGGREGATION_RESULT;
        hdr.aggregation.flags = hdr.aggregation.flags & ~(bit<8>)AGGREGATION_AGAIN;
        hdr.udp.dst_port = hdr.udp.src_port;
        hdr.udp.src_port = AGGREGATION_UDP_PORT;
        hdr.shim.flow = meta.result_flow;
        ipv4_t fallback = hdr.ipv4.dst;
        hdr.ipv4.dst = hdr.ipv4.src;
        hdr.ipv4.src = fallback;
        mac_t sender = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = sender;
    }

    @hidden
    table direction {
        key = { meta.bridge.to: ternary; }
        actions = { up; down; back; NoAction; }
        const default_action = NoAction();
        const entries = {
            TO_PARENT &&& 7: up();
            TO_CHILDREN &&& 7: down();
            TO_SENDER &&& 7: back();
        }
    }

    action with_values() {
        hdr.udp.length = VALUES_UDP_BYTES;
        hdr.ipv4.total_len = 20 + VALUES_UDP_BYTES;
        hdr.udp.checksum = 0;
    }

    action without_values() {
        hdr.udp.length = EMPTY_UDP_BYTES;
        hdr.ipv4.total_len = 20 + EMPTY_UDP_BYTES;
        hdr.udp.checksum = 0;
    }

    apply {
        if (meta.bridge.step == STEP_FINISH) {
            if (hdr.aggregation.flags & AGGREGATION_EMPTY == 0) {
                with_values();
            } else {
                without_values();
            }
        }
        if (meta.bridge.step == STEP_FINISH) {
            direction.apply();
        }
    }
}
