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

    // Egress adds the values, and ends the packet.
    action keep() {
        aggregated.count(AGGREGATED_KEPT);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_KEEP;
    }

    // The sum comes back with one half of its values.
    action load(bit<4> reason, bit<8> to) {
        aggregated.count(reason);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_VERIFY;
        meta.bridge.to = to;
    }

    action send_at_once(bit<8> to) {
        aggregated.count(AGGREGATED_COMPLETE);
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_SEND;
        meta.bridge.to = to;
    }

    action load_others() {
        meta.way = Way.LOOP;
        meta.bridge.step = STEP_SEND;
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
            meta.reached: ternary;
            meta.is_all: ternary;
            meta.root: ternary;
            meta.form: ternary;
            meta.lock: ternary;
            meta.bridge.to: ternary;
        }
        actions = {
            go; go_counted; end; end_counted; result_down; result_up; keep; load; send_at_once; load_others; send_up;
            send_down; send_back;
        }
        const default_action = go();
        const entries = {
            (Act.FORWARD, _, _, _, _, _, _, _): go();
            (Act.FORGED, _, _, _, _, _, _, _): end_counted(AGGREGATED_FORGED);
            (Act.UNKNOWN, _, _, _, _, _, _, _): end_counted(AGGREGATED_UNKNOWN);
            (Act.MALFORMED, _, _, _, _, _, _, _): end_counted(AGGREGATED_MALFORMED);
            (Act.RESULT_DOWN, _, _, _, _, _, _, _): result_down();
            (Act.RESULT_UP, _, _, _, _, _, _, _): result_up();
            (Act.SEND, _, _, _, _, _, _, TO_PARENT &&& 7): send_up();
            (Act.SEND, _, _, _, _, _, _, TO_CHILDREN &&& 7): send_down();
            (Act.SEND, _, _, _, _, _, _, TO_SENDER &&& 7): send_back();
            (Act.SEND, _, _, _, _, _, _, _): go();
            // The place was another's in the meantime, or is to be unlocked only.
            (_, Op.CHECK, NEITHER, _, _, _, _, TO_NOBODY &&& 7): end();
            (_, Op.CHECK, NEITHER, _, _, _, _, _): load_others();
            (Act.VERIFY, _, _, _, _, _, _, _): end();
            (Act.RELEASE, _, _, _, _, _, _, _): end();
            // Cases 3 and 4.
            (_, Op.PASS, _, _, _, _, _, _): go_counted(AGGREGATED_PASSED);
            // Case 6. What was no tree's before is not to stay this one's.
            (_, Op.STALE, _, _, _, _, ONLY_FIRST, _): load(AGGREGATED_STALE, TO_NOBODY);
            (_, Op.STALE, _, _, _, _, _, _): end_counted(AGGREGATED_STALE);
            // Case 7: another tree's incomplete sum stays.
            (_, Op.BUSY, _, 1, 0, _, _, _): send_at_once(TO_PARENT);
            (_, Op.BUSY, _, 1, 1, _, _, _): send_at_once(TO_CHILDREN);
            (_, Op.BUSY, _, _, _, _, _, _): go_counted(AGGREGATED_PASSED);
            // Case 5, and 1 with the last worker.
            (_, Op.TAKE, _, 1, 0, _, _, _): load(AGGREGATED_COMPLETE, TO_PARENT);
            (_, Op.TAKE, _, 1, 1, _, _, _): load(AGGREGATED_COMPLETE, TO_CHILDREN);
            (_, Op.TAKE, _, _, _, Form.VALUES, _, _): keep();
            (_, Op.TAKE, _, _, _, _, _, _): end_counted(AGGREGATED_KEPT);
            (_, Op.ADD, NEITHER, _, 0, _, _, _): load(AGGREGATED_COMPLETE, TO_PARENT);
            (_, Op.ADD, NEITHER, _, 1, _, _, _): load(AGGREGATED_COMPLETE, TO_CHILDREN);
            (Act.AGAIN, Op.ADD, _, _, _, _, _, _): load(AGGREGATED_FLUSHED, TO_FALLBACK + FREES);
            (_, Op.ADD, _, _, _, Form.VALUES, _, _): keep();
            (_, Op.ADD, _, _, _, _, _, _): end_counted(AGGREGATED_KEPT);
            // Case 2.
            (Act.AGAIN, Op.REPEAT, NEITHER, _, 0, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_PARENT + FREES);
            (_, Op.REPEAT, NEITHER, _, 0, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_PARENT);
            (_, Op.REPEAT, NEITHER, _, 1, _, _, _): load(AGGREGATED_SENT_AGAIN, TO_SENDER);
            (Act.AGAIN, Op.REPEAT, _, _, _, _, _, _): load(AGGREGATED_FLUSHED, TO_FALLBACK + FREES);
            (_, Op.REPEAT, _, _, _, _, _, _): end_counted(AGGREGATED_DUPLICATE);
        }
    }

    action use_values(bit<8> how) {
        meta.bridge.values = how;
    }

    // What egress does with the values.
    @hidden
    table values {
        key = {
            meta.op: ternary;
            meta.form: ternary;
            meta.place_state: ternary;
            hdr.aggregation.flags: ternary;
        }
        actions = { use_values; }
        const default_action = use_values(VALUES_STAY);
        const entries = {
            (Op.TAKE, Form.VALUES, _, _): use_values(VALUES_WRITE);
            (Op.ADD, Form.VALUES, PLACE_VALUES &&& PLACE_VALUES, _): use_values(VALUES_ADD);
            (Op.ADD, Form.VALUES, _, _): use_values(VALUES_WRITE);
            (Op.ADD, _, PLACE_VALUES &&& PLACE_VALUES, _): use_values(VALUES_MAKE);
            (Op.REPEAT, Form.VALUES, PLACE_VALUES &&& PLACE_VALUES, _): use_values(VALUES_READ);
            (Op.REPEAT, Form.VALUES, _, _): use_values(VALUES_LOSE);
            (Op.REPEAT, _, PLACE_VALUES &&& PLACE_VALUES, _): use_values(VALUES_MAKE);
            (Op.CHECK, _, _, 0 &&& AGGREGATION_EMPTY): use_values(VALUES_READ_OTHERS);
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
            meta.state: ternary;
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

// The headers of a sum that goes on, when it has come back with all of its values.
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
        if (meta.bridge.step == STEP_SEND) {
            if (hdr.aggregation.flags & AGGREGATION_EMPTY == 0) {
                with_values();
            } else {
                without_values();
            }
        }
        if (meta.bridge.step == STEP_SEND) {
            direction.apply();
        }
    }
}
