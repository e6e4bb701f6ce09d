// SPDX-License-Identifier: Apache-2.0
// What the tree's entries say, where the block's place is, and what the packet is to the switch.

control Tree(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md) {
    @id(0x01000801)
    action from_child(bit<32> workers_behind) {
        meta.member = Member.CHILD;
        meta.child_workers = workers_behind;
    }

    @id(0x01000802)
    action from_parent() {
        meta.member = Member.PARENT;
    }

    // A child's port that also leads to the fallback.
    @id(0x01000803)
    action from_fallback(bit<32> workers_behind) {
        meta.member = Member.FALLBACK;
        meta.child_workers = workers_behind;
    }

    @id(0x02000801)
    table aggregation_member {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            ig_intr_md.ingress_port: exact @name("port");
        }
        actions = { from_child; from_parent; from_fallback; NoAction; }
        const default_action = NoAction();
        size = AGGREGATION_MEMBERS;
    }

    // The places of a tree are first .. first + mask, where first is a multiple of mask + 1; block b is at
    // first + ((b + start) & mask). Nobody is due earlier than others here: `deadline` is `first`.
    @id(0x01000804)
    action aggregate(bit<32> first, bit<32> mask, bit<32> start, bit<32> all, bit<2> take, bit<1> is_root,
                     port_t parent_port, bit<16> group, bit<16> up_flow, bit<16> down_flow) {
        meta.known = Known.AGGREGATED;
        meta.first_place = first;
        meta.place_mask = mask;
        meta.block_place = hdr.aggregation.block + start;
        meta.all_workers = all;
        meta.may_take = take;
        meta.root = is_root;
        meta.to_parent = parent_port;
        meta.children = group;
        meta.sum_flow = up_flow;
        meta.result_flow = down_flow;
    }

    // The switch has no memory for the tree: packets go on as they are.
    @id(0x01000805)
    action pass_on() {
        meta.known = Known.PASSED_ON;
    }

    @id(0x02000802)
    table aggregation_tree {
        key = {
            hdr.aggregation.tree: exact @name("tree");
            hdr.aggregation.session: exact @name("session");
        }
        actions = { aggregate; pass_on; NoAction; }
        const default_action = NoAction();
        size = AGGREGATION_TREES;
    }

    action mask_place() {
        meta.block_place = meta.block_place & meta.place_mask;
    }

    action add_first_place() {
        meta.block_place = meta.block_place | meta.first_place;
    }

    action take_foreign() {
        meta.foreign_workers = hdr.aggregation.workers & ~meta.child_workers;
    }

    action take_missing() {
        meta.missing_workers = meta.child_workers & ~hdr.aggregation.workers;
    }

    action take_rest() {
        meta.rest = meta.all_workers & ~hdr.aggregation.workers;
    }

    action take_run() {
        @in_hash { meta.run = hdr.aggregation.tree ++ hdr.aggregation.session; }
    }

#define WORKER_ROW(n) ((bit<32>)1 << n): is_worker(n);
    action is_worker(bit<8> number) {
        meta.worker = number;
        meta.is_one = 1;
    }

    @hidden
    table worker_of {
        key = { hdr.aggregation.workers: exact; }
        actions = { is_worker; NoAction; }
        const default_action = NoAction();
        const entries = { EACH_WORKER(WORKER_ROW) }
    }

