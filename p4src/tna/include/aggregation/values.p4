// SPDX-License-Identifier: Apache-2.0
// The values of all places, two in a cell of each register: 32 registers over the stages of egress. A register gives one
// of the two, so that a sum that goes on passes twice.

struct pair_t {
    bit<32> one;
    bit<32> other;
}

#define PAIR(n, m) \
    Register<pair_t, place_t>(PLACES) place_sum_##n; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) add_to_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.one = sum.one + hdr.values.v##n; \
            sum.other = sum.other + hdr.values.v##m; \
            found = sum.one; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) write_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            sum.one = hdr.values.v##n; \
            sum.other = hdr.values.v##m; \
            found = sum.one; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) read_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            found = sum.one; \
        } \
    }; \
    RegisterAction<pair_t, place_t, bit<32>>(place_sum_##n) read_other_##n = { \
        void apply(inout pair_t sum, out bit<32> found) { \
            found = sum.other; \
        } \
    }; \
    action do_add_##n() { hdr.values.v##n = add_to_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_write_##n() { hdr.values.v##n = write_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_read_##n() { hdr.values.v##n = read_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    action do_read_other_##n() { hdr.values.v##m = read_other_##n.execute(meta.bridge.place[PLACE_BITS - 1:0]); } \
    @hidden \
    table sum_##n { \
        key = { meta.bridge.values: exact; } \
        actions = { do_add_##n; do_write_##n; do_read_##n; do_read_other_##n; NoAction; } \
        const default_action = NoAction(); \
        const entries = { \
            VALUES_ADD: do_add_##n(); \
            VALUES_WRITE: do_write_##n(); \
            VALUES_READ: do_read_##n(); \
            VALUES_MAKE: do_read_##n(); \
            VALUES_READ_OTHERS: do_read_other_##n(); \
        } \
    }

#define APPLY_PAIR(n, m) sum_##n.apply();

control Values(inout headers_t hdr, inout egress_metadata_t meta) {
    EACH_PAIR(PAIR)

    apply {
        EACH_PAIR(APPLY_PAIR)
        if (meta.bridge.values == VALUES_MAKE) {
            hdr.values.setValid();
        } else if (meta.bridge.values == VALUES_LOSE) {
            hdr.values.setInvalid();
        }
    }
}