#define FIRST_ROW(n) ((bit<32>)1 << n) &&& ((bit<32>)0xFFFFFFFF >> (31 - n)): begins_at(n);
    action begins_at(bit<8> number) {
        meta.first_worker = number;
    }

    @hidden
    table first_worker_of {
        key = { meta.child_workers: ternary; }
        actions = { begins_at; NoAction; }
        const default_action = NoAction();
        const entries = { EACH_WORKER(FIRST_ROW) }
    }

    action sort(Act act, Part part) {
        meta.act = act;
        meta.part = part;
    }

    // In the order of the protocol's page.
    @hidden
    table kind_of_packet {
        key = {
            meta.drop: ternary;
            meta.bridge.step: ternary;
            meta.bridge.to: ternary;
            meta.form: ternary;
            meta.known: ternary;
            hdr.aggregation.kind: ternary;
            meta.member: ternary;
            meta.root: ternary;
            hdr.aggregation.workers: ternary;
            meta.foreign_workers: ternary;
            meta.missing_workers: ternary;
            meta.is_one: ternary;
            hdr.aggregation.flags: ternary;
        }
        actions = { sort; }
        const default_action = sort(Act.FORGED, Part.OTHER);
        const entries = {
            (1, _, _, _, _, _, _, _, _, _, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, STEP_KEEP, _, _, _, _, _, _, _, _, _, _, _): sort(Act.KEEP, Part.OTHER);
            (_, STEP_KEPT, _, _, _, _, _, _, _, _, _, _, _): sort(Act.KEPT, Part.OTHER);
            (_, STEP_LOAD, _, _, _, _, _, _, _, _, _, _, _): sort(Act.LOAD, Part.OTHER);
            (_, STEP_FINISH, FREES &&& FREES, _, _, _, _, _, _, _, _, _, _): sort(Act.RELEASE, Part.OTHER);
            (_, STEP_FINISH, _, _, _, _, _, _, _, _, _, _, _): sort(Act.FINISH, Part.OTHER);
            (_, _, _, Form.OTHER, _, _, _, _, _, _, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, Form.MALFORMED, _, _, _, _, _, _, _, _, _): sort(Act.MALFORMED, Part.OTHER);
            (_, _, _, _, Known.UNKNOWN, _, _, _, _, _, _, _, _): sort(Act.UNKNOWN, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_RESULT, Member.STRANGER, _, _, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_RESULT, Member.CHILD, _, _, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, Known.PASSED_ON, AGGREGATION_RESULT, _, _, _, _, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_RESULT, Member.PARENT, _, _, _, _, _, _): sort(Act.RESULT_DOWN, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_RESULT, _, 1, _, _, _, _, _): sort(Act.RESULT_DOWN, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_RESULT, _, _, _, _, _, _, _): sort(Act.RESULT_UP, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_REQUEST, Member.STRANGER, _, _, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_REQUEST, Member.CHILD, _, _, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_REQUEST, _, _, _, _, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, _, _, _, Member.PARENT, _, _, _, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, _, _, _, Member.STRANGER, _, _, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, _, _, _, _, 0, _, _, _, _): sort(Act.FORGED, Part.OTHER);
            (_, _, _, _, _, AGGREGATION_ANSWER, _, _, _, 0, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, _, Known.PASSED_ON, _, _, _, _, 0, _, _, _): sort(Act.FORWARD, Part.OTHER);
            (_, _, _, _, _, _, _, _, _, 0, 0, 1, 0 &&& AGGREGATION_AGAIN): sort(Act.CONTRIBUTE, Part.WORKER);
            (_, _, _, _, _, _, _, _, _, 0, _, 1, 0 &&& AGGREGATION_AGAIN): sort(Act.CONTRIBUTE, Part.ONE_OF_MANY);
            (_, _, _, _, _, _, _, _, _, 0, 0, _, 0 &&& AGGREGATION_AGAIN): sort(Act.CONTRIBUTE, Part.ALL_OF_MANY);
            (_, _, _, _, _, _, _, _, _, 0, 0, 1, _): sort(Act.AGAIN, Part.WORKER);
            (_, _, _, _, _, _, _, _, _, 0, _, 1, _): sort(Act.AGAIN, Part.ONE_OF_MANY);
            (_, _, _, _, _, _, _, _, _, 0, 0, _, _): sort(Act.AGAIN, Part.ALL_OF_MANY);
            (_, _, _, _, _, _, _, _, _, 0, _, _, _): sort(Act.PASS, Part.OTHER);
        }
    }

    action mark() {
        hdr.aggregation.flags = hdr.aggregation.flags | AGGREGATION_MARKED;
    }

    action take_flags() {
        meta.state = hdr.aggregation.flags & (AGGREGATION_OVERFLOW | AGGREGATION_MARKED);
    }

    action has_values() {
        meta.state = meta.state | PLACE_VALUES;
        meta.adds = 1;
    }

    apply {
        aggregation_member.apply();
        aggregation_tree.apply();
        worker_of.apply();
        take_run();
        mask_place();
        take_foreign();
        take_missing();
        take_rest();
        first_worker_of.apply();
        add_first_place();
        kind_of_packet.apply();
        if (meta.rest == 0) {
            meta.is_all = 1;
        }
        if ((meta.act == Act.CONTRIBUTE || meta.act == Act.AGAIN || meta.act == Act.PASS)
            && hdr.ipv4.ecn == ECN_CONGESTION_EXPERIENCED) {
            mark();
        }
        take_flags();
        if (meta.form == Form.VALUES) {
            has_values();
        }
    }
}
